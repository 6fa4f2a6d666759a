"""The same steps, faster on CUDA: losses compiled, a whole step (draws to optimizer) replayed as one CUDA graph.

There is no maths here. A step reads its row numbers from a table by a counter on the device and writes its losses into
another, so an epoch is a sequence of launches without a host sync.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proud.files import open_own
from proud.machine import Stopped
from proud.methods.base import LossFunction, Method, Stage
from proud.randomness import Draws, Randomness, raw_sizes, shape_draws
from proud.training.loop import Epochs, plain_epoch
from proud.training.memory import is_out_of_memory

WARM_UP_STEPS = 3
LOOK_UP_EVERY = 16  # steps between looks at signals and the progress bar


@dataclass(frozen=True)
class CapturedStage:
    """A stage's step as a graph, with the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    rows: dict[str, Tensor]
    raw: tuple[Tensor, Tensor]
    counter: Tensor
    losses: dict[str, Tensor]


class FastEpochs(Epochs):
    """Runs epochs like `plain_epoch`. If the compiler fails, or capturing, it warns and does without."""

    def __init__(self, method: Method, compile_losses: bool = True) -> None:
        super().__init__()
        self.method = method
        self.compile_losses = compile_losses
        self.captured: dict[str, CapturedStage | None] = {}
        allow_many_versions()

    def note(self, stage: Stage) -> str:
        if stage.name in self.captured or not self.compile_losses:
            return ""
        return "compiling the step (minutes the first time, less later)"

    def __call__(
        self,
        method: Method,
        stage: Stage,
        rows: dict[str, Tensor],
        random: Randomness,
        after_step: Callable[[int], None],
    ) -> dict[str, Tensor]:
        if stage.name not in self.captured:
            self.captured = {stage.name: self._try_to_capture(stage, rows)}  # drops the graph of a finished stage
        step = self.captured[stage.name]
        if step is None:
            return plain_epoch(method, stage, rows, random, after_step)
        wanted = method.draws(stage)
        for name, table in rows.items():
            step.rows[name].copy_(table)
        step.counter.zero_()
        for number in range(stage.steps):
            random.raw(wanted, out=step.raw)
            step.graph.replay()
            if number % LOOK_UP_EVERY == LOOK_UP_EVERY - 1 or number == stage.steps - 1:
                after_step(number)
        return {name: values.clone() for name, values in step.losses.items()}

    def _try_to_capture(self, stage: Stage, rows: dict[str, Tensor]) -> CapturedStage | None:
        reason = "the images do not fit on the device"
        for compile_losses in (True, False) if self.compile_losses else (False,):
            if not self.method.context.labeled.resident:
                break
            try:
                return self._capture(stage, rows, compile_losses)
            except Exception as error:
                reraise_stop(error)
                reason = in_one_line(error)
                torch.cuda.synchronize()
            if compile_losses:
                warnings.warn(f"steps of stage {stage.name} are not compiled: {reason}", stacklevel=2)
        warnings.warn(f"plain steps in stage {stage.name}: {reason}", stacklevel=2)
        return None

    def _capture(self, stage: Stage, rows: dict[str, Tensor], compile_losses: bool) -> CapturedStage:
        method, device = self.method, self.method.context.device
        wanted = method.draws(stage)
        uniform, normal = raw_sizes(wanted)
        raw = (torch.rand(uniform, device=device), torch.randn(normal, device=device))
        tables = {name: table.clone() for name, table in rows.items()}
        counter = torch.zeros(1, dtype=torch.int64, device=device)
        saved = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        losses = compiled_losses(method, stage) if compile_losses else method.losses
        turn = turn_to_compile() if compile_losses else nullcontext()

        def step() -> dict[str, Tensor]:
            chosen = {name: table.index_select(0, counter)[0] for name, table in tables.items()}
            return method.step(stage, chosen, shape_draws(wanted, *raw), losses)

        try:
            with turn:
                return self._record(step, stage, raw, tables, counter)
        finally:
            restore(method, saved)

    def _record(
        self,
        step: Callable[[], dict[str, Tensor]],
        stage: Stage,
        raw: tuple[Tensor, Tensor],
        tables: dict[str, Tensor],
        counter: Tensor,
    ) -> CapturedStage:

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                found = step()
        torch.cuda.current_stream().wait_stream(side)
        losses = {name: torch.zeros(stage.steps, device=counter.device) for name in found}
        for optimizer in self.method.optimizers().values():
            optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other runs may use the device
            for name, value in step().items():
                losses[name].index_copy_(0, counter, value.float().reshape(1))
            counter += 1
        return CapturedStage(graph, tables, raw, counter, losses)


def allow_many_versions() -> None:
    """One version of compiled code per run: more than the default limit, and other runs may still use theirs."""
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 4096


@contextmanager
def turn_to_compile() -> Iterator[None]:
    """Processes on one machine compile one after another: the first fills the compiler's cache for the others."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415

    handle = None
    try:
        with suppress(OSError):  # without a lock, all compile at once
            handle = open_own(Path(cache_dir()) / "proud.lock")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def compiled_losses(method: Method, stage: Stage) -> LossFunction:
    compiled = torch.compile(partial(method.losses, stage), dynamic=False)

    def losses(stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return compiled(rows, draws)

    return losses


def compiled_or_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function; if its first call fails, the plain one, with a warning."""
    allow_many_versions()
    compiled = torch.compile(function, dynamic=False)
    chosen: list[Callable[..., Any]] = []

    def call(*inputs: Any) -> Any:
        if chosen:
            return chosen[0](*inputs)
        try:
            with turn_to_compile():
                found = compiled(*inputs)
        except Exception as error:
            reraise_stop(error)
            if is_out_of_memory(error):
                raise
            name = getattr(function, "__name__", "a function").lstrip("_")
            warnings.warn(f"{name} is not compiled: {in_one_line(error)}", stacklevel=2)
        else:
            chosen.append(compiled)
            return found
        chosen.append(function)
        return function(*inputs)  # outside the handler, which holds on to the memory of the failed call

    return call


def reraise_stop(error: Exception) -> None:
    """The compiler wraps what a signal raises in the middle of its work."""
    if isinstance(error, Stopped) or isinstance(getattr(error, "inner_exception", None), Stopped):
        raise Stopped from error


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def restore(method: Method, saved: dict[str, Tensor]) -> None:
    """Undo the warm-up in place. State that did not exist before starts from zero, as a first step would leave it."""
    with torch.no_grad():
        for name, tensor in method.state_dict().items():
            if name in saved:
                tensor.copy_(saved[name])
            else:
                tensor.zero_()
