"""A fault ends with a clear message and a run that resumes as if nothing had happened. Full size: `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from damage import DAMAGE
from faults import FAULTS
from sizes import SOAK_ONLY
from undisturbed import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("faults"), grace=0.2)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in SOAK_ONLY])
def test_faults(name: str, site: Site, tmp_path: Path) -> None:
    assert FAULTS[name](site, tmp_path / "run")


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files(name: str, site: Site, tmp_path: Path) -> None:
    assert DAMAGE[name](site, tmp_path / "run")
