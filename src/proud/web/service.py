"""The application behind `proud serve`: an image in, JSON out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proud.data.checks import DARKEST_USABLE, too_dark
from proud.data.decode import BadImage, decode
from proud.machine import cores
from proud.text import one_line
from proud.web.batching import Batcher
from proud.web.metrics import MEDIA_TYPE, Metrics
from proud.web.openapi import description
from proud.web.pages import as_json, page_routes, read_body

if TYPE_CHECKING:
    from starlette.requests import Request
    from torch import Tensor

    from proud.model.answers import AnswerOptions
    from proud.model.predict import Model

FILES = {"/": "serve.html", "/page.css": "page.css", "/serve.css": "serve.css", "/serve.js": "serve.js"}
FILES |= {"/icon.svg": "icon.svg"}
PUBLIC = frozenset({"/health"})
SECONDS_FOR_BODY = 30.0
HINT = "Send the image file itself as the body, as in curl --data-binary @image.jpg."


class Service:
    """`most_requests`: in progress, which bounds the memory together with `most_bytes`."""

    def __init__(
        self, model: Model, options: AnswerOptions, *, batch: int, most_requests: int, most_bytes: int
    ) -> None:
        self.model, self.most_requests, self.most_bytes = model, most_requests, most_bytes
        self.batcher, self.metrics = Batcher(model, options, batch), Metrics()
        self.in_progress = 0
        self.decoding = anyio.CapacityLimiter(cores())

    def app(self) -> Starlette:
        routes = [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.measured, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]
        handlers = {HTTPException: as_json, Exception: failed}
        return Starlette(routes=page_routes(FILES) + routes, lifespan=self.lifespan, exception_handlers=handlers)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        worker = asyncio.create_task(self.batcher.run())
        try:
            yield
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def predict(self, request: Request) -> Response:
        if self.in_progress >= self.most_requests:
            raise HTTPException(503, "Too many requests in progress.", headers={"Retry-After": "1"})
        self.in_progress += 1
        try:
            image = await self.read_image(request)
            found = await self.batcher.answer(image)
        finally:
            self.in_progress -= 1
        self.metrics.images += 1
        brightest = int(image.max())
        dark = [too_dark("The image", brightest)] if 0 < brightest < DARKEST_USABLE else []
        return JSONResponse(found | {"warnings": [*self.model.warnings, *dark]})

    async def read_image(self, request: Request) -> Tensor:
        """Every problem of the body is the client's: a 4xx."""
        try:
            async with asyncio.timeout(SECONDS_FOR_BODY):
                content = await read_body(request, self.most_bytes)
        except TimeoutError:
            raise HTTPException(408, "The body did not arrive in time.") from None
        except ClientDisconnect:
            raise HTTPException(400, "The body was not sent completely.") from None
        if not content:
            raise HTTPException(400, f"The body is empty. {HINT}")
        try:
            return await anyio.to_thread.run_sync(decode, content, self.model.pixels, limiter=self.decoding)
        except BadImage as error:
            raise HTTPException(422, f"The image cannot be used: {one_line(error)}. {HINT}") from None
        except MemoryError:
            raise HTTPException(413, "The image does not fit in memory.") from None

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def measured(self, request: Request) -> Response:
        return Response(self.metrics.text(self.batcher.batches), media_type=MEDIA_TYPE)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description(self.model.classes, self.most_bytes))


async def failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The server failed; see its terminal."}, 500)
