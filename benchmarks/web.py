"""`proud review` with 100,000 images in Chromium, and `proud serve` under load, both on this machine.

Usage: python benchmarks/web.py RUN --work DIR --out benchmarks/results/web.json, for a run on the built-in digits

The 100,000 images are synthetic: digits of the built-in set in random colours, 32 × 32 pixels. DIR keeps them.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image
from table_text import this_command

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))
from chrome import chrome, open_page, until
from processes import peak_megabytes, server

from proud.data.embedded import embedded_catalog
from proud.files import write_json
from proud.machine import cores, environment

SEED = 2022
IMAGES = 100_000
REQUESTS, CONNECTIONS = 1_000, 16
JUMPS = 30
SCROLL_PIXELS, SCROLL_FRAMES = 60, 400  # per frame; about 3,600 pixels per second

VISIBLE = """
const visible = () => {
  const box = document.getElementById("grid")?.getBoundingClientRect();
  return [...document.querySelectorAll(".cell")].filter((cell) => {
    const at = cell.getBoundingClientRect();
    return at.bottom > box.top && at.top < box.bottom;
  });
};
const waiting = (cells) => cells.filter((cell) => !cell.querySelector("img")?.naturalWidth).length;
"""
# the time until every cell of the first screen shows its image
FIRST_SCREEN = """
const look = () => {
  const cells = visible();
  if (cells.length && !waiting(cells)) window.firstScreen = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
# in every frame: is the visible part covered by cells, and do these show their images?
SCROLL = """
const [pixels, frames, done] = arguments;
const grid = document.getElementById("grid");
const box = grid.getBoundingClientRect();
const found = { frames: 0, uncovered: 0, cells: 0, waiting: 0, most_cells: 0 };
const step = () => {
  const cells = visible();
  const places = cells.map((cell) => cell.getBoundingClientRect());
  const top = Math.min(...places.map((at) => at.top));
  const bottom = Math.max(...places.map((at) => at.bottom));
  found.frames += 1;
  found.uncovered += top > box.top + 20 || bottom < box.bottom - 20;
  found.cells += cells.length;
  found.waiting += waiting(cells);
  found.most_cells = Math.max(found.most_cells, document.querySelectorAll(".cell").length);
  if (found.frames === frames) return done(found);
  grid.scrollTop += pixels;
  requestAnimationFrame(() => requestAnimationFrame(step)); // once it is drawn
};
step();
"""
# to a place far away: milliseconds until its cells are there, and until they show their images
JUMP = """
const [share, done] = arguments;
const grid = document.getElementById("grid");
const begin = performance.now();
let covered = 0;
grid.scrollTop = share * grid.scrollHeight;
const look = () => {
  const cells = visible();
  if (cells.length && !covered) covered = performance.now() - begin;
  if (cells.length && !waiting(cells)) done([covered, performance.now() - begin]);
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def synthetic(folder: Path, count: int) -> Path:
    """Digits in random colours; no two files are equal."""
    site = folder / "many"
    last = site / f"{(count - 1) // 1000:03d}" / f"{count - 1:06d}.png"
    if last.exists():
        return site
    pixels = embedded_catalog().domains["pen"].pixels
    random = np.random.default_rng(SEED)
    for number in range(count):
        digit = np.asarray(pixels[number % len(pixels)], dtype=np.float32).mean(-1, keepdims=True) / 255
        ink, paper = random.integers(0, 256, (2, 3))
        noisy = digit * paper + (1 - digit) * ink + random.normal(0, 12, (*digit.shape[:2], 1))
        path = site / f"{number // 1000:03d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, compress_level=1)
    return site


def middle(values: list[float], digits: int = 1) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), digits) for share in (50, 95, 100)}


# ---- review


def measure_review(run: Path, work: Path, count: int) -> dict[str, Any]:
    site, table = synthetic(work, count), work / "labels.csv"
    table.unlink(missing_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    begin = time.perf_counter()
    with server("review", run, site, "--out", table, "--device", "cpu"):
        first = time.perf_counter() - begin
    begin = time.perf_counter()
    with server("review", run, site, "--out", table, "--device", "cpu") as (url, process), chrome() as driver:
        again = time.perf_counter() - begin
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VISIBLE + FIRST_SCREEN})
        driver.set_script_timeout(300)
        open_page(driver, url)
        until(driver, "window.firstScreen")
        paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
        found: dict[str, Any] = {
            "images": count,
            "seconds_to_look_at_all_images": round(first, 1),
            "seconds_to_start_again": round(again, 1),
            "first_contentful_paint_ms": round(driver.execute_script(paint)),
            "first_screen_of_images_ms": round(driver.execute_script("return window.firstScreen")),
        }
        scroll = driver.execute_async_script(VISIBLE + SCROLL, SCROLL_PIXELS, SCROLL_FRAMES)
        shares = np.random.default_rng(SEED).random(JUMPS).tolist()
        jumps = [driver.execute_async_script(VISIBLE + JUMP, share) for share in shares]
        found |= {
            "scrolling": scroll | {"pixels_per_frame": SCROLL_PIXELS},
            "jumps": {"cells_ms": middle([one[0] for one in jumps]), "images_ms": middle([one[1] for one in jumps])},
            "labels": measure_labels(url, count),
        }
        found["server_peak_megabytes"] = round(peak_megabytes(process))
    return found


def measure_labels(url: str, count: int) -> dict[str, Any]:
    """One at a time in an empty table, all at once, and one at a time in a full table."""
    base, _, token = url.partition("?token=")
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=300) as client:

        def seconds(images: list[int], label: str | None) -> float:
            begin = time.perf_counter()
            client.post("/api/labels", json={"images": images, "label": label}).raise_for_status()
            return time.perf_counter() - begin

        few = [1000 * seconds([row], "guess") for row in range(50)]
        every = seconds(list(range(count)), "guess")
        last = [1000 * seconds([row], None) for row in range(20)]
    return {"one_ms": middle(few), "all_images_seconds": round(every, 2), "one_in_a_full_table_ms": middle(last)}


# ---- serve


def measure_serve(run: Path, site: Path) -> dict[str, Any]:
    files = sorted(site.glob("000/*.png"))
    bodies = [files[number % len(files)].read_bytes() for number in range(REQUESTS)]
    with server("serve", run, "--port", 0, "--device", "cpu") as (url, process):
        base, _, token = url.partition("?token=")
        headers = {"Authorization": f"Bearer {token}"}
        asyncio.run(post_all(base, headers, bodies[: 4 * CONNECTIONS]))  # the first passes are slower
        begin = time.perf_counter()
        answers = asyncio.run(post_all(base, headers, bodies))
        seconds = time.perf_counter() - begin
        bad = measure_bad_bodies(base, headers)
        lines = httpx.get(f"{base}metrics", headers=headers).text.splitlines()
        metrics = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {
            "requests": len(answers),
            "connections": CONNECTIONS,
            "answered_200": sum(status == 200 for status, _ in answers),
            "lost": sum(status == 0 for status, _ in answers),
            "milliseconds": middle([1000 * taken for _, taken in answers]),
            "requests_per_second": round(len(answers) / seconds, 1),
            "images_per_batch": round(int(metrics["proud_images_total"]) / int(metrics["proud_batches_total"]), 2),
            "bad_bodies": bad,
            "server_peak_megabytes": round(peak_megabytes(process)),
        }


async def post_all(base: str, headers: dict[str, str], bodies: list[bytes]) -> list[tuple[int, float]]:
    """Status (0: no answer) and seconds of every request."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    slots = asyncio.Semaphore(CONNECTIONS)
    async with httpx.AsyncClient(base_url=base, headers=headers, limits=limits, timeout=120) as client:

        async def post(body: bytes) -> tuple[int, float]:
            async with slots:
                begin = time.perf_counter()
                try:
                    status = (await client.post("/predict", content=body)).status_code
                except httpx.HTTPError:
                    status = 0
                return status, time.perf_counter() - begin

        return await asyncio.gather(*map(post, bodies))


def measure_bad_bodies(base: str, headers: dict[str, str]) -> dict[str, dict[str, int]]:
    """Statuses per kind of body, from 16 connections each."""
    random = np.random.default_rng(SEED)
    image = Image.fromarray(random.integers(0, 256, (64, 64, 3)).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, "PNG")
    whole = file.getvalue()
    kinds = {
        "empty": [b""] * 100,
        "random bytes": [random.bytes(5_000) for _ in range(100)],
        "text": [b"not an image " * 50] * 100,
        "truncated PNG": [whole[:cut] for cut in random.integers(8, len(whole) - 100, 100).tolist()],
        "50 MB": [bytes(50_000_000)] * 16,
    }
    found = {}
    for name, bodies in kinds.items():
        statuses = [status for status, _ in asyncio.run(post_all(base, headers, bodies))]
        found[name] = {str(status): statuses.count(status) for status in sorted(set(statuses))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for the images")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    result = {
        "review": measure_review(arguments.run, arguments.work, arguments.images),
        "serve": measure_serve(arguments.run, arguments.work / "many"),
        "seed": SEED,
        "cores": cores(),
        "command": this_command(),
        **environment(torch.device("cpu")),
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
