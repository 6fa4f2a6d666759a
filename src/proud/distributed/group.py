"""The processes that train one network, as a method sees them: which part is mine, and sums over all parts.

`Group` itself is a single process, for which every operation is trivial. `ranks.Ranks` is the other kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from proud.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import LossFunction, Method
    from proud.randomness import Draw, Draws


class Group:
    """Ranks hold equal, consecutive parts of every batch: their mean losses average to that of the global batch."""

    rank = 0
    size = 1
    local_size = 1  # processes on this machine

    # ---- this rank's part

    def part(self, values: Tensor, dim: int = 0) -> Tensor:
        """This rank's share of a dimension that runs over the global batch."""
        share = values.shape[dim] // self.size
        return values.narrow(dim, self.rank * share, share)

    def part_of_draws(self, wanted: dict[str, Draw], draws: Draws) -> Draws:
        """Draws are made for the global batch; those of single images are cut to this rank's."""
        if self.size == 1:
            return draws
        found = {}
        for name, draw in wanted.items():
            found[name] = draws[name] if draw.sample_dim is None else self.part(draws[name], draw.sample_dim)
        return found

    def span(self, count: int) -> slice:
        """This rank's rows of any number of rows; shares differ by at most one and may be empty."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    # ---- tensors of all ranks

    def sum(self, value: Tensor) -> Tensor:
        """The sum over the ranks, the same on each. No gradient."""
        return value

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the ranks, likewise."""
        return value

    def all_rows(self, features: Tensor, blocks: int) -> Tensor:
        """Rows of the global batch from everyone's rows, with gradient. A batch is several consecutive blocks."""
        return features

    def merge(self, values: Tensor, rows: list[Tensor], count: int) -> Tensor:
        """All `count` values, of which each rank has computed those at its rows."""
        return torch.empty_like(values).index_copy_(0, torch.cat(rows), values)

    def weighted_share(self, mean: Tensor, weights: Tensor) -> Tensor:
        """Scale a weighted mean over this rank's rows, so that the ranks' average is the mean over all rows."""
        return mean

    # ---- for the loop

    def device(self, wanted: str) -> str:
        """The device of this process."""
        return wanted

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank. All ranks call this together."""
        return flag

    def losses(self, method: Method) -> LossFunction:
        """The method's losses, with gradients and batch norm over the global batch."""
        return method.losses

    def step_errors(self) -> AbstractContextManager[None]:
        """Turns a lost connection within a step into one clear error."""
        return nullcontext()

    def broadcast_state(self, method: Method) -> None:
        """Every rank continues from the state of the first."""

    def from_first(self, make: Callable[[], Any]) -> Any:
        """What the first rank makes (a JSON value), on every rank."""
        return make()

    def failing_together(self) -> AbstractContextManager[None]:
        """Work that every rank does by itself: if it fails on one, all end, and the error is reported once."""
        return nullcontext()


ALONE = Group()
