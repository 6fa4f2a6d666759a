"""Failed runs without an error are reported by `proud train`, the estimator, a bench and the report."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import one_hot

from proud import ProUD
from proud.bench.results import read_rows
from proud.cli import bench
from proud.cli import main as cli
from proud.cli.flags.bench import BenchArguments
from proud.cli.train import show_result
from proud.config import Machine, NetSpec, ReadSpec
from proud.data.checks import evenly
from proud.model.format import read_result
from proud.report.page import write_report
from proud.trust.collapse import LOOKED_AT, learned_nothing, missing_classes, one_class, starved_classes
from toy import CLASSES, SIDE, toy_images, write_folders

LABELS = torch.arange(100) % 4


def answers(predicted: torch.Tensor, classes: int = 4) -> torch.Tensor:
    return one_hot(predicted, classes).float()


def test_a_network_at_chance_has_learned_nothing() -> None:
    text = learned_nothing(answers(torch.ones_like(LABELS)), LABELS, "pen")
    assert "on the validation images of pen is 25.0 %" in text and "chance is 25.0 %" in text
    assert learned_nothing(answers(torch.ones_like(LABELS[:8])), LABELS[:8], "pen")
    caught = 0
    for seed in range(20):
        guesses = torch.randint(4, (100,), generator=torch.Generator().manual_seed(seed))
        caught += bool(learned_nothing(answers(guesses), LABELS, "pen"))
    assert caught >= 14  # one standard error: five of six


def test_no_warning_above_chance() -> None:
    half = torch.where(torch.arange(100) < 50, LABELS, (LABELS + 1) % 4)
    assert learned_nothing(answers(LABELS), LABELS, "pen") == learned_nothing(answers(half), LABELS, "pen") == ""
    assert learned_nothing(answers(LABELS + 1, 5)[:7], LABELS[:7], "pen") == ""  # too few images
    assert learned_nothing(answers(LABELS), torch.zeros_like(LABELS), "pen") == ""  # only one class


def test_rare_classes() -> None:
    rare = torch.arange(100) < 10
    labels = rare.long()
    assert learned_nothing(answers(labels, 2), labels, "pen") == ""
    assert learned_nothing(answers(labels, 2)[5:16], labels[5:16], "pen") == ""
    predicted = labels * (torch.arange(100) < 6)  # six of ten right, no false positives
    assert learned_nothing(answers(predicted, 2), labels, "pen") == ""
    assert "is 50.0 %" in learned_nothing(answers(torch.zeros_like(labels), 2), labels, "pen")


def test_classes_that_a_site_never_gets() -> None:
    classes, site = ("a", "b", "c", "d"), torch.arange(200) % 4
    assert starved_classes(answers(site), LABELS, classes, "north") == ""
    without = starved_classes(answers(site.where(site != 2, 0)), LABELS, classes, "north")
    assert "of north is classified as c (0 of 200 images, 25 % of the labels)" in without
    few = site.clone()
    few[(site == 2).nonzero()[5:]] = 0  # five of fifty are left: a tenth of what is expected
    assert starved_classes(answers(few), LABELS, classes, "north")
    few[(site == 2).nonzero()[5:7]] = 2
    assert starved_classes(answers(few), LABELS, classes, "north") == ""
    assert starved_classes(answers(site.where(site != 2, 0)[:20]), LABELS, classes, "north") == ""  # too few images
    rare = torch.cat([torch.zeros(99, dtype=torch.int64), torch.ones(1, dtype=torch.int64)])  # 1 % of the labels
    assert starved_classes(answers(torch.zeros(2000, dtype=torch.int64), 2), rare, ("a", "b"), "north") == ""


def test_one_class_for_a_whole_site() -> None:
    classes, site = ("a", "b", "c", "d"), answers(torch.full((100,), 2))
    text = one_class(site, LABELS, classes, "north")
    assert "100 % of the images of north are classified as c, the class of 25 % of" in text
    site[:6] = torch.tensor([1.0, 0, 0, 0])  # 94 % is below the limit
    assert one_class(site, LABELS, classes, "north") == ""
    usual = torch.full((100,), 2)  # nearly all labeled images have this class
    assert one_class(answers(usual), usual, classes, "north") == ""
    assert one_class(site[6:13], LABELS, classes, "north") == ""  # too few images
    two = (torch.arange(100) < 48).long()
    assert "the class of 52 % of" in one_class(answers(torch.zeros_like(two), 2), two, ("a", "b"), "north")


def test_117_of_120_images_of_one_class() -> None:
    site = torch.full((120,), 2)
    site[:3] = torch.tensor([0, 1, 3])
    text = missing_classes(answers(site), LABELS, ("cat", "dog", "person", "tree"), "west")
    assert text.startswith("98 % of the images of west are classified as person, the class of 25 %")
    site[3:40], site[40:60] = 0, 1
    assert "of west is classified as tree (1 of 120" in missing_classes(
        answers(site), LABELS, ("a", "b", "c", "tree"), "west"
    )
    assert missing_classes(answers(torch.arange(120) % 4), LABELS, ("a", "b", "c", "d"), "west") == ""


@pytest.mark.parametrize("count", [1, LOOKED_AT, LOOKED_AT + 1, 10 * LOOKED_AT])
def test_enough_rows_are_checked(count: int) -> None:
    rows = evenly(count, LOOKED_AT)
    assert len(rows) == min(count, LOOKED_AT)
    assert rows.unique().equal(rows) and rows.max() < count


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run whose weight decay destroys the network."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    model = ProUD(
        method="erm", size=SIDE, epochs=2, batch_size=16, lr=0.02, pretrain_epochs=2, weight_decay=30.0, device="cpu",
        out=str(folder), verbose=False,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(labeled=toy_images(0, 50), unlabeled=[toy_images(1, 12)[0]], test=toy_images(3, 4))
    return folder, [str(warning.message) for warning in caught if warning.category is UserWarning]


def test_the_estimator_warns(failed: tuple[Path, list[str]]) -> None:
    folder, messages = failed
    assert any("learned nothing" in text for text in messages)
    assert any("unlabeled 1 are classified as" in text for text in messages)
    assert read_result(folder)["warnings"] == messages


def test_the_console_warns(failed: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    show_result(read_result(failed[0]) | {"folder": str(failed[0])}, 1.0)
    assert "Warning: The network learned nothing" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("without_figures")
def test_the_report_warns(failed: tuple[Path, list[str]], tmp_path: Path) -> None:
    page = write_report([failed[0]], tmp_path / "report.html")
    assert "The network learned nothing" in page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data whose held-out site, west, is grey but for 3 of its 120 images."""
    root = tmp_path_factory.mktemp("collapsed")
    write_folders(root / "data", {"central": 0, "north": 1}, per_class=12)
    random = np.random.default_rng(0)
    for row in range(120):
        grey = np.full((SIDE, SIDE, 3), 215) + random.normal(0, 3, (SIDE, SIDE, 3))
        image = toy_images(0, 1, seed=5)[0][row] if row < 3 else grey.clip(0, 255).astype(np.uint8)
        place = root / "data" / "west" / CLASSES[row % 4] / f"{row}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place)
    return root


COLLAPSE = re.compile(r"(9[5-9]|100) % of the images of west are classified as \w+, the class of 25 % of the labeled")


@pytest.mark.usefixtures("without_figures")
def test_a_collapse_on_the_held_out_site_is_reported_by_train_report_and_evaluate(
    collapsed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = collapsed / "run"
    flags = (
        "--labeled central --test west --method erm --size 16 --epochs 4 --pretrain-epochs 6 --batch-size 16 --lr 0.02"
    )
    command = ["train", "--data", str(collapsed / "data"), *flags.split(), "--weight-decay", "0.0005", "--quiet"]
    assert cli.run([*command, "--threads", "1", "--device", "cpu", "--out", str(run)]) == 0
    assert COLLAPSE.search(" ".join(capsys.readouterr().out.split()))
    assert COLLAPSE.search(read_result(run)["warnings"][0])
    assert COLLAPSE.search(write_report([run], collapsed / "report.html").read_text(encoding="utf-8"))
    assert cli.run(["evaluate", str(run), "--domain", "west", "--device", "cpu"]) == 0
    assert COLLAPSE.search(" ".join(capsys.readouterr().out.split()))


def test_a_good_run_gives_no_warning() -> None:
    model = ProUD(
        method="erm", size=SIDE, epochs=4, batch_size=16, lr=0.02, pretrain_epochs=6, device="cpu", verbose=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(labeled=toy_images(0, 24), unlabeled=[toy_images(1, 12)[0]])
    assert "warnings" not in model.result_ and np.isfinite(model.result_["val_accuracy"])


def test_a_bench_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_folders(tmp_path / "data", {"one": 0, "two": 1, "three": 2}, per_class=15)
    destructive = ("batch_size=16", "weight_decay=30", "lr=0.02")
    arguments = BenchArguments(
        name=str(data), out=str(tmp_path / "out"), methods="erm", seeds="1", combos="one:two", epochs=1,
        pretrain_epochs=1, set=destructive, reading=ReadSpec(size=SIDE, val=0.5),
        network=NetSpec(model="digits", weights="none"), machine=Machine(device="cpu", threads=1),
    )  # fmt: skip
    bench.run(arguments)
    output = " ".join(capsys.readouterr().out.lower().split())
    assert "warning: the network learned nothing" in output and "1 of 1 runs ended with a warning" in output
    assert "learned nothing" in read_rows(tmp_path / "out" / "results.jsonl")[0]["warnings"][0]
