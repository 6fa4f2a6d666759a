"""`together`, which the tests import, is also a script for torchrun."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
