"""Headless Chromium, controlled over its debugging pipe with the standard library only.

Manual use: python tests/report/browser.py REPORT.html PICTURE.png --width 390 --dark
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

QUIET = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
)
# Chromium expects the ends of the pipe as file descriptors 3 and 4
AS_3_AND_4 = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execvp(c[0], c)"


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab without network access."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        commands, self.write = os.pipe()
        self.read, answers = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]
        options = (
            f"--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={self.profile.name}"
        )
        command = [sys.executable, "-c", AS_3_AND_4, *map(str, theirs), program, *options.split(), *QUIET]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (commands, answers, *theirs):
            os.close(end)
        self.buffer, self.count, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(90)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _message(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not respond")
            piece = os.read(self.read, 1 << 16)
            if not piece:
                raise RuntimeError(f"Chromium ended with {self.process.wait()}")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Returns once the page and its images are loaded."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message(60))
        # the colour scheme selects other images: wait until all are decoded
        self.evaluate("Promise.all([...document.images].map(i => i.decode().catch(() => 0))).then(() => 1)")

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """URLs that were requested, except data: and about: URLs."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "about:"))]

    def complaints(self) -> list[str]:
        """Console messages and uncaught errors."""
        names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"])[:500] for event in self.events if event.get("method") in names]

    def screenshot(self, whole: bool = True, height: int = 0) -> bytes:
        clip = {}
        if height:
            size = self.call("Page.getLayoutMetrics")["cssLayoutViewport"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["clientWidth"], "height": height, "scale": 1}}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        return base64.b64decode(shot["data"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a screenshot of a page.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=0, help="pixels from the top; 0: the whole page")
    parser.add_argument("--section", default="", help="only the section with this id")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    program = find_chromium()
    if program is None:
        raise SystemExit("chromium is not installed")
    with Browser(program) as browser:
        browser.open(arguments.page, arguments.width, dark=arguments.dark)
        if arguments.section:
            others = f"header, footer, section:not(#{arguments.section})"
            browser.evaluate(f"document.querySelectorAll('{others}').forEach(e => e.remove())")
        height = arguments.height or browser.evaluate("document.documentElement.scrollHeight")
        arguments.picture.write_bytes(browser.screenshot(height=height))


if __name__ == "__main__":
    main()
