"""The loop: what it records, when it evaluates, and that evaluating never changes what is learned."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from proud.config import Options
from proud.data.types import Task
from proud.errors import UserError
from proud.held import HeldFolder
from proud.methods import method_class
from proud.methods.context import make_context
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training import loop
from proud.training.checkpoint import load_checkpoint
from proud.training.checks import too_few_images
from proud.training.loop import Loop, Progress
from proud.training.run import train
from proud.training.run_folder import RunFolder
from toy import SIDE, toy_run, toy_settings, toy_task

SHORT = {"epochs": 7, "pretrain_epochs": 2, "batch_size": 16}


def run(folder: Path, task: Task, method: str = "erm", eval_every: int = 1, **settings: Any) -> list[dict[str, Any]]:
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", eval_every=eval_every)
    train(toy_run(method, task), toy_settings(method, **SHORT | settings), options, data=task)
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def build(task: Task, folder: Path, method: str = "proud", **settings: Any) -> Loop:
    spec = model_spec("digits", len(task.training.classes), SIDE)
    cpu = torch.device("cpu")
    context = make_context(task.training, spec, cpu, weights="none", seed=3, precision="fp32")
    return Loop(method_class(method)(toy_settings(method, **SHORT | settings), context), task, RunFolder(folder), {})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two and three epochs on domains of 16 images."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    run(folder, toy_task(per_class=4), "proud", epochs=3)
    return folder


def test_evaluating_changes_nothing(trained: Path, tmp_path: Path) -> None:
    always = [json.loads(line) for line in (trained / "records.jsonl").read_text().splitlines()]
    rarely = run(tmp_path / "rarely", toy_task(per_class=4, test=3), "proud", eval_every=3, epochs=3)
    never = run(tmp_path / "never", toy_task(per_class=4, test=None), "proud", epochs=3)
    folders = (trained, tmp_path / "rarely", tmp_path / "never")
    a, b, c = (load_file(folder / "model" / "model.safetensors") for folder in folders)
    assert all(torch.equal(a[key], b[key]) and torch.equal(a[key], c[key]) for key in a)
    for record in [*always, *rarely, *never]:
        record.pop("test_accuracy", None)
        record.pop("test_recall", None)
    assert always == never
    assert [record["losses"] for record in always] == [record["losses"] for record in rarely]


def test_the_last_five_epochs_are_always_evaluated(tmp_path: Path) -> None:
    records = run(tmp_path, toy_task(per_class=3), eval_every=4)
    assert [place for place, record in enumerate(records) if "test_accuracy" in record] == [3, 4, 5, 6, 7, 8]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["test_accuracy"] == pytest.approx(sum(r["test_accuracy"] for r in records[-5:]) / 5)


def test_the_last_five_may_begin_in_the_stage_before(tmp_path: Path) -> None:
    records = run(tmp_path, toy_task(per_class=3), eval_every=100, pretrain_epochs=4, epochs=2)
    assert ["test_accuracy" in record for record in records] == [False] + [True] * 5


def test_records_have_losses_scores_and_signals_of_pseudo_labels(trained: Path) -> None:
    records = [json.loads(line) for line in (trained / "records.jsonl").read_text().splitlines()]
    assert [(record["stage"], record["epoch"]) for record in records] == [
        ("pretrain", 1),
        ("pretrain", 2),
        ("main", 1),
        ("main", 2),
        ("main", 3),
    ]
    main = records[-1]
    assert {"loss", "ce", "pml"} <= main["losses"].keys()
    assert main.keys() >= {"val_accuracy", "test_accuracy"}
    assert len(main["val_recall"]) == len(main["test_recall"]) == 4
    assert set(main["domains"]) == {"hidden 1", "hidden 2"}
    for domain in main["domains"].values():
        of_labels = {"class_shift", "uncertain", "agreement", "prototype_shift", "stability"}
        assert (
            set(domain) == {"uncertainty", "lambda_uncertainty", "lambda", "certain", "accuracy", "recall"} | of_labels
        )
        assert 0 <= domain["lambda_uncertainty"] <= 0.5
        assert 0 <= domain["accuracy"] <= 1
    assert not any("seconds" in key or "time" in key for record in records for key in record)
    timings = [json.loads(line) for line in (trained / "timings.jsonl").read_text().splitlines()]
    assert [set(timing) for timing in timings] == [{"stage", "epoch", "begin", "steps", "evaluation"}] * 5


@pytest.mark.parametrize(("per_class", "batch"), [(4, 16), (3, 5), (1, 64)])
def test_an_epoch_is_full_batches_over_all_unlabeled_images(per_class: int, batch: int, tmp_path: Path) -> None:
    built = build(toy_task(per_class=per_class), tmp_path, batch_size=batch)
    population = 2 * 4 * per_class
    pretrain, main = built.stages
    assert main.steps == max(1, math.ceil(population / batch))
    assert pretrain.steps == max(1, math.ceil(len(built.task.training.labeled) / batch))
    rows = Randomness(1, torch.device("cpu")).rows("unlabeled", population, main.steps, batch)
    assert rows.shape == (main.steps, batch)
    first = rows.flatten()[:population]
    assert len(rows.flatten()) < population or torch.equal(first.sort().values, torch.arange(population))


def test_snapshots_keep_what_a_report_needs(trained: Path) -> None:
    files = sorted((trained / "snapshots").iterdir())
    assert [path.stem for path in files] == ["first", "last", "middle"]
    assert sum(path.stat().st_size for path in files) <= 10_000_000
    held = load_file(files[0])
    for name in ("labeled", "unlabeled/hidden 1", "unlabeled/hidden 2", "test"):
        assert held[f"{name}/features"].dtype == torch.float16
        assert len(held[f"{name}/features"]) == len(held[f"{name}/rows"]) <= 500
    for name in ("hidden 1", "hidden 2"):
        assert held[f"unlabeled/{name}/pseudo"].dtype == torch.int64
        assert {f"unlabeled/{name}/uncertainty", f"unlabeled/{name}/ratio", f"method/prototypes/{name}"} <= held.keys()
    assert held["method/pairs/mixed"].shape == (32, 3, SIDE, SIDE)
    outputs = load_file(trained / "outputs.safetensors")
    answers = {"val/logits", "val/labels", "test/logits", "test/labels"}
    assert set(outputs) == answers | {"look_at/hidden 1/images", "look_at/hidden 2/images"}
    assert outputs["look_at/hidden 1/images"].shape[1:] == (3, SIDE * 9 // 8, SIDE * 9 // 8)


def test_pseudo_labels_are_written_as_a_table(trained: Path) -> None:
    lines = (trained / "pseudo_labels.csv").read_text().splitlines()
    assert lines[0] == "domain,path,label,uncertainty"
    assert len(lines) == 1 + 2 * 16


@pytest.mark.parametrize("what", ["loss", "weights"])
def test_divergence_names_epoch_and_step_and_keeps_the_checkpoint(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    built = build(toy_task(per_class=4), tmp_path, "erm")
    step, calls = built.method.step, []

    def explode(*arguments: Any) -> dict[str, torch.Tensor]:
        losses = step(*arguments)
        calls.append(1)
        if len(calls) == 6:  # two epochs of one step come first, then two with two
            if what == "loss":
                losses["loss"] = losses["loss"] * math.nan
            else:
                next(built.method.net.parameters()).data.fill_(math.inf)
        return losses

    monkeypatch.setattr(built.method, "step", explode)
    with pytest.raises(UserError, match=r"stage main, epoch 2, step 2 of 2.*last good checkpoint") as error:
        built.run()
    assert ("nan" if what == "loss" else "weights") in str(error.value)
    found = load_checkpoint(HeldFolder(tmp_path / "checkpoints"))
    assert found is not None
    assert found.position.records == 3
    assert all(value.isfinite().all() for value in found.state.values())


@pytest.mark.parametrize("method", ["proud", "proud-plus"])
def test_no_more_tensors_live_after_twelve_epochs_than_after_four(method: str, tmp_path: Path) -> None:
    """Memory does not grow with epochs."""
    built = build(toy_task(unlabeled=1, per_class=1), tmp_path, method, epochs=14, pretrain_epochs=0, batch_size=4)
    held: list[int] = []

    def count(progress: Progress) -> None:
        if progress.record is not None and progress.epoch in (4, 12):
            gc.collect()
            live = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
            held.append(sum(tensor.numel() for tensor in live))

    built.watch = count
    built.run()
    after_four, after_twelve = held
    assert after_twelve <= after_four


def test_a_batch_of_more_images_than_there_are_is_mentioned() -> None:
    task = toy_task(per_class=2)
    assert too_few_images(task, 128) == ""
    assert "--batch-size 4096 is more than the" in too_few_images(task, 4096)


def test_a_batch_has_two_images_at_least(tmp_path: Path) -> None:
    task = toy_task(per_class=2)
    with pytest.raises(UserError, match=r"--batch-size must be at least 2 \(one image has no batch statistics\)"):
        train(toy_run("erm", task), toy_settings("erm", batch_size=1), Options(out=str(tmp_path / "x")), data=task)


def test_threads_are_bounded(tmp_path: Path) -> None:
    task = toy_task(per_class=2)
    for threads in (-1, 2**31, 10**6):
        options = Options(out=str(tmp_path / "x"), threads=threads)
        with pytest.raises(UserError, match="--threads must be between 0 and 1024"):
            train(toy_run("erm", task), toy_settings("erm"), options, data=task)
