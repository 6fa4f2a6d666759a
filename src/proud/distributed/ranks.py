"""One run on many devices: `torchrun --nproc-per-node N -m proud train …`.

Every rank makes the draws of the global batch and takes its part of them; losses are means over equal parts, so the
mean of the ranks' gradients is the gradient of the global batch. torch's DDP, which wraps a method's `losses`, computes
it during the backward pass. Only the first rank writes files.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from proud.distributed.collectives import all_reduced, gathered, is_network_error, lost_rank_errors, summed
from proud.distributed.group import ALONE, Group
from proud.errors import UserError
from proud.nets.batch_norm import sync_batch_norms
from proud.typed import parse_record

if TYPE_CHECKING:
    from proud.methods.base import LossFunction, Method, Stage
    from proud.randomness import Draws

TIMEOUT = timedelta(minutes=30)  # for a rank that hangs; one that ends is noticed at once
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def under_torchrun() -> bool:
    return all(name in os.environ for name in TORCHRUN)


def refuse_torchrun(command: str) -> None:
    if under_torchrun():
        raise UserError(f"torchrun is for `proud train`; start `proud {command}` without it.")


@contextmanager
def join(device: str) -> Iterator[Group]:
    """The group of processes that torchrun started, or this process alone."""
    if not under_torchrun():
        yield ALONE
        return
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise UserError(f"RANK={rank} is not one of {size} processes (WORLD_SIZE).")
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        torch.cuda.set_device(_own_gpu(device))
    with lost_rank_errors(), ended_by_signals():
        dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT)
        ranks = Ranks()
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Other ranks are waited for inside torch, where Python's signal handlers do not run. Nothing is written yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [
        each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _own_gpu(device: str) -> int:
    mine, here = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if device not in ("auto", "cuda"):
        raise UserError(f"--device {device}: under torchrun every process uses its own GPU; use --device cuda.")
    if here > torch.cuda.device_count():
        raise UserError(
            f"{here} processes on this machine need as many GPUs, and it has {torch.cuda.device_count()}: "
            "lower --nproc-per-node, or use --device cpu."
        )
    return mine


def check_method(group: Group, name: str, method: type[Method], batch_size: int) -> None:
    """Before any image is read: can several processes train this?"""
    if group.size == 1:
        return
    if not method.distributed:
        raise UserError(f"The method {name} runs in one process only: start it without torchrun.")
    if batch_size % group.size:
        raise UserError(
            f"--batch-size {batch_size} is not divisible by {group.size} processes: choose a multiple of {group.size}."
        )


class FromFirst(TypedDict):
    """What the first rank sends to the others; without a value it has failed."""

    value: NotRequired[Any]


class Ranks(Group):
    """The processes that torchrun started. Tensors use the device's backend, JSON values use gloo."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        self.host_group: Any = None  # torch's name for the default group
        if dist.get_backend() != "gloo":
            self.host_group = dist.new_group(backend="gloo", timeout=TIMEOUT)

    # ---- tensors

    def sum(self, value: Tensor) -> Tensor:
        return all_reduced(value)

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.size

    def all_rows(self, features: Tensor, blocks: int) -> Tensor:
        # [rank, block, row] -> [block, rank, row]: the order of the global batch
        return gathered(features).unflatten(0, (self.size, blocks, -1)).transpose(0, 1).flatten(0, 2)

    def merge(self, values: Tensor, rows: list[Tensor], count: int) -> Tensor:
        found = values.new_zeros(count)
        found[torch.cat(rows)] = values
        return self.sum(found)

    def weighted_share(self, mean: Tensor, weights: Tensor) -> Tensor:
        mine = weights.sum().to(mean.dtype)
        return mean * (mine * self.size / self.sum(mine).clamp_min(torch.finfo(mean.dtype).tiny))

    def losses(self, method: Method) -> LossFunction:
        if not method.distributed:  # a single process under torchrun
            return method.losses
        for module in method.modules().values():
            sync_batch_norms(module, summed)
        losses = Losses(method)
        # batch norms already see the global batch, so their statistics need not be broadcast
        buffers = [name for name, _ in losses.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, buffers)
        with lost_rank_errors():
            # a group of its own: gradients travel while the backward pass makes sums of its own
            return DistributedDataParallel(losses, process_group=dist.new_group(timeout=TIMEOUT))

    @contextmanager
    def step_errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not is_network_error(error):
                raise
            with lost_rank_errors():
                raise

    def broadcast_state(self, method: Method) -> None:
        state, device = method.state_dict(), method.context.device
        listed = self.from_first(lambda: [[key, str(value.dtype), list(value.shape)] for key, value in state.items()])
        received = {}
        for key, dtype, shape in listed:
            if self.rank == 0:
                value = state[key].detach().to(device).contiguous()
            else:
                value = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device)
            with lost_rank_errors():
                dist.broadcast(value, 0)
            received[key] = value
        if self.rank:
            method.load_state_dict(received)

    # ---- JSON values

    def device(self, wanted: str) -> str:
        return "cpu" if dist.get_backend() == "gloo" else f"cuda:{torch.cuda.current_device()}"

    def any(self, flag: bool) -> bool:
        found = torch.tensor(int(flag))
        with lost_rank_errors():
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.host_group)
        return bool(found)

    def from_first(self, make: Callable[[], Any]) -> Any:
        made: FromFirst = {}
        problem: UserError | None = None
        if self.rank == 0:
            try:
                made = {"value": make()}
            except UserError as error:
                problem = error
        text = json.dumps(made).encode()
        length = torch.tensor(len(text))
        with lost_rank_errors():
            dist.broadcast(length, 0, group=self.host_group)
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8) if self.rank == 0 else None
            content = torch.empty(int(length), dtype=torch.uint8) if content is None else content
            dist.broadcast(content, 0, group=self.host_group)
        if problem is not None:
            raise problem
        received = parse_record(content.numpy().tobytes(), FromFirst)
        if "value" not in received:
            raise SystemExit(2)  # the first rank reports why
        return received["value"]

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        problem: UserError | None = None
        try:
            yield
        except UserError as error:
            problem = error
        failed = torch.zeros(self.size, dtype=torch.int64)
        failed[self.rank] = problem is not None
        with lost_rank_errors():
            dist.all_reduce(failed, group=self.host_group)
        if not failed.any():
            return
        if problem is not None and self.rank == int(failed.argmax()):
            raise UserError(f"rank {self.rank}: {problem}" if self.rank else str(problem)) from problem
        raise SystemExit(2)  # the lowest rank with a problem reports it


class Losses(nn.Module):
    """A method's losses as a module that holds the network they pass through: what DDP can wrap."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.net, self.losses = method.net, method.losses

    def forward(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return self.losses(stage, rows, draws)
