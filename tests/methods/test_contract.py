"""What every method promises, whatever its idea. New methods are covered as soon as METHODS names them.

`minimal`, defined here, keeps all promises too, with nothing but the parts that a method must have.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from proud.config import Options
from proud.data.types import Audit, EvaluationData, LabeledDomain, Task
from proud.machine import Stopped
from proud.methods import METHODS, method_class
from proud.methods.base import Method, MethodConfig, Stage
from proud.methods.context import make_context
from proud.model.load import load_model
from proud.nets.models import model_spec
from proud.randomness import Draw, Draws
from proud.training import loop
from proud.training.evaluator import Evaluator
from proud.training.loop import Loop
from proud.training.records import epochs_of
from proud.training.run import train
from proud.training.run_folder import RUN_FILES, RunFolder
from toy import SIDE, toy_run, toy_settings, toy_task, write_folders

every_method = pytest.mark.parametrize("name", [*METHODS, "minimal"])
SHORT = {"epochs": 2, "pretrain_epochs": 1, "batch_size": 8}
SHORTEST = SHORT | {"epochs": 1}
TRAINED = ("records.jsonl", "timings.jsonl", "pseudo_labels.csv", "snapshots/")
OUTCOME = {name for name in RUN_FILES if not name.startswith(TRAINED)}  # written after the last checkpoint


@dataclass(frozen=True)
class MinimalConfig(MethodConfig):
    sharpness: float = 1.0
    """factor of the logits"""


class Minimal(Method):
    """Cross-entropy on labeled images."""

    Config = MinimalConfig

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return {"augment": Draw((self.config.batch_size, self.views.uniforms), sample_dim=0)}

    def losses(self, stage: Stage, rows: dict[str, torch.Tensor], draws: Draws) -> dict[str, torch.Tensor]:
        x = self.views.training(self.context.labeled.take(rows["labeled"]), draws["augment"])
        _, logits = self.net(x)
        labels = self.context.labels[rows["labeled"]]
        return {"loss": torch.nn.functional.cross_entropy(self.config.sharpness * logits, labels)}


@pytest.fixture(autouse=True)
def minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "minimal", (f"{__name__}:Minimal", {}))


def test_a_method_needs_settings_draws_and_losses_alone() -> None:
    assert {name for name in vars(Minimal) if not name.startswith("__")} == {"Config", "draws", "losses"}


def run(
    name: str,
    folder: Path,
    task: Task | None = None,
    resume: bool = False,
    watch: Any = lambda now: None,
    settings: dict[str, Any] = SHORT,
    **given: Any,
) -> list[dict[str, Any]]:
    """Train; returns the records. `given`: changes to the run's config."""
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=resume, keep_checkpoints=True)
    train(toy_run(name, task, **given), toy_settings(name, **settings), options, data=task, watch=watch)
    return epochs_of(folder).read()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def saved_accuracy(folder: Path, task: Task) -> float:
    """Of the model as it is loaded for prediction."""
    test = task.evaluation.test
    assert test is not None
    return (load_model(folder, "cpu").logits(test.images).argmax(1) == test.labels).float().mean().item()


def build(name: str, task: Task, folder: Path, **settings: Any) -> Loop:
    spec = model_spec("digits", len(task.training.classes), SIDE)
    device = torch.device("cpu")
    context = make_context(task.training, spec, device, weights="none", seed=3, precision="fp32")
    folder.mkdir(exist_ok=True)
    return Loop(method_class(name)(toy_settings(name, **settings), context), task, RunFolder(folder), {})


@every_method
def test_same_seed_same_weights_killed_or_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    task = toy_task(per_class=3)
    whole, stopped, killed = (tmp_path / folder for folder in ("whole", "stopped", "killed"))
    seen: list[loop.Progress] = []
    records = run(name, whole, task, watch=seen.append)
    left = iter(range(round(0.8 * len(seen)) - 1, -1, -1))

    def stop_in_the_last_epoch(now: loop.Progress) -> None:
        if next(left) == 0:
            raise Stopped

    with pytest.raises(Stopped):
        run(name, stopped, task, watch=stop_in_the_last_epoch)
    assert run(name, stopped, task, resume=True) == records
    assert same(weights(whole), weights(stopped))
    assert saved_accuracy(stopped, task) == pytest.approx(records[-1]["test_accuracy"])
    # killed after its last checkpoint, before anything of its outcome was written
    shutil.copytree(whole, killed)
    outcome = [file for file in OUTCOME if (killed / file).exists()]
    for file in outcome:
        (killed / file).unlink()
    assert len(outcome) > 3 and run(name, killed, task, resume=True) == records
    for file in outcome:
        first, second = ((folder / file).read_text("latin-1") for folder in (whole, killed))
        assert first.replace(str(whole), "") == second.replace(str(killed), ""), file


@every_method
def test_learns_an_easy_task(name: str, tmp_path: Path) -> None:
    task = toy_task(unlabeled=1, per_class=8, test=1)  # new images that look like the unlabeled domain
    built = build(name, task, tmp_path, pretrain_epochs=8, epochs=3, batch_size=8, lr=0.01)
    built.eval_every = 100  # the last five count
    records = built.run()
    assert all(torch.tensor(list(record["losses"].values())).isfinite().all() for record in records)
    assert records[-1]["test_accuracy"] > 0.95
    assert records[-1]["val_accuracy"] > 0.95


@every_method
def test_moving_hidden_files_between_class_folders_changes_no_weight(name: str, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1, "south": 2}, per_class=3)
    given = {"data": str(root), "labeled": "central", "test": "none", "size": SIDE}
    run(name, tmp_path / "before", settings=SHORTEST, **given)
    for domain in ("north", "south"):
        files = sorted((root / domain).rglob("*.png"))
        for place, path in enumerate(files):
            target = root / domain / files[(7 * place + 3) % len(files)].parent.name
            shutil.move(path, target / f"{len(files) - place}-moved.png")
    shutil.rmtree(root / "south" / "plain")  # its images come back under a name that is no class
    write_folders(tmp_path / "again", {"south": 2}, per_class=3)
    (root / "south" / "unsorted").mkdir()
    have = {path.read_bytes() for path in (root / "south").rglob("*.png")}
    for path in sorted((tmp_path / "again" / "south").rglob("*.png")):
        if path.read_bytes() not in have:
            shutil.copy(path, root / "south" / "unsorted" / path.name)
    with pytest.warns(UserWarning, match="unknown in the labeled domain central: unsorted"):
        run(name, tmp_path / "after", settings=SHORTEST, **given)
    assert same(weights(tmp_path / "before"), weights(tmp_path / "after"))


@every_method
def test_no_hidden_label_is_within_reach(name: str, tmp_path: Path) -> None:
    task = toy_task(per_class=3)
    # labels that no method could guess: one that holds them was given them
    generator = torch.Generator().manual_seed(1)
    audits = {
        key: replace(audit, labels=torch.randint(0, 4, audit.labels.shape, generator=generator))
        for key, audit in task.evaluation.audits.items()
    }
    task = replace(task, evaluation=replace(task.evaluation, audits=audits))
    built = build(name, task, tmp_path, **SHORTEST)
    secrets = [audit.labels for audit in audits.values()]
    secrets.append(torch.cat(secrets))
    for held in (task.evaluation.validation, task.evaluation.test):
        assert held is not None
        secrets.append(held.labels)
    assert_out_of_reach(built.method, secrets)
    built.run()
    assert_out_of_reach(built.method, secrets)


def assert_out_of_reach(start: object, secrets: list[torch.Tensor]) -> None:
    for thing in reachable(start):
        assert not isinstance(thing, Audit | EvaluationData | Evaluator | Task | LabeledDomain), type(thing)
        if isinstance(thing, torch.Tensor) and thing.ndim == 1:
            for secret in secrets:
                assert thing.shape != secret.shape or not torch.equal(thing.long(), secret)


def reachable(start: object) -> list[object]:
    """All objects that attributes, items and closures lead to, beginning with `start`."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or thing is None or isinstance(thing, str | bytes | int | float | bool | type):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting += list(thing)
        elif isinstance(thing, MethodType):
            waiting += [thing.__self__, thing.__func__]
        elif isinstance(thing, FunctionType):
            waiting += [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
        waiting += list(getattr(thing, "__dict__", {}).values())
    return list(seen.values())


def test_the_search_for_labels_finds_those_within_reach() -> None:
    task = toy_task(per_class=3)
    secret = next(iter(task.evaluation.audits.values())).labels

    class Leaky:
        def __init__(self) -> None:
            self.peek = lambda: secret

    with pytest.raises(AssertionError):
        assert_out_of_reach(Leaky(), [secret])
    with pytest.raises(AssertionError):
        assert_out_of_reach([{"a": task.evaluation}], [])


@every_method
@pytest.mark.parametrize("domains", [1, 5])
def test_any_number_of_unlabeled_domains(name: str, domains: int, tmp_path: Path) -> None:
    records = build(name, toy_task(unlabeled=domains, per_class=2), tmp_path, **SHORTEST).run()
    assert all(torch.tensor(list(record["losses"].values())).isfinite().all() for record in records)
    assert all(len(record["domains"]) == domains for record in records if "domains" in record)
