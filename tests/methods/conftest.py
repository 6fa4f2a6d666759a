"""What the methods' tests have in common."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_power_failures() -> Iterator[None]:
    """These tests train many small runs, and waiting for the disk would take a third of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
