"""One thread: on a busy machine small tensors are faster so, and equal runs stay equal."""

import signal

import pytest
import torch

torch.set_num_threads(1)
# a shell starts background jobs with Ctrl-C ignored, and children inherit that; tests send it to theirs
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread():
    yield
    torch.set_num_threads(1)


@pytest.fixture
def without_figures(monkeypatch):
    """Reports with empty figures: drawing takes most of their time, and tests/report checks what is drawn."""
    monkeypatch.setattr("proud.report.figures.maps.embed", lambda features: features[:, :2])
    monkeypatch.setattr("proud.report.page.panel_png", lambda panel, theme: b"")
    monkeypatch.setattr("proud.report.page.chart_files", lambda chart: {"png": b"", "pdf": b""})
