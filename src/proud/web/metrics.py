"""Counters of a service in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Wraps the whole application: refused requests count, too."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.within = [0] * len(BOUNDS)
        self.seconds, self.in_progress, self.images = 0.0, 0, 0

    def around(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            status, begin = 500, time.perf_counter()

            async def send_and_see(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            self.in_progress += 1
            try:
                await app(scope, receive, send_and_see)
            finally:
                self.in_progress -= 1
                self.count(status, time.perf_counter() - begin)

        return counted

    def count(self, status: int, seconds: float) -> None:
        self.answers[status] += 1
        self.seconds += seconds
        for place, bound in enumerate(BOUNDS):
            self.within[place] += seconds <= bound

    def text(self, batches: int) -> str:
        total = sum(self.answers.values())
        lines = [
            *head("requests_total", "counter", "Answered requests by status."),
            *(f'proud_requests_total{{code="{code}"}} {count}' for code, count in sorted(self.answers.items())),
            *head("request_seconds", "histogram", "Time from request to answer."),
            *(f'proud_request_seconds_bucket{{le="{b}"}} {n}' for b, n in zip(BOUNDS, self.within, strict=True)),
            f'proud_request_seconds_bucket{{le="+Inf"}} {total}',
            f"proud_request_seconds_sum {self.seconds:.6f}",
            f"proud_request_seconds_count {total}",
            *head("requests_in_progress", "gauge", "Requests that are being answered."),
            f"proud_requests_in_progress {self.in_progress}",
            *head("images_total", "counter", "Classified images."),
            f"proud_images_total {self.images}",
            *head("batches_total", "counter", "Passes through the network."),
            f"proud_batches_total {batches}",
        ]
        return "\n".join(lines) + "\n"


def head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP proud_{name} {text}", f"# TYPE proud_{name} {kind}"]
