"""Small tensors: one thread is faster than several, and many times so beside another busy process."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("ops", deadline=None, max_examples=30)
settings.load_profile("ops")
