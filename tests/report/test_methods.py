"""Reports of several methods (centred features, no pseudo-labels), and the figures of the paper."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from proud.cli import main as cli
from proud.config import Options
from proud.report.figures.maps import collect, feature_maps, unit
from proud.report.page import write_report
from proud.report.sources import read_sources
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

SHORT = "--epochs 3 --pretrain-epochs 1 --size 16 --batch-size 200 --views 1 --threads 1 --quiet"
DOCUMENTED = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("methods")
    for method in ("proud", "proud-plus", "erm"):
        options = Options(out=str(folder / method), device="cpu", threads=1, quiet=True)
        task = toy_task(per_class=6)
        train(toy_run(method, task), toy_settings(method, epochs=3, pretrain_epochs=3), options, task=task)
    return folder


@pytest.fixture(scope="module", autouse=True)
def flat_maps() -> Iterator[None]:
    """The first two features instead of t-SNE, which is slow and tested separately."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proud.report.figures.maps.embed", lambda features: features[:, :2])
        yield


@pytest.fixture(scope="module")
def page(runs: Path, flat_maps: None) -> Path:
    return write_report([runs], runs / "r.html")


def test_prototypes_are_close_to_their_images(runs: Path) -> None:
    """With and without centred features."""
    sources, _ = read_sources([runs])
    for run in sources:
        if run.config["method"] == "erm":
            continue
        arrays = run.snapshots["last"]
        points = collect(run, arrays)
        near = []
        for place, site in enumerate(run.unlabeled, 1):
            images = points.features[(points.kind == place) & ~points.prototype]
            shown = (points.kind == place) & points.prototype
            labels = arrays[f"unlabeled/{site}/pseudo"]
            near += [
                (unit(images[labels == label].mean(0, keepdims=True))[0] @ prototype)
                for prototype, label in zip(points.features[shown], points.classes[shown], strict=True)
                if (labels == label).any()
            ]
        assert len(near) > 4
        assert np.mean(near) > 0.8, (run.name, near)


def test_captions_describe_the_figure(runs: Path) -> None:
    every = {run.name: run for run in read_sources([runs])[0]}
    plain, plus = (feature_maps([every[name]], "x") for name in ("proud", "proud-plus"))
    both = feature_maps(list(every.values()), "x")
    assert plain is not None and plus is not None and both is not None
    assert "centred" not in plain.caption
    assert plus.caption.endswith("Features are centred per domain, as for the prototypes.")
    assert "Features of proud-plus are centred" in both.caption
    assert both.title == "erm, proud and proud-plus"
    for arrays in every["erm"].snapshots.values():  # true classes where known
        assert sorted(arrays["unlabeled/hidden 1/truth"]) == sorted([*range(4)] * 6)


def test_images_to_look_at_are_listed(runs: Path, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(read_sources([runs / "proud-plus"])[0][0].look_at) == ["hidden 1", "hidden 2"]
    tables = sorted((page.with_name("r_files")).glob("look-at-*.csv"))
    for place, table in enumerate(tables):
        rows = table.read_text().splitlines()
        assert rows[0] == "image,pseudo-label,ε (nats)"
        assert len(rows) == 25
        assert (page.with_name("r_files") / f"look-at-{place + 1}.tex").is_file()
    assert text.count("images of hidden") == len(tables)
    assert ("look at the 24 images below" in text) == bool(tables)


def test_tables_are_plain_latex(page: Path) -> None:
    """Only characters that LaTeX accepts without further packages."""
    tables = list(page.with_name("r_files").glob("*.tex"))
    assert len(tables) > 5
    for table in tables:
        assert table.read_text(encoding="utf-8").isascii(), table.name


def test_units_are_named(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    certain = text[text.index('<section id="certain">') : text.index('<section id="confusion">')]
    texts = re.findall(r'<span class="dim">((?:ε|p) [^<]*)</span>', certain)
    assert any(re.fullmatch(r"ε \d\.\d\d", text) for text in texts)
    assert any(re.fullmatch(r"p \d+ %", text) for text in texts)


def test_the_documented_commands_for_the_figures_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/report.md, shortened and on the built-in data."""
    text = DOCUMENTED.read_text(encoding="utf-8")
    commands = re.search(r"## The paper's figures.*?```\n(.*?)```", text, re.DOTALL)
    assert commands is not None
    monkeypatch.chdir(tmp_path)
    ours = {"pacs": "embedded", "photo": "pen", "art_painting": "street", "cartoon": "print", "sketch": "texture"}
    for line in commands[1].splitlines():
        program, *words = shlex.split(line.replace("--root $PACS", ""))
        assert program == "proud"
        words = [ours.get(word, word) for word in words]
        if words[0] == "train":
            words += SHORT.split()
        assert cli.run(words) == 0
    files = tmp_path / "paper-figures_files"
    whole, part = (load_file(f"runs/{name}/snapshots/last.safetensors") for name in ("fig2", "fig4"))
    assert not np.array_equal(whole["method/merged"], part["method/merged"])
    page = (tmp_path / "paper-figures.html").read_text(encoding="utf-8")
    # Fig. 2 above Fig. 4, three epochs each
    for name in ("proud-plus, pen → street", "proud-plus without PML, pen → street"):
        assert [f"{name}: epoch {epoch}</figcaption>" in page for epoch in (1, 2, 3)] == [True] * 3
    for stem in re.findall(r"`paper-figures_files/([\w.-]+)`", text):
        assert (files / stem.replace("cartoon-sketch", "print-texture")).is_file(), stem
    assert "--alpha 0" in commands[1]
