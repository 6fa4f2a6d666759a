"""All randomness of a run: named draws from generators seeded by (seed, stage, epoch, purpose).

A method declares what it draws in a step (`Draw`); the loop makes those tensors before the step runs. Nothing depends
on other runs, on evaluation or on the number of processes, and no generator state is ever saved.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proud.lazy import ops, torch

if TYPE_CHECKING:
    from torch import Tensor

Draws = dict[str, "Tensor"]


@dataclass(frozen=True)
class Draw:
    """One named tensor of random numbers. `sample_dim` is the dimension that runs over the batch, if any.

    Kinds: uniform in [0, 1); standard normal; a permutation of range(shape[0]); Beta(parameter, parameter).
    """

    shape: tuple[int, ...]
    kind: Literal["uniform", "normal", "permutation", "beta"] = "uniform"
    sample_dim: int | None = None
    parameter: float = 1.0


def seed_for(*parts: object) -> int:
    """A 63-bit seed that differs wherever any part differs."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Randomness:
    """The generators of a run: one per purpose, seeded anew at each epoch."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self.generators: dict[str, torch.Generator] = {}
        self._epoch: tuple[str, int] = ("init", 0)

    def begin_epoch(self, stage: str, epoch: int) -> None:
        self._epoch = (stage, epoch)
        for purpose, generator in self.generators.items():
            generator.manual_seed(seed_for(self.seed, stage, epoch, purpose))

    def generator(self, purpose: str) -> torch.Generator:
        """The purpose's generator, wherever its sequence stands in this epoch."""
        if purpose not in self.generators:
            generator = torch.Generator(self.device)
            generator.manual_seed(seed_for(self.seed, *self._epoch, purpose))
            self.generators[purpose] = generator
        return self.generators[purpose]

    def rewind(self, purpose: str) -> None:
        """Restart the purpose's sequence of this epoch."""
        self.generator(purpose).manual_seed(seed_for(self.seed, *self._epoch, purpose))

    def draws(self, wanted: dict[str, Draw]) -> Draws:
        """The named draws of one step."""
        return shape_draws(wanted, *self.raw(wanted))

    def raw(self, wanted: dict[str, Draw], out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """All uniform and all normal numbers of one step, each as one flat tensor: two calls for all names."""
        uniform, normal = raw_sizes(wanted)
        return (
            torch.rand(uniform, generator=self.generator("step-uniform"), device=self.device, out=out and out[0]),
            torch.randn(normal, generator=self.generator("step-normal"), device=self.device, out=out and out[1]),
        )

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator(purpose), device=self.device)

    def rows(self, purpose: str, population: int, steps: int, batch_size: int) -> Tensor:
        """[steps, batch_size] row numbers: consecutive permutations of the population, so that batches are full."""
        generator = torch.Generator().manual_seed(seed_for(self.seed, *self._epoch, "rows", purpose))
        rounds = -(-steps * batch_size // population)
        order = torch.cat([torch.randperm(population, generator=generator) for _ in range(rounds)])
        return order[: steps * batch_size].view(steps, batch_size)

    def even_rows(self, purpose: str, sizes: Sequence[int], steps: int, batch_size: int) -> Tensor:
        """The same for groups of rows that follow one another, in turn: each batch has as many rows of each group.

        Each group's rows are consecutive permutations of it.
        """
        found = torch.empty(steps * batch_size, dtype=torch.int64)
        start = 0
        for place, size in enumerate(sizes):
            mine = found[place :: len(sizes)]
            if len(mine):
                mine.copy_(start + self.rows(f"{purpose} {place}", size, 1, len(mine))[0])
            start += size
        return found.view(steps, batch_size)


def raw_sizes(wanted: dict[str, Draw]) -> tuple[int, int]:
    normal = sum(math.prod(draw.shape) for draw in wanted.values() if draw.kind == "normal")
    return sum(math.prod(draw.shape) for draw in wanted.values()) - normal, normal


def shape_draws(wanted: dict[str, Draw], uniform: Tensor, normal: Tensor) -> Draws:
    """Cut flat random numbers into the named draws. Pure, without host sync."""
    found: Draws = {}
    places = {"uniform": 0, "normal": 0}
    for name, draw in wanted.items():
        pool = "normal" if draw.kind == "normal" else "uniform"
        start = places[pool]
        places[pool] = end = start + math.prod(draw.shape)
        numbers = (normal if pool == "normal" else uniform)[start:end].view(draw.shape)
        if draw.kind == "permutation":
            numbers = numbers.argsort()
        elif draw.kind == "beta":
            numbers = ops.beta_quantile(numbers, draw.parameter)
        found[name] = numbers
    return found
