"""All decoders share one memory budget, and the limits of an image's size hold before it is decoded."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proud.config import MAX_PIXELS
from proud.data import memory_budget
from proud.data.decode import BadImage, PixelFormat, decode, decode_all
from proud.data.memory_budget import BYTES_PER_PIXEL, MemoryBudget


def image_file(kind: str, width: int, height: int, mode: str = "L") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


def bmp_header(width: int, height: int) -> bytes:
    """As if an image of this size followed."""
    content = bytearray(image_file("BMP", 4, 4, "RGB"))
    content[18:26] = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return bytes(content)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height"), [(MAX_PIXELS * 1000 + 1, 1000), (1, MAX_PIXELS * 1_000_000 + 1)])
def test_one_pixel_more_than_the_limit_is_refused(width: int, height: int) -> None:
    with pytest.raises(BadImage, match="exceed the limit of 100 million"):
        decode(bmp_header(width, height), PixelFormat(8))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_limit_itself_is_not_refused() -> None:
    """Its header is accepted: the file is found to be truncated only when it is decoded."""
    with pytest.raises(BadImage, match="broken or truncated"):
        decode(bmp_header(MAX_PIXELS * 1000, 1000), PixelFormat(8))
    assert decode(image_file("PNG", 2000, 1000), PixelFormat(8, max_pixels=2)).shape == (3, 8, 8)
    with pytest.raises(BadImage, match="exceed the limit of 2 million"):
        decode(image_file("PNG", 2001, 1000), PixelFormat(8, max_pixels=2))


def test_a_small_file_that_takes_much_memory_is_refused() -> None:
    content = image_file("WEBP", 1300, 1300, "RGB")
    assert len(content) < 1000
    with pytest.raises(BadImage, match=r"decoding 1300 × 1300 pixels of WEBP takes"):
        decode(content, PixelFormat(8, max_pixels=2))
    assert decode(content, PixelFormat(8, max_pixels=3)).shape == (3, 8, 8)


def test_many_threads_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = MemoryBudget()
    monkeypatch.setattr(memory_budget, "BUDGET", budget)
    content = image_file("PNG", 1000, 600)
    images, rows, bad = decode_all([content] * 40, PixelFormat(8, max_pixels=1))
    assert len(images) == len(rows) == 40 and not bad
    assert 600_000 * BYTES_PER_PIXEL <= budget.most_taken <= 1_000_000 * BYTES_PER_PIXEL
    assert budget.taken == 0


def test_who_finds_nothing_left_waits() -> None:
    budget, order = MemoryBudget(), []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with budget.taking(8, 10):
            inside.set()
            assert leave.wait(60)
            order.append("first")

    def second() -> None:
        with budget.taking(8, 10):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"] and budget.most_taken == 8


NOISE = np.random.default_rng(0).integers(0, 256, (50, 30, 4), dtype=np.uint8)
DEEP = {
    "RGBA": Image.fromarray(NOISE),
    "LA": Image.fromarray(NOISE).convert("LA"),
    "P": Image.fromarray(NOISE).convert("RGB").quantize(9),
    "I;16": Image.fromarray(NOISE.view(np.uint32)[..., 0].astype(np.uint16)),
}


@pytest.mark.parametrize("mode", DEEP)
def test_bands_give_what_the_whole_gives(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    DEEP[mode].save(file, "PNG", **({"transparency": 3} if mode == "P" else {}))
    whole = decode(file.getvalue(), PixelFormat(24))
    monkeypatch.setattr("proud.data.decode.ROWS_PER_BAND", 7)
    assert (decode(file.getvalue(), PixelFormat(24)) == whole).all()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in /proc")
def test_fifty_megapixels_with_alpha_take_no_more_than_was_reserved(tmp_path: Path) -> None:
    """In a process of its own, without torch."""
    Image.new("LA", (10_000, 5_000)).save(tmp_path / "x.png", compress_level=1)
    text = (
        "import re, sys; from pathlib import Path; from PIL import Image; from proud.data.decode import to_rgb\n"
        "image = Image.open(sys.argv[1]); image.load(); to_rgb(image)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path / "x.png")], capture_output=True, text=True)
    assert int(done.stdout) < 50 * 1_000 * BYTES_PER_PIXEL + 400_000, done.stderr  # kB
