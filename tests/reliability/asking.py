"""`proud serve` and `proud review` in this process, on its own address, until one or two requests are answered."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

from servers import Client

Answer = tuple[int, Any]
Run = Callable[[list[str]], Answer]


def ask_serve(run: Run, case: Path, image: Path) -> Answer:
    """What the service says about an image."""
    argv = ["serve", str(case), "--device", "cpu", "--port", "0"]
    requests = [("/predict", image.read_bytes(), "application/octet-stream")]
    return asked(run, argv, "proud.cli.serve.show_address", requests)


def ask_review(run: Run, case: Path, out: Path, cache: Path) -> Answer:
    """What the page shows of all images, and one label."""
    out.unlink(missing_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(cache)
    argv = ["review", str(case), "--out", str(out), "--device", "cpu"]
    label = json.dumps({"images": [0], "label": 0}).encode()
    requests = [("/api/images", None, ""), ("/api/labels", label, "application/json")]
    with mock.patch("proud.cli.review.apart", lambda act: act()):  # another process takes seconds to start
        return asked(run, argv, "proud.cli.review.show_address", requests)


def asked(run: Run, argv: list[str], show_address: str, requests: list[tuple[str, bytes | None, str]]) -> Answer:
    """The command's exit code and the answers. It is ended as users do it, by Ctrl-C."""
    answers: list[Any] = []

    def ask(url: str) -> None:
        try:
            client = Client(url)
            answers.extend(client.ask(*request) for request in requests)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def started(address: Any, *_: Any) -> None:
        Thread(target=ask, args=(getattr(address, "url", address),)).start()

    with mock.patch(show_address, started):
        code, _ = run(argv)
    return code, answers
