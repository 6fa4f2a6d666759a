"""All randomness of a run: named draws from generators seeded by (seed, stage, epoch, purpose).

A method declares what it draws in a step (`Draw`); the loop makes those tensors before the step runs. Nothing depends
on neighbours, on evaluation or on the number of processes, and no generator state is ever saved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Draws = dict[str, Tensor]


@dataclass(frozen=True)
class Draw:
    """One named tensor of random numbers. `sample_dim` is the dimension that runs over the batch, if any."""

    shape: tuple[int, ...]
    kind: Literal["uniform", "normal"] = "uniform"
    sample_dim: int | None = None


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
        """Start the purpose's sequence of this epoch again."""
        self.generator(purpose).manual_seed(seed_for(self.seed, *self._epoch, purpose))

    def draw(self, purpose: str, draw: Draw) -> Tensor:
        make = torch.rand if draw.kind == "uniform" else torch.randn
        return make(draw.shape, generator=self.generator(purpose), device=self.device)

    def draws(self, wanted: dict[str, Draw]) -> Draws:
        return {purpose: self.draw(purpose, draw) for purpose, draw in wanted.items()}

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        return self.draw(purpose, Draw(shape))

    def rows(self, purpose: str, population: int, steps: int, batch_size: int) -> Tensor:
        """[steps, batch_size] row numbers: permutations of the population one after another, so batches are full."""
        generator = torch.Generator().manual_seed(seed_for(self.seed, *self._epoch, "rows", purpose))
        rounds = -(-steps * batch_size // population)
        order = torch.cat([torch.randperm(population, generator=generator) for _ in range(rounds)])
        return order[: steps * batch_size].view(steps, batch_size)
