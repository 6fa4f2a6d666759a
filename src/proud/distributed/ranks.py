"""One run on many devices: `torchrun --nproc-per-node N -m proud train …`.

Every rank makes the draws of the global batch and takes its part of them; losses are means over equal parts, so the
mean of the ranks' gradients is the gradient of the global batch. torch's DDP forms it while `backward` still runs: what
it wraps is a method's `losses`, of which the method knows nothing. The first rank alone writes files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from proud.errors import UserError
from proud.distributed.group import ALONE, Group
from proud.training.batchnorm import share_batch_norms
from proud.distributed.collectives import all_reduced, by_the_network, gathered, telling_of_lost_ranks

if TYPE_CHECKING:
    from proud.methods.base import Method, Stage
    from proud.randomness import Draws

TIMEOUT = timedelta(minutes=30)  # for a rank that hangs; one that ends is noticed at once
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def by_torchrun() -> bool:
    return all(name in os.environ for name in TORCHRUN)


def refuse_torchrun(command: str) -> None:
    if by_torchrun():
        raise UserError(f"torchrun is for one run, `proud train`; start `proud {command}` without it.")


@contextmanager
def join(device: str) -> Iterator[Group]:
    """The group of processes that torchrun started, or this process alone."""
    if not by_torchrun():
        yield ALONE
        return
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        torch.cuda.set_device(_own_gpu(device))
    with telling_of_lost_ranks():
        dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT)
        ranks = Ranks()
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def _own_gpu(device: str) -> int:
    mine, here = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if device not in ("auto", "cuda"):
        raise UserError(f"--device {device}: under torchrun every process takes a GPU of its own; use --device cuda.")
    if here > torch.cuda.device_count():
        raise UserError(
            f"{here} processes on this machine need as many GPUs, and it has {torch.cuda.device_count()}: "
            "lower --nproc-per-node, or use --device cpu."
        )
    return mine


def check_method(group: Group, name: str, method: type[Method], batch_size: int) -> None:
    """Before any image is read: can this run be shared?"""
    if group.size == 1:
        return
    if not method.DISTRIBUTED:
        raise UserError(f"The method {name} runs in one process only: start it without torchrun.")
    if batch_size % group.size:
        raise UserError(
            f"--batch-size {batch_size} cannot be shared by {group.size} processes: choose a multiple of {group.size}."
        )


class Ranks(Group):
    """The processes that torchrun started. Tensors travel by the device's own means, words by gloo."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        self.words: Any = None  # torch's name for the group of all, in its own backend
        if dist.get_backend() != "gloo":
            self.words = dist.new_group(backend="gloo", timeout=TIMEOUT)

    # ---- tensors

    def sum(self, value: Tensor) -> Tensor:
        return all_reduced(value)

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.size

    def gather(self, features: Tensor, blocks: int) -> Tensor:
        # [rank, block, row] -> [block, rank, row]: the order of the global batch
        return gathered(features).unflatten(0, (self.size, blocks, -1)).transpose(0, 1).flatten(0, 2)

    def place(self, values: Tensor, rows: list[Tensor], count: int) -> Tensor:
        found = values.new_zeros(count)
        found[torch.cat(rows)] = values
        return self.sum(found)

    def share_of_mean(self, mean: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            return mean
        mine = weights.sum().to(mean.dtype)
        return mean * (mine * self.size / self.sum(mine).clamp_min(torch.finfo(mean.dtype).tiny))

    def prepare(self, method: Method) -> None:
        for module in method.modules().values():
            share_batch_norms(module)
        if method.DISTRIBUTED:
            losses, step = Losses(method), method.step
            # batch norms already see the global batch, so their statistics need not travel
            buffers = [name for name, _ in losses.named_buffers()]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, buffers)
            with telling_of_lost_ranks():
                # a group of its own: gradients travel while the backward pass makes sums of its own
                shared = DistributedDataParallel(losses, process_group=dist.new_group(timeout=TIMEOUT))
            method.losses = shared  # type: ignore[method-assign]
            method.step = lambda *batch: telling(step, *batch)  # type: ignore[method-assign]

    def share_state(self, method: Method) -> None:
        state, device = method.state_dict(), method.context.device
        listed = self.from_first(lambda: [[key, str(value.dtype), list(value.shape)] for key, value in state.items()])
        received = {}
        for key, dtype, shape in listed:
            if self.rank == 0:
                value = state[key].detach().to(device).contiguous()
            else:
                value = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device)
            with telling_of_lost_ranks():
                dist.broadcast(value, 0)
            received[key] = value
        if self.rank:
            method.load_state_dict(received)

    # ---- words

    def device(self, wanted: str) -> str:
        return "cpu" if dist.get_backend() == "gloo" else f"cuda:{torch.cuda.current_device()}"

    def any(self, flag: bool) -> bool:
        found = torch.tensor(int(flag))
        with telling_of_lost_ranks():
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.words)
        return bool(found)

    def from_first(self, make: Callable[[], Any]) -> Any:
        answer: dict[str, Any] = {}
        problem: UserError | None = None
        if self.rank == 0:
            try:
                answer = {"answer": make()}
            except UserError as error:
                problem = error
        text = json.dumps(answer).encode()
        length = torch.tensor(len(text))
        with telling_of_lost_ranks():
            dist.broadcast(length, 0, group=self.words)
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8) if self.rank == 0 else None
            content = torch.empty(int(length), dtype=torch.uint8) if content is None else content
            dist.broadcast(content, 0, group=self.words)
        if problem is not None:
            raise problem
        answer = json.loads(content.numpy().tobytes())
        if "answer" not in answer:
            raise SystemExit(2)  # the first rank tells why
        return answer["answer"]

    @contextmanager
    def together(self) -> Iterator[None]:
        problem: UserError | None = None
        try:
            yield
        except UserError as error:
            problem = error
        failed = torch.zeros(self.size, dtype=torch.int64)
        failed[self.rank] = problem is not None
        with telling_of_lost_ranks():
            dist.all_reduce(failed, group=self.words)
        if not failed.any():
            return
        if problem is not None and self.rank == int(failed.argmax()):
            raise UserError(f"rank {self.rank}: {problem}" if self.rank else str(problem)) from problem
        raise SystemExit(2)  # the lowest rank with a problem tells it


class Losses(nn.Module):
    """A method's losses as a module of the network they pass through: what DDP can wrap."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.net, self.losses = method.net, method.losses

    def forward(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return self.losses(stage, rows, draws)


def telling(step: Callable[..., dict[str, Tensor]], *batch: Any) -> dict[str, Tensor]:
    """A step during which a process may be found to have gone."""
    try:
        return step(*batch)
    except RuntimeError as error:
        if not by_the_network(error):
            raise
        with telling_of_lost_ranks():
            raise
