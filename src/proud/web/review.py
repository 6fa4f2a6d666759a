"""The application behind `proud review`: a page, images by number, and labels. Clients never name a path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar

import anyio.to_thread
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from proud.data.decode import BadImage
from proud.errors import UserError
from proud.files import json_bytes
from proud.stored import Count
from proud.typed import parse_record
from proud.web.pages import as_json, page_routes, read_body
from proud.web.thumbnails import LARGE_SIDE, Changed, Thumbnails, media_type, picture
from proud.web.views import ORDERS, SHOWN, Views

if TYPE_CHECKING:
    from starlette.requests import Request

FILES = {
    "/": "review.html",
    "/page.css": "page.css",
    "/review.css": "review.css",
    "/icon.svg": "icon.svg",
    "/review.js": "review.js",
    "/grid.js": "grid.js",
    "/details.js": "details.js",
    "/server.js": "server.js",
}
MOST_JSON = 2 << 20  # a selection of 100,000 images
PICTURES_AT_ONCE = 4
NOT_STORED = 507
Change = TypeVar("Change")


class NewLabels(TypedDict):
    """A class number for images, the model's guess for each of them, or None: no label."""

    images: Annotated[list[Count], Meta(min_length=1)]
    label: Count | Literal["guess"] | None


class Undo(TypedDict):
    """An empty object."""


class Review:
    """`command`: what to run next, once there are labels."""

    def __init__(self, views: Views, thumbnails: Thumbnails, command: str, table: str, note: str = "") -> None:
        self.views, self.thumbnails = views, thumbnails
        self.about = {"command": command, "table": table, "note": note}
        self.writing = asyncio.Lock()
        self.decoding = anyio.CapacityLimiter(PICTURES_AT_ONCE)

    def app(self) -> Starlette:
        get: dict[str, Callable[[Request], Any]] = {
            "/api/session": self.session,
            "/api/images": self.images,
            "/api/view": self.view,
            "/api/image/{row:int}": self.image,
            "/thumb/{row:int}": self.thumb,
            "/picture/{row:int}": self.large,
        }
        post = {"/api/labels": self.set_labels, "/api/undo": self.undo}
        routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()]
        routes += [Route(path, endpoint, methods=["POST"]) for path, endpoint in post.items()]
        return Starlette(routes=page_routes(FILES) + routes, exception_handlers={HTTPException: as_json})

    # ---- reading

    async def session(self, request: Request) -> Response:
        return answer(self.views.session() | self.about)

    async def images(self, request: Request) -> Response:
        return answer(await anyio.to_thread.run_sync(self.views.images))

    async def view(self, request: Request) -> Response:
        """Rows as little-endian int32: there may be many."""
        asked = request.query_params
        order, shown = asked.get("order", "suggested"), asked.get("shown", "all")
        if order not in ORDERS or shown not in SHOWN:
            raise HTTPException(400, "There is no such order or filter.")
        site, guess = number(asked.get("site", "-1")), number(asked.get("class", "-1"))
        find = partial(self.views.view, order, site, guess, asked.get("verdict", ""), shown)
        rows = await anyio.to_thread.run_sync(find)
        return Response(rows.astype("<i4").tobytes(), media_type="application/octet-stream")

    async def image(self, request: Request) -> Response:
        row = request.path_params["row"]
        if row >= len(self.views.atlas):
            raise HTTPException(404, "There is no such image.")
        return answer(await anyio.to_thread.run_sync(self.views.why, row))

    async def thumb(self, request: Request) -> Response:
        return await self._picture(request.path_params["row"], small=True)

    async def large(self, request: Request) -> Response:
        return await self._picture(request.path_params["row"], small=False)

    async def _picture(self, row: int, small: bool) -> Response:
        atlas = self.views.atlas
        if row >= len(atlas.contents):
            raise HTTPException(404, "There is no such image.")
        source, content = atlas.sources[row], atlas.contents[row]
        if small:
            make = partial(self.thumbnails.get, content, partial(picture, source, content))
        else:
            make = partial(picture, source, content, LARGE_SIDE)
        try:
            found = await anyio.to_thread.run_sync(make, limiter=self.decoding)
        except Changed:
            raise HTTPException(410, "The file has changed or is gone.") from None
        except BadImage as error:
            raise HTTPException(422, f"The image cannot be shown: {error}") from None
        headers = {"Cache-Control": "private, max-age=86400", "ETag": f'"{content[:32]}"'}
        return Response(found, media_type=media_type(found), headers=headers)

    # ---- changing

    async def set_labels(self, request: Request) -> Response:
        """The labels that changed, once they are on disk."""
        given = await read_change(request, NewLabels)
        rows, label = given["images"], given["label"]
        if max(rows) >= len(self.views.atlas):
            raise HTTPException(400, "There is no such image.")
        if isinstance(label, int) and label >= len(self.views.atlas.classes):
            raise HTTPException(400, "There is no such class.")
        return await self._change(partial(self.views.set, rows, label))

    async def undo(self, request: Request) -> Response:
        await read_change(request, Undo)
        return await self._change(self.views.undo)

    async def _change(self, act: Callable[[], list[tuple[int, int]]]) -> Response:
        async with self.writing:
            try:
                changed = await anyio.to_thread.run_sync(act)
            except UserError as error:
                raise HTTPException(NOT_STORED, str(error)) from error
            return answer({"changed": changed} | self.views.progress())


def answer(value: Any) -> Response:
    return Response(json_bytes(value), media_type="application/json")


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise HTTPException(400, "Sites and classes are numbers.") from None


async def read_change(request: Request, kind: type[Change]) -> Change:
    """Only JSON: files and forms are refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Only JSON is accepted.")
    try:
        return parse_record(await read_body(request, MOST_JSON), kind)
    except ValueError as error:
        raise HTTPException(400, f"The body is not valid: {error}") from None
