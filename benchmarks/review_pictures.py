"""Pictures of the page of `proud review`, wide, dark and on a phone.

Usage: python benchmarks/review_pictures.py RUN docs/images, for a run on the built-in digits
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))
from chrome import IMAGES_LOADED, chrome, open_page, until
from processes import server

from proud.data.embedded import embedded_catalog

SCREENS = {
    "review.png": (1280, 860, False),
    "review-dark.png": (1280, 860, True),
    "review-phone.png": (390, 844, False),
}
FIRST_LABELS = 12
DETAILS = "document.getElementById('details')"
REASONS_SHOWN = f"{DETAILS}.hidden || {DETAILS}.dataset.row === document.querySelector('.active')?.dataset.row"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        server("review", arguments.run, "--out", f"{folder}/labels.csv") as (url, _),
    ):
        for name, (width, height, dark) in SCREENS.items():
            with chrome(width, height, dark) as driver:
                open_page(driver, url)
                if name == next(iter(SCREENS)):
                    label_some(driver)
                until(driver, f"({REASONS_SHOWN}) && {IMAGES_LOADED}")
                driver.save_screenshot(str(arguments.out / name))


def label_some(driver) -> None:  # type: ignore[no-untyped-def]
    """As someone would who knows the digits."""
    domains = embedded_catalog().domains
    for place in range(FIRST_LABELS):
        until(driver, f"document.querySelector('.active').dataset.at === '{place}' && {REASONS_SHOWN}")
        site, _, number = driver.find_element("css selector", "#details .path").text.partition(": ")
        driver.switch_to.active_element.send_keys(str(domains[site].entries[int(number)].label))
    until(driver, "!document.querySelector('.saving')")


if __name__ == "__main__":
    main()
