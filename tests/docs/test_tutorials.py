"""The tutorials, run as they stand but with single epochs, print what their pages show, numbers apart."""

from __future__ import annotations

import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from proud.cli.flags.train import parse_train
from proud.methods import METHODS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARED = Path(__file__).parents[3] / "shared" / "data"
NUMBER = re.compile(r"[-+]?\d[\d.]*")


@pytest.fixture
def tutorials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The module that runs them, in an empty folder; methods that they add are removed again."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.chdir(tmp_path)
    before = dict(METHODS)
    import tutorials

    whole = tutorials.cells
    monkeypatch.setattr(tutorials, "cells", lambda name: [(kind, shortened(text)) for kind, text in whole(name)])
    yield tutorials
    METHODS.clear()
    METHODS.update(before)
    for name in tutorials.TUTORIALS:
        sys.modules.pop(name, None)


def shortened(code: str) -> str:
    return (
        re.sub(r"epochs=\d+", "epochs=1", code)
        .replace("[::2]", "[::8]")
        .replace("range(0, 200, 40)", "range(0, 50, 10)")
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # about networks that have learned nothing yet
@pytest.mark.parametrize("name", ["own_folders", "comparing_methods", "adding_a_method"])
def test_a_tutorial_prints_what_its_page_shows(tutorials, name: str) -> None:
    stored = tutorials.read("tutorials.json")[name]["printed"]
    assert [NUMBER.sub("#", text) for text in tutorials.run(name)] == [NUMBER.sub("#", text) for text in stored]
    if name == "adding_a_method":
        found = parse_train(["--method", "entropy", "--labeled", "pen", "--entropy-weight", "0.5"])
        assert found.settings.entropy_weight == 0.5


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_one_on_real_data_runs_with_a_few_images(
    tutorials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of it, in small; its page shows what it prints in full size."""
    archives = sorted((SHARED / "wbc").glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"needs the archives of wbc in {SHARED}")
    for archive in archives:
        with tarfile.open(archive) as file:
            members = sorted((member for member in file if member.isfile()), key=lambda member: member.name)
            taken: Counter[str] = Counter()
            for member in members:
                kind = str(Path(member.name).parent)
                taken[kind] += 1
                if taken[kind] <= 12:
                    file.extract(member, tmp_path / "images", filter="data")
    root = next((tmp_path / "images").rglob("barcelona")).parent
    monkeypatch.setenv("WBC", str(root))
    small = " --size 32 --model digits --epochs 2 --device cpu --threads 1"
    whole = tutorials.cells
    monkeypatch.setattr(
        tutorials,
        "cells",
        lambda name: [
            (kind, text.replace("--test bccd --weights", f"--test bccd{small} --weights")) for kind, text in whole(name)
        ],
    )
    printed = "".join(tutorials.run("blood_cells"))
    for words in ("images per class", "pseudo-labels", "difference", "Images to label: cellavision 20, tecom 20"):
        assert words in printed, words
    assert "40 images labeled" in printed and (tmp_path / "cells.pt2").is_file()
    assert "loss" not in printed


def test_all_tutorials_have_a_page(tutorials) -> None:
    names = {path.stem for path in tutorials.FOLDER.glob("*.py")}
    assert names == {*tutorials.TUTORIALS, *tutorials.ON_REAL_DATA}
    assert {name.replace("_", "-") for name in names} == {path.stem for path in tutorials.FOLDER.glob("*.md")} - {
        "index"
    }
