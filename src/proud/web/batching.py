"""Images of many requests in one pass through the network."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from proud.lazy import torch
from proud.model.answers import AnswerOptions, assess

if TYPE_CHECKING:
    from torch import Tensor

    from proud.model.predict import Model


class Batcher:
    """While the network computes, requests gather; then all of them, up to `most`, are the next batch."""

    def __init__(self, model: Model, options: AnswerOptions, most: int) -> None:
        self.model, self.options, self.most = model, options, most
        self.waiting: asyncio.Queue[tuple[Tensor, asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self.batches = 0

    async def answer(self, image: Tensor) -> dict[str, Any]:
        """For one stored uint8 image [3,S,S]."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((image, future))
        return await future

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            batch = [await self.waiting.get()]
            with suppress(asyncio.QueueEmpty):
                while len(batch) < self.most:
                    batch.append(self.waiting.get_nowait())
            self.batches += 1
            try:
                found = await anyio.to_thread.run_sync(self.assess, [image for image, _ in batch])
            except Exception as error:  # told to every request of the batch; the service goes on
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, found, strict=True):
                if not future.done():  # its client may have gone
                    future.set_result(answer)

    def assess(self, images: list[Tensor]) -> list[dict[str, Any]]:
        """Class names in place of numbers."""
        found, names = assess(self.model, torch.stack(images), self.options), self.model.classes
        found["label"] = [names[k] for k in found["label"]]
        if "set" in found:
            found["set"] = [[names[k] for k in inside] for inside in found["set"]]
        return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]
