"""Near-copies: how often altered copies are found, how often other images are taken for copies, and the time it takes.

Usage: python benchmarks/near_copies.py --pacs DIR --digits DIR --out FILE

`found`: the share of altered copies that their original recognises (of about 200 images per domain). `pairs`: the
pairs that are found among all images of a domain as it is; those of PACS were looked at one by one, see docs. Digits
are measured as if they were larger, which `proud` never does. `dct`: the same by the usual perceptual hash, the signs
of 63 coefficients of a cosine transform, of which at most 10 may differ.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from PIL import Image, ImageEnhance
from scipy.fft import dctn
from table_text import this_command
from torch import Tensor

from proud.data.decode import PixelFormat, decode_all, pixels_of
from proud.data.near_copies import ALIKE, near_copies, signatures
from proud.data.walk import IMAGE_SUFFIXES
from proud.files import write_json
from proud.machine import environment

PIXELS = PixelFormat(32)
ALTERED, MANY = 200, 100_000
DIFFERENT, ROUNDING = 10, 1e-5  # bits of a hash
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1)


def altered(image: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    width, height = image.size
    for quality in (70, 40, 20):
        content = io.BytesIO()
        image.save(content, "JPEG", quality=quality)
        yield f"JPEG, quality {quality}", Image.open(content)
    yield "half the size", image.resize((width // 2, height // 2), Image.Resampling.BICUBIC)
    yield "twice the size", image.resize((2 * width, 2 * height), Image.Resampling.BICUBIC)
    yield "15 % brighter", ImageEnhance.Brightness(image).enhance(1.15)
    yield "30 % less contrast", ImageEnhance.Contrast(image).enhance(0.7)
    yield "grey", image.convert("L")
    for share in SHARES:
        x, y = round(share * width), round(share * height)
        canvas = image.copy()  # the uncovered border keeps what was there
        canvas.paste(image, (x, y))
        yield f"shifted by {share:.0%}", canvas
    for share in SHARES:
        x, y = round(share * width / 2), round(share * height / 2)
        yield f"cropped by {share:.0%}", image.crop((x, y, width - x, height - y))
    yield "mirrored", image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def dct_hashes(images: Tensor) -> Tensor:
    """Scaled so that the product of two is above `ALIKE` where at most 10 bits differ. [N,3,32,32] -> [N,63]."""
    waves = torch.tensor(dctn(images.float().mean(1).numpy(), axes=(1, 2))[:, :8, :8]).flatten(1)
    signs = torch.where(waves > waves.median(1, keepdim=True).values, 1.0, -1.0)[:, 1:]
    return signs * ((ALIKE + ROUNDING) / (63 - 2 * DIFFERENT)) ** 0.5


def measure(paths: list[Path], signs: Callable[[Tensor], Tensor]) -> dict:
    every = signs(decode_all(paths, PIXELS)[0])
    step = max(1, len(paths) // ALTERED)
    copies: dict[str, list] = {}
    for path in paths[::step]:
        with Image.open(path) as image:
            for name, copy in altered(image.convert("RGB")):
                copies.setdefault(name, []).append(pixels_of(copy))
    originals = every[::step]
    found = {}
    for name, images in copies.items():
        alike = (signs(decode_all(images, PIXELS)[0]) * originals).sum(1)
        found[name] = (alike >= ALIKE).float().mean().item()
    return {"images": len(paths), "pairs": len(near_copies(every)), "found": found}


def timing() -> dict:
    """One thread: signatures of stored images, and all pairs of so many."""
    images = torch.randint(0, 256, (512, 3, 252, 252), dtype=torch.uint8)
    signs = signatures(images)
    started = time.perf_counter()
    signatures(images)
    per_image = (time.perf_counter() - started) / len(images)
    many = torch.nn.functional.normalize(torch.randn(MANY, signs.shape[1]), dim=1)
    started = time.perf_counter()
    near_copies(many)
    return {"images": MANY, "signatures": per_image * MANY, "all_pairs": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pacs", type=Path, required=True)
    parser.add_argument("--digits", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = {}
    for data, root in (("PACS", arguments.pacs), ("Digits-DG", arguments.digits)):
        for domain in sorted(path for path in root.iterdir() if path.is_dir()):
            paths = sorted(path for path in domain.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            rows[f"{data} {domain.name}"] = measure(paths, signatures) | {"dct": measure(paths, dct_hashes)}
            print(domain.name, rows[f"{data} {domain.name}"], flush=True)
    about = environment(torch.device("cpu")) | {"command": this_command(), "seed": 0}
    write_json(arguments.out, {"alike": ALIKE, "rows": rows, "time": timing(), **about})


if __name__ == "__main__":
    main()
