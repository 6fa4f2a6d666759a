"""Reports of several methods (centred features, no pseudo-labels), and the figures of the paper."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from proud.cli import main as cli
from proud.data import embedded
from proud.report.arrays import LOOK_AT
from proud.report.class_tables import STARVED_MARK, recall_tables, recall_text, scores_table
from proud.report.figures.curves import training_curves
from proud.report.figures.maps import collect, feature_maps, unit
from proud.report.figures.style import LIGHT, panel_png
from proud.report.page import write_report
from proud.report.run_tables import look_at_pictures
from proud.report.sections import TableBlock, make_sections
from proud.report.sources import RunSource, read_sources
from proud.tensors import check_arrays
from report.conftest import HOSTILE

SHORT = "--epochs 3 --pretrain-epochs 1 --size 16 --batch-size 30 --views 1 --threads 1 --device cpu --quiet"
DOCUMENTED = Path(__file__).parents[2] / "docs" / "guide" / "report.md"


def sources(runs: Path) -> dict[str, RunSource]:
    """The runs of three methods, by name."""
    return {run.name: run for run in read_sources([runs / name for name in ("erm", "whole", "plus")])[0]}


@pytest.fixture
def page(runs: Path, tmp_path: Path, without_figures: None) -> Path:
    return write_report([runs / name for name in ("erm", "whole", "plus")], tmp_path / "r.html")


def test_prototypes_are_close_to_their_images(runs: Path) -> None:
    """With and without centred features."""
    for run in map(sources(runs).get, ("proud", "proud-plus")):
        assert run is not None
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


@pytest.mark.usefixtures("without_figures")
def test_captions_describe_the_figure(runs: Path) -> None:
    every = sources(runs)
    plain, plus = (feature_maps([every[name]], "x") for name in ("proud", "proud-plus"))
    both = feature_maps(list(every.values()), "x")
    assert plain is not None and plus is not None and both is not None
    assert "centred" not in plain.caption
    assert plus.caption.endswith("Features are centred per domain, as for the prototypes.")
    assert "Features of proud-plus are centred" in both.caption
    assert both.title == "erm, proud and proud-plus"
    curves = {name: training_curves(run, "x") for name, run in every.items()}
    assert [panel.title for panel in curves["proud"].panels] == ["Accuracy (%)", "Mean mixing ratio λ", "Losses"]
    assert "mean λ" in curves["proud"].caption
    assert curves["proud-plus"].panels[1].title == "Mean uncertainty", "its ratios are random"
    assert "λ" not in curves["proud-plus"].caption
    for arrays in every["erm"].snapshots.values():  # true classes where known
        assert sorted(arrays["unlabeled/hidden 2/truth"]) == sorted([*range(4)] * 6)


@pytest.mark.usefixtures("without_figures")  # instead of t-SNE, the first two features
@pytest.mark.parametrize("name", ["erm", "proud-plus"])
def test_figures_of_other_methods_can_be_drawn(name: str, runs: Path) -> None:
    sections = make_sections([sources(runs)[name]], [], lambda text: None)
    charts = [block.chart for section in sections for block in section.blocks if not isinstance(block, TableBlock)]
    assert len(charts) == {"erm": 5, "proud-plus": 7}[name]
    for panel in (panel for chart in charts for panel in chart.panels):
        assert panel_png(panel, LIGHT, dpi=30).startswith(b"\x89PNG")


def test_images_to_look_at_are_listed(runs: Path, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(sources(runs)["proud-plus"].look_at) == [f"{HOSTILE}/1", "hidden 2"]
    tables = sorted((page.with_name("r_files")).glob("look-at-*.csv"))
    for place, table in enumerate(tables):
        rows = table.read_text().splitlines()
        assert rows[0] == "image,pseudo-label,ε (nats)"
        assert len(rows) == 25
        assert (page.with_name("r_files") / f"look-at-{place + 1}.tex").is_file()
    assert len(re.findall("24 images of .*? to look at", text)) == len(tables) > 0
    assert ("look at the 24 images below" in text) == bool(tables)
    shown = re.findall(r'<figure class="thumb"><img src="data:image/png;base64,.*?</figure>', text, re.DOTALL)
    assert len(shown) == 24 * len(tables), "each with its picture"
    paths = [table.read_text().splitlines()[1].split(",")[0] for table in tables]
    assert all(f'<span class="path">{path}</span>' in text for path in paths)


def test_sites_may_have_different_numbers_of_images_to_look_at() -> None:
    kept = {f"look_at/site {count}/images": torch.zeros(count, 3, 8, 8, dtype=torch.uint8) for count in (5, 24)}
    check_arrays(kept, LOOK_AT, {})


def test_pictures_that_a_run_did_not_keep_are_left_out(runs: Path) -> None:
    run = sources(runs)["proud-plus"]
    assert look_at_pictures(run, "hidden 2", 30)[24:] == [None] * 6
    assert look_at_pictures(run, "elsewhere", 2) == [None, None]
    run.outputs["look_at/hidden 2/images"] = np.zeros((24, 5), dtype=np.float32)
    assert look_at_pictures(run, "hidden 2", 2) == [None, None]


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


@pytest.mark.usefixtures("without_figures")
def test_the_documented_commands_for_the_figures_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/guide/report.md, shortened and on a few of the built-in images."""
    monkeypatch.setattr(embedded, "PER_CLASS", 3)
    embedded.load_embedded.cache_clear()
    text = DOCUMENTED.read_text(encoding="utf-8")
    commands = re.search(r"## The paper's figures.*?```sh\n(.*?)```", text, re.DOTALL)
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
    embedded.load_embedded.cache_clear()


def test_recall_per_class_is_shown(runs: Path) -> None:
    run = sources(runs)["proud-plus"]
    (table,) = recall_tables([run])
    assert [row[0] for row in table.rows] == run.classes
    last = run.result["domains_last"][run.unlabeled[0]]["recall"]
    place = list(table.columns).index(f"pseudo-labels of {run.unlabeled[0]}")
    assert [row[place].split(" → ")[1] for row in table.rows] == [recall_text(value) for value in last]
    assert recall_text(0.1).startswith(STARVED_MARK) and not recall_text(0.2).startswith(STARVED_MARK)
    counted = [record for record in run.records[-5:] if record["stage"] == "main"]
    for k, value in enumerate(run.result["test_recall"]):
        assert value == pytest.approx(np.mean([record["test_recall"][k] for record in counted]))


def test_balanced_scores_are_those_of_the_saved_outputs(runs: Path) -> None:
    """Of the last epoch, not the mean of the last ones."""
    run = sources(runs)["erm"]
    table = scores_table([run])
    assert table is not None
    recalls = np.array(
        [(run.outputs["test/logits"].argmax(1) == k)[run.outputs["test/labels"] == k].mean() for k in range(4)]
    )
    stored = run.result["test_scores"]["balanced_accuracy"]
    assert stored is not None and stored["value"] == pytest.approx(recalls.mean())
    row = next(row for row in table.rows if row[1] == run.config.test)
    assert row[2].startswith(f"{100 * recalls.mean():.0f}") and "n = " in row[2]
