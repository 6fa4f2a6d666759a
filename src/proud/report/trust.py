"""What `proud.trust` knows of a run, for the page; nothing where it cannot tell."""

from __future__ import annotations

from proud.report.gather import Run


def temperature_of(run: Run) -> float | None:
    """Fitted on source validation."""
    return None


def site_rows(run: Run) -> list[list[str]]:
    """Site, verdict."""
    return []
