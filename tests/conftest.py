"""One thread: on a busy machine small tensors are faster so, and equal runs stay equal."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_thread():
    yield
    torch.set_num_threads(1)
