"""Starting a local server: its socket, its token, its address."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SECONDS_TO_FINISH = 5
MOST_CONNECTIONS = 1000


@dataclass(frozen=True)
class Address:
    """A socket that listens. `token`: empty for none."""

    socket: socket.socket
    host: str
    port: int
    token: str

    @property
    def base(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    @property
    def url(self) -> str:
        """To be opened in a browser."""
        return self.base + (f"?token={self.token}" if self.token else "")


def listen(host: str, port: int, token: bool = True) -> Address:
    """Port 0: any free one. Connections wait in the socket until the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot listen on {host}, port {port}: {why}. Choose another --port or --host.") from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it: answers are sent at once
    return Address(opened, host, opened.getsockname()[1], secrets.token_urlsafe(24) if token else "")


def run_server(app: ASGIApp, address: Address, started: Callable[[], None] = lambda: None) -> None:
    """Until Ctrl-C, which is the normal way to end it."""
    import uvicorn  # noqa: PLC0415

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
    )
    started()
    try:
        uvicorn.Server(config).run(sockets=[address.socket])
    except KeyboardInterrupt:
        pass
    finally:
        address.socket.close()


def check_installed() -> None:
    try:
        import starlette  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError(f"{error.name} is not installed: pip install 'proud[review]'") from error
