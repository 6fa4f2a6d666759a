"""`proud review` in Chromium, which is required if CI is set: filter, label by keyboard, undo, kill, restart, train."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from proud.data.csv_table import read_labels
from proud.model.format import read_run
from web.chrome import IMAGES_LOADED, chrome, missing, open_page, resize, until
from web.local import UNSAFE, train
from web.processes import server

PROGRESS = "[...document.querySelectorAll('.site-progress span')].map((one) => one.textContent).join()"

UNNAMED = """return [...document.querySelectorAll("button, select, input")]
    .filter((one) => !one.labels?.length && !one.textContent.trim() && !one.ariaLabel).length"""


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    if text := missing():
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    with chrome() as found:
        yield found


def press(driver: webdriver.Chrome, *keys: str) -> None:
    for key in keys:
        driver.switch_to.active_element.send_keys(key)


def progress(driver: webdriver.Chrome, wanted: str) -> None:
    """What the server has acknowledged."""
    until(driver, f"{PROGRESS} === '{wanted}'")


def test_label_by_keyboard_and_kill_the_server(
    driver: webdriver.Chrome, trained: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels.csv"
    with server("review", trained, "--out", out, "--device", "cpu") as (url, process):
        open_page(driver, url)
        assert "token" not in driver.current_url
        until(driver, IMAGES_LOADED)
        progress(driver, "0 of 20,0 of 20")
        Select(driver.find_element(By.ID, "site")).select_by_visible_text(
            next(o.text for o in driver.find_elements(By.CSS_SELECTOR, "#site option") if o.text.startswith("south"))
        )
        until(driver, "document.getElementById('count').textContent === '48 images'")
        driver.find_element(By.ID, "grid").send_keys("")
        driver.execute_script("document.getElementById('grid').focus()")
        press(driver, *"12341234123412341234")
        progress(driver, "0 of 20,20 of 20")
        press(driver, "u")
        progress(driver, "0 of 20,19 of 20")
        press(driver, Keys.ENTER)
        progress(driver, "0 of 20,20 of 20")
        press(driver, "u")
        progress(driver, "0 of 20,19 of 20")
        process.send_signal(signal.SIGKILL)
        process.wait()
        press(driver, "1")
        until(driver, "!document.getElementById('problem').hidden")
    labels = {row.path: row.label for row in read_labels(out)}
    assert len(labels) == 19
    assert all(path.startswith("south/") for path in labels)
    with server("review", trained, "--out", out, "--device", "cpu") as (url, _):
        open_page(driver, url)
        progress(driver, "0 of 20,19 of 20")
        several(driver)
        look(driver)
    assert complaints(driver) == []
    assert train(data, tmp_path / "again", "--epochs", "1", "--pretrain-epochs", "1", "--labels", str(out)) == 0
    known = read_run(tmp_path / "again")["task"]["domains"]
    assert (known["south"]["known"], known["north"]["known"]) == (19, 5)


def several(driver: webdriver.Chrome) -> None:
    """Several at once, by keyboard and by mouse; the reasons of an image."""
    Select(driver.find_element(By.ID, "site")).select_by_index(1)
    until(driver, "document.getElementById('count').textContent === '48 images'")
    driver.execute_script("document.getElementById('grid').focus()")
    arrow = webdriver.ActionChains(driver).key_down(Keys.SHIFT)
    arrow.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    assert driver.execute_script("return document.querySelectorAll('[aria-selected=true]').length") == 4
    press(driver, "2")
    progress(driver, "4 of 20,19 of 20")
    cell = driver.find_element(By.ID, "cell-5")
    cell.click()
    until(driver, "document.querySelector('#details .path')?.textContent.startsWith('north/')")
    buttons = driver.find_elements(By.CSS_SELECTOR, "#classes button")
    assert any(UNSAFE in button.text for button in buttons)
    next(button for button in buttons if UNSAFE in button.text).click()
    progress(driver, "5 of 20,19 of 20")
    press_in_grid = driver.find_element(By.ID, "grid")
    press_in_grid.send_keys("c")
    driver.switch_to.active_element.send_keys("chec", Keys.ENTER)
    progress(driver, "6 of 20,19 of 20")
    driver.find_element(By.ID, "undo").click()
    progress(driver, "5 of 20,19 of 20")


def look(driver: webdriver.Chrome) -> None:
    """Narrow and dark, with labels for screen readers, without markup from names."""
    about = driver.find_element(By.ID, "cell-0").get_attribute("aria-label")
    assert about.startswith("north, predicted ")
    assert "percent, labeled across" in about
    assert driver.execute_script("return document.querySelectorAll('b[onclick], main script').length") == 0
    assert driver.execute_script(UNNAMED) == 0
    driver.find_element(By.ID, "next").click()
    command = driver.find_element(By.ID, "command-text").text
    assert command.startswith("proud train --data ")
    assert "--labels" in command
    driver.find_element(By.ID, "copy").click()
    until(driver, "document.getElementById('copy').textContent === 'Copied'")
    press(driver, Keys.ESCAPE)
    for width, dark in ((390, True), (1280, False)):  # a page that is too wide would widen the window of a phone
        resize(driver, width, 844, dark)
        until(driver, f"innerWidth === {width}")
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        back = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 300) == dark
    until(driver, IMAGES_LOADED)


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Of the console; refused connections to the killed server are meant."""
    found = [entry["message"] for entry in driver.get_log("browser")]
    return [text for text in found if "ERR_CONNECTION_REFUSED" not in text]
