"""The one loop: feeds batches to a method, counts, records, evaluates and saves at epoch boundaries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from proud import ops
from proud.config import LAST_EPOCHS
from proud.data.types import Task
from proud.errors import UserError
from proud.machine import Stopped
from proud.methods.base import LossFunction, Method, Stage
from proud.methods.description import Description
from proud.randomness import Randomness
from proud.stamps import Stamp
from proud.stored import EpochRecord, Settings, SharedWith, TimingRecord
from proud.training.checkpoint import (
    Checkpoint,
    Position,
    check_position,
    load_checkpoint,
    load_into,
    save_checkpoint,
)
from proud.training.evaluator import Evaluator
from proud.training.records import NoRecords, OwnRecords, pseudo_label_table
from proud.training.run_folder import RunFolder, refuse_difference, tidy
from proud.training.snapshot import moment_of, snapshot
from proud.trust.diagnosis import site_signals

if TYPE_CHECKING:
    from proud.training.forecast import Estimate
    from proud.training.reuse import Reuse

CHECKPOINT_SECONDS = 1.0  # epochs shorter than this share a checkpoint
PREVIOUS = "loop.before/"  # the loop's own tensors in a checkpoint


@dataclass(frozen=True)
class Progress:
    """Passed to the watcher: before every epoch (`step` 0), after every step, and after every epoch (`record`)."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    record: dict[str, Any] | None = None
    note: str = ""
    """why nothing moves for a while"""
    left: float | None = None
    """seconds that the rest of the run will take, as far as is known"""
    estimate: Estimate | None = None
    """of the whole run, once"""


def plain_epoch(
    method: Method,
    stage: Stage,
    rows: dict[str, Tensor],
    random: Randomness,
    after_step: Callable[[int], None],
    losses: LossFunction | None = None,
) -> dict[str, Tensor]:
    """All steps of an epoch, one after another. Returns each loss as a [steps] tensor."""
    wanted, group = method.draws(stage), method.context.group
    history: dict[str, list[Tensor]] = {}
    for step in range(stage.steps):
        batch = {name: chosen[step] for name, chosen in rows.items()}
        draws = group.part_of_draws(wanted, random.draws(wanted))
        with group.step_errors():
            found = method.step(stage, batch, draws, losses or method.losses)
        for name, loss in found.items():
            history.setdefault(name, []).append(loss)
        after_step(step)
    return {name: torch.stack(values) for name, values in history.items()}


class Epochs:
    """Runs the steps of an epoch; others compile them (`fast`) or replay those of another run (`reuse`)."""

    def __init__(self, losses: LossFunction | None = None) -> None:
        self.losses = losses
        self.replays: SharedWith | None = None
        """the run whose training is replayed; None if this one trains"""

    def note(self, stage: Stage) -> str:
        """Shown before an epoch of the stage that takes a while to start."""
        return ""

    def __call__(
        self,
        method: Method,
        stage: Stage,
        rows: dict[str, Tensor],
        random: Randomness,
        after_step: Callable[[int], None],
    ) -> dict[str, Tensor]:
        return plain_epoch(method, stage, rows, random, after_step, self.losses)


class Loop:
    def __init__(
        self,
        method: Method,
        task: Task,
        folder: RunFolder,
        config: Settings,
        *,
        eval_every: int = 1,
        epochs: Epochs | None = None,
        watch: Callable[[Progress], None] = lambda progress: None,
        should_stop: Callable[[], bool] = lambda: False,
        reuse: Reuse | None = None,
    ) -> None:
        context = method.context
        self.method, self.task, self.folder, self.config = method, task, folder, config
        self.group = context.group
        self.writes = self.group.rank == 0
        self.eval_every, self.watch, self.should_stop = eval_every, watch, should_stop
        self.epochs, self.reuse = epochs or Epochs(), reuse
        self.random = Randomness(context.seed, context.device)
        self.evaluator = Evaluator(task.evaluation, context.spec, context.device, context.precision)
        keep = OwnRecords if self.writes else NoRecords
        self.records = keep(folder, "records.jsonl", EpochRecord)
        self.timings = keep(folder, "timings.jsonl", TimingRecord)
        self.position = Position()
        self.stages = method.stage_list()
        self.total = sum(stage.epochs for stage in self.stages)
        self._saved_at = -math.inf
        self._previous: dict[str, Tensor] = {}  # each domain's pseudo-labels of the epoch before

    # ---- where it starts

    def restore(self) -> None:
        """Go back to the newest intact checkpoint, or to the very start if there is none."""
        self.position = Position(**self.group.from_first(self._restore))
        self.group.broadcast_state(self.method)
        if self.reuse is not None and self.position == Position():
            self.reuse.begin(self)

    def _restore(self) -> dict[str, int]:
        tidy(self.folder)
        path = self.folder.path
        found = load_checkpoint(self.folder.sub("checkpoints"), self.folder.run_id)
        if found is not None:
            refuse_difference(path, found.config, self.config)
            check_position(found.position, self.stages, path)
            load_into(self.method, found.state, path)
            self.position = found.position
            self._previous = {
                key.removeprefix(PREVIOUS): labels.to(self.method.context.device)
                for key, labels in found.state.items()
                if key.startswith(PREVIOUS)
            }
        self.folder.stamps = {} if found is None else dict(found.stamps)
        files: tuple[OwnRecords[Any], ...] = (self.records, self.timings)
        for file in files:
            file.cut(self.position.records, self.folder.stamps.pop(file.name, None))
        return asdict(self.position)

    # ---- epochs

    def run(self) -> list[EpochRecord]:
        """Train to the end; returns all records."""
        while self.position.stage < len(self.stages):
            stage = self.stages[self.position.stage]
            while self.position.epoch < stage.epochs:
                self._epoch(stage, self.position.epoch)
            self.position = Position(self.position.stage + 1, 0, self.position.records)
        return self.records.read()

    def announce(self, note: str) -> None:
        """Tell the watcher what follows the last epoch."""
        stage = self.stages[-1]
        self.watch(Progress(stage.name, stage.epochs, stage.epochs, stage.steps, stage.steps, note=note))

    def _epoch(self, stage: Stage, epoch: int) -> None:
        progress = Progress(stage.name, epoch + 1, stage.epochs, 0, stage.steps)
        self.watch(replace(progress, note=self.epochs.note(stage)))
        record: dict[str, Any] = {"stage": stage.name, "epoch": epoch + 1, "step": stage.steps}
        clock = _Clock()
        self.random.begin_epoch(stage.name, epoch)
        with self.method.context.unlabeled.during(stage):
            self.method.begin_epoch(stage, epoch, self.random)
        clock.lap("begin")
        if self.writes:
            record |= self._describe(stage, epoch)
        clock.lap()

        def after_step(step: int) -> None:
            if self.group.any(self.should_stop()):
                raise Stopped
            self.watch(replace(progress, step=step + 1))

        with self.method.context.unlabeled.during(stage):
            losses = self.epochs(self.method, stage, self._rows(stage), self.random, after_step)
        losses = {name: self.group.mean(values) for name, values in losses.items()}
        record["losses"] = self._mean_losses(losses, stage, epoch)
        clock.lap("steps")
        counts = self.position.records >= self.total - LAST_EPOCHS
        if self.writes and (counts or (self.position.records + 1) % self.eval_every == 0):
            record |= self.evaluator.scores(self.method.network())
        clock.lap("evaluation")
        self._finish(stage, epoch, record, clock.laps)
        self.watch(replace(progress, step=stage.steps, record=record))

    def _rows(self, stage: Stage) -> dict[str, Tensor]:
        """This process's rows of every batch of an epoch, by pool."""
        device = self.method.context.device
        return {
            name: self.group.part(rows, 1).to(device) for name, rows in self.method.rows(stage, self.random).items()
        }

    def _finish(self, stage: Stage, epoch: int, record: dict[str, Any], laps: dict[str, float]) -> None:
        """Write the records and, if due, a checkpoint."""
        replays = self.epochs.replays
        self.records.append(record | ({"shared_with": replays} if replays else {}))
        self.timings.append({"stage": stage.name, "epoch": epoch + 1, **laps})
        self.position = Position(self.position.stage, epoch + 1, self.position.records + 1)
        if self.reuse is not None:
            self.reuse.after_epoch(self)  # before the checkpoint: a run that is further has kept what it shares
        recent = 0 <= time.monotonic() - self._saved_at < CHECKPOINT_SECONDS  # a clock may jump back
        if self.writes and not replays and (self.position.records == self.total or not recent):
            previous = {f"{PREVIOUS}{name}": labels for name, labels in self._previous.items()}
            state = self.method.state_dict() | previous
            saved = Checkpoint(state, self.position, self.config, self.folder.run_id, self.stamps())
            save_checkpoint(self.folder.sub("checkpoints"), saved)
            self._saved_at = time.monotonic()

    def stamps(self) -> dict[str, Stamp]:
        """Of every file that the run has written so far."""
        files: tuple[OwnRecords[Any], ...] = (self.records, self.timings)
        return self.folder.stamps | {file.name: file.stamp() for file in files}

    # ---- what is recorded

    def _describe(self, stage: Stage, epoch: int) -> dict[str, Any]:
        """The sites' part of the record; in the last stage also snapshots, and in its last epoch the pseudo-labels."""
        about = self.method.describe()
        moment = moment_of(epoch, stage.epochs) if stage is self.stages[-1] else None
        if moment:
            content = snapshot(moment, self.method, about, self.task, self.random)
            self.folder.write(f"snapshots/{moment}.safetensors", content)
        if moment == "last" and about.pseudo_labels:
            self.folder.write("pseudo_labels.csv", pseudo_label_table(about.pseudo_labels, self.task))
        return {"domains": self._sites(about)} if about.pseudo_labels else {}

    def _sites(self, about: Description) -> dict[str, dict[str, Any]]:
        """Signals of each domain's pseudo-labels and, where true labels are known, their accuracy."""
        known = {domain.name: domain.known for domain in self.task.training.unlabeled}
        priors = self._class_priors(about)
        merged = None if about.prototypes is None else about.prototypes.merged
        found: dict[str, dict[str, Any]] = {}
        for name, pseudo in about.pseudo_labels.items():
            row = {"uncertainty": pseudo.uncertainty.mean()} | mixing_signals(about, pseudo.uncertainty)
            row |= site_signals(pseudo, priors, merged, self._previous.get(name))
            self._previous[name] = pseudo.labels.clone()
            values = torch.stack([value.float() for value in row.values()]).tolist()  # one host sync
            found[name] = dict(zip(row, values, strict=True)) | self.evaluator.audit(name, pseudo, known.get(name))
        return found

    def _class_priors(self, about: Description) -> Tensor:
        """Plausible class distributions of unlabeled domains [M,K]: at least that of the labeled one."""
        context = self.method.context
        labeled = ops.class_mix(context.labels, context.classes)[None]
        return labeled if about.class_priors is None else torch.cat([labeled, about.class_priors])

    def _mean_losses(self, losses: dict[str, Tensor], stage: Stage, epoch: int) -> dict[str, float]:
        wrong = (~torch.isfinite(losses["loss"])).nonzero().flatten().tolist()
        if wrong:
            self._diverged(f"The loss became {losses['loss'][wrong[0]].item()}", stage, epoch, wrong[0])
        weights = torch.stack([weight.isfinite().all() for weight in self.method.network().parameters()])
        if not weights.all():
            self._diverged("The weights became infinite or NaN", stage, epoch, stage.steps - 1)
        return {name: values.float().mean().item() for name, values in losses.items()}

    def _diverged(self, what: str, stage: Stage, epoch: int, step: int) -> NoReturn:
        if not self.writes:
            raise SystemExit(2)  # every process sees it; the first reports it
        kept = self.folder.sub("checkpoints")
        last = f" The last good checkpoint is kept in {kept.path}." if kept.names() else ""
        raise UserError(
            f"{what} in stage {stage.name}, epoch {epoch + 1}, step {step + 1} of {stage.steps}.{last} A lower --lr "
            f"usually helps; choose another --out than {self.folder.path}."
        )


def mixing_signals(about: Description, uncertainty: Tensor) -> dict[str, Tensor]:
    """Means of λ_ε and λ, and the share of certain pseudo-labels; for methods that mix by uncertainty."""
    if about.certainty is None or about.ratio is None:
        return {}
    certainty = about.certainty(uncertainty)
    ratio = about.ratio(uncertainty, torch.full_like(certainty, 0.5))  # the mean of a uniform draw
    certain = (certainty > about.threshold).float()
    return {"lambda_uncertainty": certainty.mean(), "lambda": ratio.mean(), "certain": certain.mean()}


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str = "") -> None:
        now = time.perf_counter()
        if name:
            self.laps[name] = max(0.0, now - self._last)  # a clock may jump back
        self._last = now
