"""Host, Origin and token are checked before anything else."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from proud.web.guard import Guard
from web.local import ADDRESS, PORT, TOKEN

BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def reached(request: object) -> PlainTextResponse:
    return PlainTextResponse("reached")


def client(host: str = "127.0.0.1", token: str = TOKEN, **headers: str) -> TestClient:
    app = Starlette(routes=[Route(path, reached, methods=["GET", "POST"]) for path in ("/", "/x", "/health")])
    guarded = Guard(app, host, PORT, token, frozenset({"/health"}))
    return TestClient(guarded, base_url=ADDRESS, headers=headers)


def test_the_token_moves_from_the_address_into_a_cookie() -> None:
    page = client()
    answer = page.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    for word in ("HttpOnly", "SameSite=strict", f"proud-{PORT}={TOKEN}"):
        assert word in answer.headers["set-cookie"]
    assert page.get("/x").text == "reached"


@pytest.mark.parametrize("path", ["/", "/x", "/unknown", "/?token=wrong", "/x?token=secret", "/?token=%ff%00"])
def test_without_the_token_nothing_is_reached(path: str) -> None:
    answer = client().get(path)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Bearer sécret", f"Basic {TOKEN}x"])
def test_wrong_headers_are_refused(given: str) -> None:
    assert client().get("/x", headers={"Authorization": given.encode()}).status_code == 401


def test_bearer_and_public_paths() -> None:
    assert client().get("/x", headers=BEARER).text == "reached"
    assert client().post("/x", headers=BEARER).text == "reached", "a program sends no Origin"
    assert client().get("/health").text == "reached"
    assert client(token="").get("/x").text == "reached"


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", f"x@127.0.0.1:{PORT}", "[::1", "a:b:c"],
)
def test_foreign_host_names_are_refused(host: str) -> None:
    """DNS rebinding: a name of the attacker's that leads to this machine."""
    assert client().get("/x", headers=BEARER | {"Host": host}).status_code == 421
    assert client().get("/health", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_our_own_names_are_accepted(host: str) -> None:
    assert client().get("/x", headers=BEARER | {"Host": host}).status_code == 200


def test_a_server_for_other_machines_answers_to_addresses_only() -> None:
    away = client(host="0.0.0.0")
    assert away.get("/x", headers=BEARER | {"Host": f"192.168.1.5:{PORT}"}).status_code == 200
    assert away.get("/x", headers=BEARER | {"Host": f"evil.example:{PORT}"}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8321", "http://127.0.0.1:1"])
def test_requests_of_other_sites_are_refused(origin: str) -> None:
    page = client()
    page.get("/", params={"token": TOKEN})
    assert page.post("/x", headers={"Origin": origin}).status_code == 403
    assert page.get("/x", headers={"Origin": origin}).status_code == 403


def test_a_change_by_cookie_needs_the_origin() -> None:
    page = client()
    page.get("/", params={"token": TOKEN})
    assert page.post("/x").status_code == 403
    assert page.post("/x", headers={"Origin": ADDRESS}).text == "reached"


def test_every_answer_has_the_headers() -> None:
    for answer in (client().get("/x"), client().get("/x", headers=BEARER), client().get("/", headers={"Host": "x"})):
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
