"""`proud review` and `proud serve`, killed while they start and while they answer."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from children import ends, read, wait_until
from commands import Killed
from killing import fingerprint


class Client:
    """Of a server on this machine, at the address that it has printed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.base, self.token = parts.netloc, parse_qs(parts.query)["token"][0]

    def ask(self, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """The answer as JSON. OSError or HTTPException if the server has ended."""
        connection = HTTPConnection(self.base, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return json.loads(content)
        finally:
            connection.close()


def prepare(cache: Path) -> None:
    """In the child: processes that it starts are killed together with it."""
    os.setsid()
    os.environ["XDG_CACHE_HOME"] = str(cache)


class Servers:
    def __init__(self, killed: Killed) -> None:
        self.killed, self.chance = killed, random.Random(0)
        self.ready = 0.0
        """seconds until the first server answered"""

    @contextmanager
    def running(self, argv: list[str], cache: Path) -> Iterator[tuple[Any, Path]]:
        process, log = self.killed.begin(*argv, before=partial(prepare, cache))
        try:
            yield process, log
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            assert ends(process) == -signal.SIGKILL, read(log)

    def client(self, process: Any, log: Path) -> Client:
        began = time.monotonic()
        client = Client(wait_until(lambda: address_in(read(log)), process))
        self.ready = self.ready or time.monotonic() - began
        return client

    def kill_starting(self, argv: list[str], cache: Path) -> None:
        with self.running(argv, cache) as (process, _):
            process.join(self.chance.uniform(0, self.ready))

    def during(self, act: Callable[[], Any]) -> Thread:
        """Begin a request that the kill may interrupt."""

        def tried() -> None:
            with suppress(OSError, HTTPException):
                act()

        thread = Thread(target=tried)
        thread.start()
        time.sleep(self.chance.uniform(0, 0.02))
        return thread

    def kill_review(self, kills: int) -> int:
        """Every second kill interrupts a change. A label that was acknowledged is there at the next start."""
        labels = Labels()
        argv = ["review", str(self.killed.run), "--out", str(self.killed.place / "labels.csv"), "--device", "cpu"]
        for number in range(kills + 1):
            # a new cache, or one of which a kill has left a part
            cache = self.killed.place / f"cache-{self.chance.randrange(3)}"
            if number % 2 and number < kills:
                self.kill_starting(argv, cache)
                continue
            with self.running(argv, cache) as (process, log):
                client = self.client(process, log)
                labels.compare(client.ask("/api/images")["label"])
                for _ in range(self.chance.randrange(4)):
                    labels.give(client, self.chance)
                thread = self.during(partial(labels.give, client, self.chance))
            thread.join()
        return kills

    def kill_serve(self, kills: int) -> int:
        """Every second kill interrupts an answer. The next server answers the same, and the run is as it was."""
        run, cache = self.killed.run, self.killed.place / "cache"
        before, answers = fingerprint(run), []
        image = next((self.killed.data / "b").rglob("*.png")).read_bytes()
        argv = ["serve", str(run), "--device", "cpu", "--port", "0"]
        for number in range(kills + 1):
            if number % 2 and number < kills:
                self.kill_starting(argv, cache)
                continue
            with self.running(argv, cache) as (process, log):
                client = self.client(process, log)
                predict = partial(client.ask, "/predict", image, "application/octet-stream")
                answers.append(predict())
                thread = self.during(predict)
            thread.join()
        assert all(answer == answers[0] for answer in answers), "another answer"
        assert fingerprint(run) == before
        return kills


class Labels:
    """What the server has acknowledged, and the change that a kill may have interrupted."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}
        self.asked = (-1, -1)
        self.images = 0

    def compare(self, found: list[int]) -> None:
        row, label = self.asked
        if row >= 0 and found[row] == label:
            self.known[row] = label
        assert found == [self.known.get(row, -1) for row in range(len(found))], "lost, or a label that nobody gave"
        self.images = len(found)

    def give(self, client: Client, chance: random.Random) -> None:
        self.asked = row, label = chance.randrange(self.images), chance.randrange(4)
        client.ask("/api/labels", json.dumps({"images": [row], "label": label}).encode())
        self.known[row] = label


def address_in(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.startswith("http://")), "")
