"""Runs that go wrong without an error are told: by `proud train`, the estimator, a bench and the report."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from proud import ProUD
from proud.bench.results import read_rows
from proud.cli.bench import BenchArguments, bench
from proud.cli.show import show_result
from proud.data.decode import evenly
from proud.report.page import write_report
from proud.files import read_json
from proud.trust.collapse import LOOKED_AT, learned_nothing, one_class
from toy import SIDE, toy_images, write_folders

LABELS = torch.arange(100) % 4


def answers(named: torch.Tensor, classes: int = 4) -> torch.Tensor:
    return one_hot(named, classes).float()


def test_a_network_at_chance_has_learned_nothing() -> None:
    told = learned_nothing(answers(torch.ones_like(LABELS)), LABELS, "pen")
    assert "of the validation images of pen, 25.0 % of a class are right" in told and "guessing gives 25.0 %" in told
    assert learned_nothing(answers(torch.ones_like(LABELS[:8])), LABELS[:8], "pen")
    caught = 0
    for seed in range(20):
        guesses = torch.randint(4, (100,), generator=torch.Generator().manual_seed(seed))
        caught += bool(learned_nothing(answers(guesses), LABELS, "pen"))
    assert caught >= 14  # one standard error: five of six


def test_what_learned_something_is_not_accused() -> None:
    half = torch.where(torch.arange(100) < 50, LABELS, (LABELS + 1) % 4)
    assert learned_nothing(answers(LABELS), LABELS, "pen") == learned_nothing(answers(half), LABELS, "pen") == ""
    assert learned_nothing(answers(LABELS + 1, 5)[:7], LABELS[:7], "pen") == ""  # too few to say
    assert learned_nothing(answers(LABELS), torch.zeros_like(LABELS), "pen") == ""  # there is one class only


def test_rare_classes_are_no_excuse_and_no_reason() -> None:
    rare = torch.arange(100) < 10
    labels = rare.long()
    assert learned_nothing(answers(labels, 2), labels, "pen") == ""
    assert learned_nothing(answers(labels, 2)[5:16], labels[5:16], "pen") == ""
    found = labels * (torch.arange(100) < 6)  # six of ten, and nothing wrongly
    assert learned_nothing(answers(found, 2), labels, "pen") == ""
    assert "50.0 % of a class" in learned_nothing(answers(torch.zeros_like(labels), 2), labels, "pen")


def test_one_class_for_a_whole_site() -> None:
    classes, site = ("a", "b", "c", "d"), answers(torch.full((100,), 2))
    assert "100 % of the images of north are called c, which 25 % of" in one_class(site, LABELS, classes, "north")
    site[:6] = torch.tensor([1.0, 0, 0, 0])  # 94 % are no longer nearly all
    assert one_class(site, LABELS, classes, "north") == ""
    usual = torch.full((100,), 2)  # what nearly all labeled images are
    assert one_class(answers(usual), usual, classes, "north") == ""
    assert one_class(site[6:13], LABELS, classes, "north") == ""  # too few to say
    two = (torch.arange(100) < 48).long()
    assert "which 52 % of" in one_class(answers(torch.zeros_like(two), 2), two, ("a", "b"), "north")


@pytest.mark.parametrize("count", [1, LOOKED_AT, LOOKED_AT + 1, 10 * LOOKED_AT])
def test_enough_rows_are_looked_at(count: int) -> None:
    rows = evenly(count, LOOKED_AT)
    assert len(rows) == min(count, LOOKED_AT)
    assert rows.unique().equal(rows) and rows.max() < count


@pytest.fixture(scope="module")
def wrecked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A weight decay that leaves nothing of the network."""
    folder = tmp_path_factory.mktemp("wrecked") / "run"
    model = ProUD(
        method="erm", size=SIDE, epochs=2, batch_size=16, lr=0.02, pretrain_epochs=2, weight_decay=30.0, device="cpu",
        out=str(folder), quiet=True,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(labeled=toy_images(0, 50), unlabeled=[toy_images(1, 12)[0]], test=toy_images(3, 4))
    return folder, [str(each.message) for each in caught if each.category is UserWarning]


def test_a_wrecked_run_is_told_by_the_estimator(wrecked: tuple[Path, list[str]]) -> None:
    folder, told = wrecked
    assert any("learned nothing" in text for text in told) and any("unlabeled 1 are called" in text for text in told)
    assert read_json(folder / "result.json")["warnings"] == told


def test_a_wrecked_run_is_told_on_the_console(
    wrecked: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    show_result(read_json(wrecked[0] / "result.json") | {"folder": str(wrecked[0])}, 1.0)
    assert "Look: The network learned nothing" in " ".join(capsys.readouterr().out.split())


def test_a_wrecked_run_is_told_in_the_report(wrecked: tuple[Path, list[str]], tmp_path: Path) -> None:
    page = write_report([wrecked[0]], tmp_path / "report.html")
    assert "The network learned nothing" in page.read_text(encoding="utf-8")


def test_a_sound_run_says_nothing() -> None:
    model = ProUD(
        method="erm", size=SIDE, epochs=4, batch_size=16, lr=0.02, pretrain_epochs=6, device="cpu", quiet=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(labeled=toy_images(0, 24), unlabeled=[toy_images(1, 12)[0]])
    assert "warnings" not in model.result_ and np.isfinite(model.result_["val_accuracy"])


def test_a_wrecked_run_is_told_by_a_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_folders(tmp_path / "data", {"one": 0, "two": 1, "three": 2}, per_class=15)
    wrecking = ("batch_size=16", "weight_decay=30", "lr=0.02")
    usual = BenchArguments(
        name=str(data), out=str(tmp_path / "out"), methods="erm", seeds="1", combos="one:two", epochs=1,
        pretrain_epochs=1, set=wrecking, model="digits", weights="none", size=SIDE, device="cpu", threads=1, val=0.5,
    )  # fmt: skip
    bench(usual)
    told = " ".join(capsys.readouterr().out.split())
    assert "LOOK: The network learned nothing" in told and "1 of 1 runs ended with a warning" in told
    assert "learned nothing" in read_rows(tmp_path / "out" / "results.jsonl")[0]["warnings"][0]
