"""The processes that train one network together, as a method sees them: which part is mine, and sums over all parts.

`Group` itself is one process alone, for which all of this is nothing. `proud.distributed.ranks` has the other kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from proud.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import Method
    from proud.randomness import Draw, Draws


class Group:
    """Ranks hold equal, consecutive parts of every batch: their mean losses average to that of the global batch."""

    rank = 0
    size = 1
    here = 1  # processes on this machine

    # ---- what is mine

    def part(self, values: Tensor, dim: int = 0) -> Tensor:
        """This rank's share of a dimension that runs over the global batch."""
        share = values.shape[dim] // self.size
        return values.narrow(dim, self.rank * share, share)

    def part_of_draws(self, wanted: dict[str, Draw], draws: Draws) -> Draws:
        """Draws are made for the global batch; what belongs to single images is cut to this rank's."""
        if self.size == 1:
            return draws
        found = {}
        for name, draw in wanted.items():
            found[name] = draws[name] if draw.sample_dim is None else self.part(draws[name], draw.sample_dim)
        return found

    def span(self, count: int) -> slice:
        """This rank's rows of any number of rows; shares differ by one at most and may be empty."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    # ---- what belongs to all

    def sum(self, value: Tensor) -> Tensor:
        """The sum over the ranks, the same on each. No gradient."""
        return value

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the ranks, likewise."""
        return value

    def gather(self, features: Tensor, blocks: int) -> Tensor:
        """Rows of the global batch from everyone's rows, with gradient. A batch is several blocks one after another."""
        return features

    def place(self, values: Tensor, rows: list[Tensor], count: int) -> Tensor:
        """All `count` values, of which each rank has found those at its rows."""
        return torch.empty_like(values).index_copy_(0, torch.cat(rows), values)

    def share_of_mean(self, mean: Tensor, weights: Tensor | None) -> Tensor:
        """A weighted mean over this rank's rows becomes its share of the one over all: averaged, they are equal."""
        return mean

    # ---- for the loop

    def device(self, wanted: str) -> str:
        """The device of this process, where the user wants that one."""
        return wanted

    def any(self, flag: bool) -> bool:
        """Is it so on any rank? All ranks ask together."""
        return flag

    def prepare(self, method: Method) -> None:
        """Gradients and batch norm over the global batch."""

    def share_state(self, method: Method) -> None:
        """Every rank goes on from what the first one holds."""

    def from_first(self, make: Callable[[], Any]) -> Any:
        """What the first rank makes (a JSON value), on every rank."""
        return make()

    def together(self) -> AbstractContextManager[None]:
        """Work that every rank does by itself: if it fails on one, all end, and the error is told once."""
        return nullcontext()


ALONE = Group()
