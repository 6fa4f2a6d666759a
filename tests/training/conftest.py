"""Processes to be stopped are started like those of the reliability tests: forked from one that has imported torch."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
