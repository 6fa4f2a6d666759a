"""What the methods' tests have in common."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_power_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests train many small runs, and waiting for the disk would take a third of their time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
