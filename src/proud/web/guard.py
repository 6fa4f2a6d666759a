"""Who may talk to a local server: checks of Host, Origin and token before any request reaches the application."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = {"GET", "HEAD"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """`token`: empty for none. `public`: paths that need no token."""

    app: ASGIApp
    host: str
    port: int
    token: str
    public: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self.refuse(scope)
        await (refused or self.app)(scope, receive, send_with_headers)

    def refuse(self, scope: Scope) -> Response | None:
        """An answer in place of the application's; None lets the request pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.is_our_name(hosts[0]):
            return refusal(421, "This server does not answer under that host name.")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            return refusal(403, "Requests of other sites are refused.")
        if not self.token or scope["path"] in self.public:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and scope["method"] == "GET" and scope["path"] == "/" and self.is_token(given):
            return self.log_in()
        if self.is_token(headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        if not self.is_token(cookie(headers, self.cookie_name)):
            return refusal(401, "The token is missing or wrong: open the address that the command has printed.")
        if scope["method"] not in SAFE_METHODS and origin is None:
            return refusal(403, "A change needs the header Origin.")
        return None

    def log_in(self) -> Response:
        """The token moves from the address into a cookie: addresses end up in histories."""
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.cookie_name, self.token, httponly=True, samesite="strict", path="/")
        return answer

    def is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host."""
        return f"proud-{self.port}"

    def is_our_name(self, header: str) -> bool:
        """Names that another page can make the browser use for this address (DNS rebinding) are not ours."""
        try:
            parts = urlsplit(f"//{header}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.path or parts.query or parts.username is not None:
            return False
        if is_loopback(self.host):
            return is_loopback(name)
        return is_loopback(name) or is_address(name) or name == socket.gethostname().lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def refusal(status: int, text: str, **headers: str) -> Response:
    return JSONResponse({"error": text}, status, headers=headers)
