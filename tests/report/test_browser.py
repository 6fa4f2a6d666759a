"""The report in headless Chromium, which is required if CI is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find_chromium

WORDS = """(() => {
    const found = { words: 0, broken: [] };
    for (const caption of document.querySelectorAll("figcaption, .legend li")) {
        const walker = document.createTreeWalker(caption, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            if (walker.currentNode.parentElement.closest(".path")) continue;
            for (const word of walker.currentNode.data.matchAll(/[^\\s_\\/.-]+/g)) {
                const range = document.createRange();
                range.setStart(walker.currentNode, word.index);
                range.setEnd(walker.currentNode, word.index + word[0].length);
                found.words += 1;
                if (new Set([...range.getClientRects()].map((at) => at.top)).size > 1) found.broken.push(word[0]);
            }
        }
    }
    return found;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is not installed: apt-get install chromium")
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with Browser(program) as browser:
        yield browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_renders(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [report.resolve().as_uri()]
    images = browser.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width])"
    )
    assert len(images) > 40
    assert all(complete and natural > 0 and shown > 0 for complete, natural, shown in images)
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "wider than the window"
    assert browser.evaluate("document.querySelectorAll('section').length") == 11
    assert "<script>alert(1)</script>" in browser.evaluate("document.body.innerText")
    back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 300) == dark
    chosen = browser.evaluate(
        "document.querySelector('picture img').currentSrc == document.querySelector('picture img').src"
    )
    assert chosen != dark
    assert len(browser.screenshot(whole=False)) > 10_000


@pytest.mark.parametrize("width", [1280, 390])
def test_words_of_class_names_are_not_broken(browser: Browser, report: Path, width: int) -> None:
    """A word is on one line: names continue on the next line after a separator only."""
    browser.open(report, width)
    counts = browser.evaluate(WORDS)
    assert counts["words"] > 100
    assert counts["broken"] == []


def test_errors_are_detected(browser: Browser, tmp_path: Path) -> None:
    """The checks of the other tests can fail."""
    page = tmp_path / "bad.html"
    page.write_text("<img src='https://example.org/x.png'><script>console.error('no'); throw new Error('bad')</script>")
    browser.open(page)
    assert browser.complaints()
    assert any("example.org" in url for url in browser.requests())
    assert browser.evaluate("document.images[0].naturalWidth") == 0
