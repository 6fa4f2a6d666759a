"""The one loop: feeds batches to a method, counts, records, evaluates and saves at epoch boundaries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from proud.data.types import Task
from proud.errors import UserError
from proud.training.evaluator import Evaluator
from proud.methods.base import Method, Stage
from proud.randomness import Randomness
from proud.training.checkpoint import Position, check_position, load_checkpoint, load_into, save_checkpoint
from proud.training.run_folder import refuse_difference, tidy
from proud.machine import Stopped
from proud.training.records import NoRecords, Records, write_pseudo_labels
from proud.training.reuse import Sharing
from proud.training.snapshot import moment_of, save_snapshot
from proud.trust.diagnosis import site_signals

LAST_EPOCHS = 5  # a run's score is the mean over these
CHECKPOINT_SECONDS = 1.0  # epochs shorter than this share a checkpoint
BEFORE = "loop.before/"  # the loop's own tensors in a checkpoint


@dataclass(frozen=True)
class Progress:
    """Told to whoever watches: before every epoch (`step` 0), after every step, and after every epoch (`record`)."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    record: dict[str, Any] | None = None
    note: str = ""
    """why nothing moves for a while"""


def plain_epoch(
    method: Method, stage: Stage, rows: dict[str, Tensor], random: Randomness, after_step: Callable[[int], None]
) -> dict[str, Tensor]:
    """All steps of an epoch, one after another. Returns each loss as a [steps] tensor."""
    wanted, group = method.draws(stage), method.context.group
    history: dict[str, list[Tensor]] = {}
    for step in range(stage.steps):
        batch = {name: chosen[step] for name, chosen in rows.items()}
        draws = group.part_of_draws(wanted, random.draws(wanted))
        for name, loss in method.step(stage, batch, draws).items():
            history.setdefault(name, []).append(loss)
        after_step(step)
    return {name: torch.stack(losses) for name, losses in history.items()}


class Loop:
    def __init__(
        self,
        method: Method,
        task: Task,
        folder: Path,
        config: dict[str, Any],
        *,
        eval_every: int = 1,
        run_epoch: Callable[..., dict[str, Tensor]] = plain_epoch,
        watch: Callable[[Progress], None] = lambda progress: None,
        should_stop: Callable[[], bool] = lambda: False,
        sharing: Sharing | None = None,
    ) -> None:
        context = method.context
        self.method, self.task, self.folder, self.config = method, task, folder, config
        self.group = context.group
        self.writes = self.group.rank == 0  # one process alone
        self.eval_every, self.run_epoch, self.watch, self.should_stop = eval_every, run_epoch, watch, should_stop
        self.random = Randomness(context.seed, context.device)
        self.evaluator = Evaluator(task.evaluation, context.spec, context.device, context.precision)
        keep = Records if self.writes else NoRecords
        self.records, self.timings = keep(folder / "records.jsonl"), keep(folder / "timings.jsonl")
        self.position = Position()
        self.stages = method.stages()
        self.sharing = sharing
        self.shown_again: dict[str, str] = {}  # whose training this is, where another run's is shown again
        self._saved_at = -math.inf
        self._before: dict[str, Tensor] = {}  # each domain's pseudo-labels of the epoch before
        self._class_mixes = method.plausible_mixes()

    def restore(self) -> None:
        """Go back to the newest intact checkpoint, or to the very start when there is none."""
        self.position = Position(**self.group.from_first(self._restore))
        self.group.share_state(self.method)
        if self.sharing is not None and self.position == Position():
            self.sharing.begin(self)

    def _restore(self) -> dict[str, int]:
        tidy(self.folder)
        found = load_checkpoint(self.folder / "checkpoints")
        if found is not None:
            state, self.position, config = found
            refuse_difference(self.folder, config, self.config)
            check_position(self.position, self.stages, self.folder)
            load_into(self.method, state, self.folder)
            self._before = {
                key.removeprefix(BEFORE): labels.to(self.method.context.device)
                for key, labels in state.items()
                if key.startswith(BEFORE)
            }
        for file in (self.records, self.timings):
            file.cut(self.position.records)
        return asdict(self.position)

    def run(self) -> list[dict[str, Any]]:
        """Train to the end; returns all records."""
        while self.position.stage < len(self.stages):
            stage = self.stages[self.position.stage]
            while self.position.epoch < stage.epochs:
                self._epoch(stage, self.position.epoch)
            self.position = Position(self.position.stage + 1, 0, self.position.records)
        return self.records.read()

    def _epoch(self, stage: Stage, epoch: int) -> None:
        method, random = self.method, self.random
        started = time.perf_counter()
        note = self.run_epoch.note_before(stage) if hasattr(self.run_epoch, "note_before") else ""
        self.watch(Progress(stage.name, epoch + 1, stage.epochs, 0, stage.steps, note=note))
        random.begin_epoch(stage.name, epoch)
        with method.context.unlabeled.during(stage):
            method.begin_epoch(stage, epoch, random)
        labeled = time.perf_counter()
        last_stage = stage is self.stages[-1]
        moment = moment_of(epoch, stage.epochs) if last_stage and self.writes else None
        if moment:
            path = self.folder / "snapshots" / f"{moment}.safetensors"
            save_snapshot(path, method, self.task, self.evaluator, random)
        if moment == "last":
            write_pseudo_labels(self.folder / "pseudo_labels.csv", method.pseudo_labels(), self.task)
        record: dict[str, Any] = {"stage": stage.name, "epoch": epoch + 1, "step": stage.steps}
        record |= {"domains": self._domains()} if method.pseudo_labels() and self.writes else {}

        def after_step(step: int) -> None:
            if self.group.any(self.should_stop()):
                raise Stopped
            self.watch(Progress(stage.name, epoch + 1, stage.epochs, step + 1, stage.steps))

        rows = {
            name: self.group.part(random.rows(name, population, stage.steps, method.config.batch_size), 1).to(
                method.context.device
            )
            for name, population in stage.pools.items()
        }
        trained = time.perf_counter()
        with method.context.unlabeled.during(stage):
            losses = self.run_epoch(method, stage, rows, random, after_step)
        losses = {name: self.group.mean(values) for name, values in losses.items()}
        record["losses"] = self._mean_losses(losses, stage, epoch)
        stepped = time.perf_counter()
        final = self.position.records >= sum(stage.epochs for stage in self.stages) - LAST_EPOCHS
        if self.writes and (final or (self.position.records + 1) % self.eval_every == 0):
            record |= self.evaluator.scores(method.network())
        record |= {"shared_with": self.shown_again} if self.shown_again else {}
        self.records.append(record)
        timing = {"begin": labeled - started, "steps": stepped - trained, "evaluation": time.perf_counter() - stepped}
        self.timings.append({"stage": stage.name, "epoch": epoch + 1, **timing})
        self.position = Position(self.position.stage, epoch + 1, self.position.records + 1)
        if self.sharing is not None:
            self.sharing.after_epoch(self)  # before the checkpoint: a run that stands later has kept what it shares
        ended = last_stage and epoch + 1 == stage.epochs
        recent = 0 <= time.monotonic() - self._saved_at < CHECKPOINT_SECONDS  # a clock may jump back
        if self.writes and not self.shown_again and (ended or not recent):
            before = {f"{BEFORE}{name}": labels for name, labels in self._before.items()}
            save_checkpoint(self.folder / "checkpoints", method.state_dict() | before, self.position, self.config)
            self._saved_at = time.monotonic()
        self.watch(Progress(stage.name, epoch + 1, stage.epochs, stage.steps, stage.steps, record))

    def _mean_losses(self, losses: dict[str, Tensor], stage: Stage, epoch: int) -> dict[str, float]:
        wrong = (~torch.isfinite(losses["loss"])).nonzero().flatten().tolist()
        if wrong:
            self._diverged(f"The loss became {losses['loss'][wrong[0]].item()}", stage, epoch, wrong[0])
        weights = torch.stack([weight.isfinite().all() for weight in self.method.network().parameters()])
        if not weights.all():
            self._diverged("The weights became infinite or not a number", stage, epoch, stage.steps - 1)
        return {name: values.float().mean().item() for name, values in losses.items()}

    def _diverged(self, what: str, stage: Stage, epoch: int, step: int) -> NoReturn:
        if not self.writes:
            raise SystemExit(2)  # every process sees it; one tells
        kept = self.folder / "checkpoints"
        last = f" The last good checkpoint is kept in {kept}." if kept.is_dir() else ""
        raise UserError(
            f"{what} in stage {stage.name}, epoch {epoch + 1}, step {step + 1} of {stage.steps}.{last} A lower --lr "
            f"usually helps; it needs another --out than {self.folder}."
        )

    def _domains(self) -> dict[str, dict[str, float]]:
        """What each domain's pseudo-labels look like and, where true labels are known, how many are right."""
        method, known = self.method, {domain.name: domain.known for domain in self.task.training.unlabeled}
        found: dict[str, dict[str, float]] = {}
        for name, pseudo in method.pseudo_labels().items():
            row = {"uncertainty": pseudo.uncertainty.mean()} | method.signals(pseudo)
            row |= site_signals(pseudo, self._class_mixes, method.merged_prototypes(), self._before.get(name))
            self._before[name] = pseudo.labels.clone()
            values = torch.stack([value.float() for value in row.values()]).tolist()  # one wait for the device
            found[name] = dict(zip(row, values, strict=True)) | self.evaluator.audit(name, pseudo, known.get(name))
        return found
