"""`proud serve`: answers as in predictions.csv, in batches; whatever else is sent gets a 4xx."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from proud.cli import main as cli
from proud.errors import UserError
from proud.model.answers import AnswerOptions
from proud.model.load import load_model
from proud.model.predict import Model
from proud.web import pages
from proud.web import service as module
from proud.web.guard import Guard
from proud.web.service import PUBLIC, Service
from web.local import ADDRESS, PORT, TOKEN

BEARER = {"Authorization": f"Bearer {TOKEN}"}
MOST_BYTES = 100_000


@pytest.fixture(scope="module")
def model(trained: Path) -> Model:
    return load_model(trained, "cpu")


def new_service(model: Model, most_requests: int = 64) -> Service:
    return Service(model, AnswerOptions(), batch=8, most_requests=most_requests, most_bytes=MOST_BYTES)


def guarded(service: Service, token: str = TOKEN):  # type: ignore[no-untyped-def]
    return service.metrics.around(Guard(service.app(), "127.0.0.1", PORT, token, PUBLIC))


@pytest.fixture
def service(model: Model) -> Service:
    return new_service(model)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(guarded(service), base_url=ADDRESS, headers=BEARER, raise_server_exceptions=False) as found:
        yield found


def test_answers_are_those_of_predict(client: TestClient, model: Model, data: Path) -> None:
    files = sorted((data / "south").rglob("*.png"))[::7]
    table = model.predict_table([str(path) for path in files])
    for row, path in enumerate(files):
        answer = client.post("/predict", content=path.read_bytes())
        assert answer.status_code == 200
        found = answer.json()
        assert found["label"] == table["label"][row]
        assert found["confidence"] == pytest.approx(table["confidence"][row], abs=1e-5)
        assert found["set"] == list(table["set"][row])
        assert found["abstain"] == table["abstain"][row]
        assert isinstance(found["warnings"], list)


def test_requests_at_once_share_batches_and_keep_their_answers(model: Model, data: Path) -> None:
    files = sorted((data / "south").rglob("*.png"))
    alone = model.predict_proba([str(path) for path in files]).max(1)
    service = new_service(model)
    with TestClient(guarded(service), base_url=ADDRESS, headers=BEARER) as client, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda path: client.post("/predict", content=path.read_bytes()).json(), files))
    np.testing.assert_allclose([one["confidence"] for one in found], alone, atol=1e-5)
    assert service.metrics.images == len(files) > service.batcher.batches


BOMB = io.BytesIO()
Image.new("1", (20_000, 20_000)).save(BOMB, "PNG")
BAD = {
    "empty": (b"", 400),
    "text": (b"hello, this is not an image", 422),
    "html": (b"<html><script>alert(1)</script></html>", 422),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'></svg>", 422),
    "zeros": (bytes(5000), 422),
    "cut": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", 422),
    "json": (b'{"image": "/etc/passwd"}', 422),
    "too long": (b"x" * (MOST_BYTES + 1), 413),
    "bomb": (BOMB.getvalue(), 422),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bodies_get_a_4xx_and_nothing_else(client: TestClient, name: str) -> None:
    body, status = BAD[name]
    answer = client.post("/predict", content=body)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert client.get("/health").status_code == 200


def test_a_body_of_unknown_length_is_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_IGNORED", 1000)
    assert client.post("/predict", content=(b"x" * 10_000 for _ in range(1000))).status_code == 413


def test_a_form_is_refused_with_a_hint(client: TestClient) -> None:
    answer = client.post("/predict", files={"file": b"x"})
    assert answer.status_code == 422
    assert "--data-binary" in answer.json()["error"]


def test_a_slow_body_is_given_up(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_FOR_BODY", 0.01)

    async def never(request: object, most: int) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(module, "read_body", never)
    assert client.post("/predict", content=b"x").status_code == 408
    assert service.in_progress == 0


def test_a_full_queue_asks_to_come_back(model: Model, data: Path) -> None:
    """The first request waits for its body until the second has been refused."""
    service, body = new_service(model, most_requests=1), next((data / "south").rglob("*.png")).read_bytes()

    async def both() -> tuple[httpx.Response, httpx.Response]:
        refused, started = asyncio.Event(), asyncio.Event()

        async def slowly():  # type: ignore[no-untyped-def]
            started.set()
            await refused.wait()
            yield body

        transport = httpx.ASGITransport(app=guarded(service))
        async with (
            service.lifespan(service.app()),
            httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=BEARER) as client,
        ):
            first = asyncio.create_task(client.post("/predict", content=slowly()))
            await started.wait()
            second = await client.post("/predict", content=body)
            refused.set()
            return await first, second

    first, second = asyncio.run(both())
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")
    assert first.status_code == 200


def test_a_failure_is_told_and_the_service_goes_on(
    client: TestClient, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = next((data / "south").rglob("*.png")).read_bytes()

    def broken(*_: object) -> None:
        raise RuntimeError("a secret path")

    with monkeypatch.context() as patch:
        patch.setattr("proud.web.batching.assess", broken)
        answer = client.post("/predict", content=body)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert client.post("/predict", content=body).status_code == 200


def test_health_metrics_and_description(client: TestClient, data: Path) -> None:
    client.post("/predict", content=next((data / "south").rglob("*.png")).read_bytes())
    client.post("/predict", content=b"")
    assert client.get("/health", headers={"Authorization": ""}).json() == {"status": "ok"}
    assert client.get("/metrics", headers={"Authorization": ""}).status_code == 401
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'proud_requests_total{code="200"} 2' in lines
    assert 'proud_requests_total{code="400"} 1' in lines
    assert 'proud_request_seconds_bucket{le="+Inf"} 4' in lines
    assert "proud_images_total 1" in lines
    assert all(line.startswith("#") or len(line.split(" ")) == 2 for line in lines)
    api = client.get("/openapi.json").json()
    assert set(api["paths"]) == {"/predict", "/health", "/metrics"}
    answered = client.post("/predict", content=next((data / "south").rglob("*.png")).read_bytes()).json()
    assert set(answered) <= set(api["components"]["schemas"]["Answer"]["properties"])
    assert "proud serve" in client.get("/").text


def test_a_dark_image_is_answered_with_a_warning(client: TestClient) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (3, 3, 3)).save(file, "PNG")
    assert any(
        "dark" in text or "black" in text
        for text in client.post("/predict", content=file.getvalue()).json()["warnings"]
    )


@pytest.mark.parametrize(("path", "method"), [("/predict", "GET"), ("/health", "POST"), ("/", "PUT")])
def test_other_methods_are_refused(client: TestClient, path: str, method: str) -> None:
    assert client.request(method, path).status_code == 405


def test_no_token_only_on_this_machine(trained: Path) -> None:
    with pytest.raises(UserError, match=r"--no-token: 0\.0\.0\.0 can be reached from other machines"):
        cli.run(["serve", str(trained), "--host", "0.0.0.0", "--no-token"])


def test_a_port_in_use_is_named(trained: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"Cannot listen on 127.0.0.1, port {port}: .* Choose another --port"):
            cli.run(["serve", str(trained), "--port", str(port)])
