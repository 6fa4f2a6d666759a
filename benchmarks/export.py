"""Exported models against the saved ones, on the CPU: `python benchmarks/export.py --pacs DIR --weights FILE`.

Trains a small network on the built-in set, and a ResNet-18 with two methods on a few images of PACS; exports each,
compares all answers with `proud predict`'s, and measures images per second of CPU time with one thread, from pixels in
memory to answers. Accuracy does not matter here. Writes benchmarks/results/export.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from PIL import Image
from table_text import RESULTS, this_command

from proud.cli import main as cli
from proud.data.embedded import embedded_catalog
from proud.machine import environment
from proud.model.answers import AnswerOptions
from proud.model.export.deployed import Deployed
from proud.model.export.parity import Program
from proud.model.export.plain_timm import read_timm
from proud.model.export.programs import named, read_torch
from proud.model.export.save import export_model
from proud.model.load import load_model
from proud.model.predict import Model

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
PER_CLASS, COMPARED, BATCH, ROUNDS = 6, 280, 32, 3


def few_images(root: Path, place: Path) -> Path:
    """The first images of each class and domain of PACS, to train on."""
    for domain in DOMAINS:
        for folder in sorted((root / "images" / domain).iterdir()):
            for path in sorted(folder.iterdir())[:PER_CLASS]:
                target = place / domain / folder.name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    return place


def compared_images(root: Path) -> list[np.ndarray]:
    """The last images of each class and domain of PACS: none of them was trained on."""
    paths = [
        path
        for domain in DOMAINS
        for folder in sorted((root / "images" / domain).iterdir())
        for path in sorted(folder.iterdir())[-COMPARED // 28 :]
    ]
    return [np.array(Image.open(path).convert("RGB")) for path in paths]


def train(data: str, folder: Path, method: str, *more: str) -> Path:
    labeled, test = ("pen", "street") if data == "embedded" else ("photo", "sketch")
    where = ["--data", data, "--labeled", labeled, "--test", test, "--out", str(folder), "--method", method]
    assert cli.run(["train", *where, *more, "--device", "cpu", "--threads", "1", "--quiet"]) == 0
    return folder


def read_onnx(path: Path, deployed: Deployed) -> Program:
    """As `proud export` does, with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda images: named(deployed, session.run(None, {"images": images}))


def programs(run: Path, model: Model, formats: tuple[str, ...], place: Path) -> Iterator[tuple[str, Program]]:
    deployed = Deployed(model, AnswerOptions())
    for kind in formats:
        out = place / f"{run.name}-{kind}"
        export_model(run, kind, out)  # type: ignore[arg-type]
        if kind == "timm":
            yield kind, read_timm(out, model)
        else:
            yield kind, (read_onnx if kind == "onnx" else read_torch)(out, deployed)


def batches(images: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Of images of one shape; the others alone."""
    by_shape: dict[tuple[int, ...], list[np.ndarray]] = {}
    for image in images:
        by_shape.setdefault(image.shape, []).append(image)
    return [np.stack(same[start : start + size]) for same in by_shape.values() for start in range(0, len(same), size)]


def difference(model: Model, program: Program, images: list[np.ndarray]) -> dict[str, Any]:
    labels, largest = 0, 0.0
    for batch in batches(images, BATCH):
        wanted = model.predict_proba(list(batch))
        found = program(batch)["probabilities"].numpy()
        labels += int((wanted.argmax(1) != found.argmax(1)).sum())
        largest = max(largest, float(np.abs(wanted - found).max()))
    return {"images": len(images), "other_labels": labels, "largest_difference": largest}


def rate(answer: Callable[[np.ndarray], Any], given: list[np.ndarray]) -> float:
    """Images per second of CPU time, the best of some rounds."""
    answer(given[0])
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        for batch in given:
            answer(batch)
        best = min(best, time.process_time() - begin)
    return sum(map(len, given)) / best


def measure(
    name: str, run: Path, formats: tuple[str, ...], images: list[np.ndarray], place: Path
) -> list[dict[str, Any]]:
    model = load_model(run, "cpu")
    alone, together = batches(images[:BATCH], 1), batches(images[: 2 * BATCH], BATCH)

    def ours(batch: np.ndarray) -> None:
        model.predict_proba(list(batch))

    rows = []
    for kind, program in (("proud", None), *programs(run, model, formats, place)):
        row: dict[str, Any] = {"model": name, "network": model.spec.name}
        row |= {"format": kind} | (difference(model, program, images) if program else {})
        answer = program or ours
        row |= {"alone_per_s": rate(answer, alone), "batch_per_s": rate(answer, together), "batch": BATCH}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pacs", type=Path, required=True, help="folder with images/DOMAIN/CLASS/*")
    parser.add_argument("--weights", required=True, help="ImageNet weights of a ResNet-18, as safetensors")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory(prefix="export-") as place:
        folder = Path(place)
        digits = train("embedded", folder / "digits", "proud", "--epochs", "3", "--pretrain-epochs", "3")
        catalog = embedded_catalog()
        images = [np.array(each) for domain in catalog.domains.values() for each in catalog.sources(domain)]
        images = [np.array(np.broadcast_to(image, (*image.shape[:2], 3))) for image in images]
        rows += measure("built-in set", digits, ("onnx", "torch"), images, folder)
        data, short = str(few_images(given.pacs, folder / "pacs")), ("--epochs", "1", "--pretrain-epochs", "1")
        net = ("--model", "resnet18", "--weights", given.weights, "--size", "224", "--batch-size", "16")
        images = compared_images(given.pacs)
        for method, formats in (("proud-plus", ("onnx", "torch")), ("proud", ("onnx", "timm"))):
            run = train(data, folder / method, method, *net, *short)
            rows += measure(f"PACS, {method}", run, formats, images, folder)
    about = {"command": this_command(), "seed": 2022, **environment(torch.device("cpu"))}
    about["versions"] |= {"onnxruntime": onnxruntime.__version__}
    (RESULTS / "export.json").write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
