"""Chromium by selenium, without any network but the server under test.

Manual use: python tests/web/chrome.py URL PICTURE.png --width 390 --height 844 --dark
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
PATIENCE = 150  # seconds: a busy machine is slow, never wrong


def missing() -> str:
    """What is not installed; empty if nothing is."""
    lacking = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    return f"{' and '.join(lacking)} missing: apt-get install chromium chromium-driver" if lacking else ""


@contextmanager
def chrome(width: int = 1280, height: int = 860, dark: bool = False) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in ARGUMENTS:
        options.add_argument(argument)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        resize(driver, width, height, dark)
        yield driver
    finally:
        driver.quit()


def resize(driver: webdriver.Chrome, width: int, height: int, dark: bool = False) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def open_page(driver: webdriver.Chrome, url: str) -> None:
    driver.get(url)
    until(driver, "document.documentElement.dataset.ready === 'yes'")


def until(driver: webdriver.Chrome, expression: str) -> None:
    """Wait until it is true in the page."""
    WebDriverWait(driver, PATIENCE, poll_frequency=0.02).until(
        lambda page: page.execute_script(f"return Boolean({expression})"), expression
    )


IMAGES_LOADED = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a screenshot of a page of `proud review` or `proud serve`.")
    parser.add_argument("url")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=860)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--keys", default="", help="keys to press in the grid first, as in 1234")
    arguments = parser.parse_args()
    with chrome(arguments.width, arguments.height, arguments.dark) as driver:
        open_page(driver, arguments.url)
        for key in arguments.keys:
            driver.switch_to.active_element.send_keys(key)
            until(driver, "!document.querySelector('.saving')")
        until(driver, IMAGES_LOADED)
        driver.save_screenshot(str(arguments.picture))


if __name__ == "__main__":
    main()
