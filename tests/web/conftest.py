"""Three small sites with unsafe names, a run on them, and what the run's model says about their images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from proud.model.atlas import Atlas
from proud.model.survey import survey
from proud.web.labels import LabelTable
from proud.web.views import Views
from toy import write_folders
from web.local import UNSAFE, page_client, train


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    root = write_folders(tmp_path_factory.mktemp("data"), {"central": 0, "north": 1, "south": 2}, per_class=12)
    for site in ("central", "north", "south"):
        (root / site / "plain").rename(root / site / UNSAFE)
    first = next((root / "north" / "across").iterdir())
    first.rename(first.with_name("<script>alert(1)<'\">.png"))
    return root


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "x"
    assert train(data, out) == 0
    return out


@pytest.fixture(scope="session")
def atlas(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return survey(trained, cache=tmp_path_factory.mktemp("features"), device="cpu")


@pytest.fixture
def views(atlas: Atlas, tmp_path: Path) -> Views:
    return Views(atlas, LabelTable(tmp_path / "labels.csv"), 20)


@pytest.fixture
def client(views: Views, tmp_path: Path) -> TestClient:
    return page_client(views, tmp_path)
