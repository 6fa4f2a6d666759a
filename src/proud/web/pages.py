"""Static files of the pages, and what all endpoints share: JSON bodies of bounded size, errors as JSON."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

MOST_IGNORED = 256 << 20  # bytes of a body that is too long
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def page_routes(names: Mapping[str, str]) -> list[Route]:
    """Path → file in the folder `page`: these files and no others."""
    return [Route(path, _file(name), methods=["GET"]) for path, name in names.items()]


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    content = (files("proud.web") / "page" / name).read_bytes()
    kind = f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"

    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


async def read_body(request: Request, most: int) -> bytes:
    """413 if it is too long, stated or not."""
    stated = request.headers.get("content-length", "")
    pieces, size = [], 0
    too_long = stated.isdigit() and int(stated) > most
    async for piece in request.stream():
        size += len(piece)
        too_long = too_long or size > most
        if not too_long:
            pieces.append(piece)
        elif size > most + MOST_IGNORED:
            break
        else:
            pieces.clear()  # the rest is read and dropped: a client that is still sending would miss the answer
    if too_long:
        raise HTTPException(413, f"The body exceeds {most:,} bytes.", headers={"Connection": "close"})
    return b"".join(pieces)


async def as_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
