from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.small_bench import DOMAINS, BenchArguments, Make, bench_arguments, write_domains
from reliability.children import start_server


@pytest.fixture(scope="session", autouse=True)
def server() -> None:
    """It imports torch in the background, until a test needs a process."""
    start_server()


@pytest.fixture(scope="module", autouse=True)
def quick_runs() -> Iterator[None]:
    """A bench collects garbage after every run: let it skip the objects of torch. What a power failure leaves is tested
    in tests/reliability. And while one bench runs, the commit must not change."""
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setenv("PROUD_COMMIT", "tested")
        yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("data") / "tiny", DOMAINS, ["a", "b"], 4)


@pytest.fixture
def arguments(tiny: Path, tmp_path: Path) -> Make:
    """Arguments of a bench of two runs in tmp_path/out; any of them can be changed by its plain name."""

    def make(**changes: Any) -> BenchArguments:
        usual: dict[str, Any] = {
            "name": str(tiny),
            "out": str(tmp_path / "out"),
            "methods": "erm",
            "seeds": "1",
            "combos": "one:two,two:one",
            "epochs": 1,
            "pretrain_epochs": 1,
            "set": ("batch_size=4", "least_steps=1"),
            "model": "digits",
            "weights": "none",
            "size": 16,
            "device": "cpu",
            "threads": 1,
            "quiet": True,
        }
        return bench_arguments(**usual | changes)

    return make
