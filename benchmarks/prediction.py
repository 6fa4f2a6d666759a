"""How long a user waits for answers: start-up of the command, and prediction on a CPU beside a plain timm loop.

Usage: python benchmarks/prediction.py --out benchmarks/results/prediction.json

Start-up: `proud --help` and `proud predict` of one image, each in a process of its own; warm: median of several; cold:
the first after the kernel has dropped Python's packages from its file cache (those that other processes use stay).

Prediction: `proud predict`'s own function, decoding included, on made-up photographs; and the plain loop of a user of
timm: Pillow, timm's transform, batches, `torch.inference_mode()`, the network in its default layout. Both alternate,
with the same network and threads. On a shared machine, CPU time says more than wall time. `difference` is the largest
one between probabilities of `predict` and of that network in one pass and in its default layout.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import timm
import torch
from conventional import make_images
from PIL import Image
from table_text import this_command

from proud import ops
from proud.config import DEFAULT_BACKBONE
from proud.data.decode import decode_all
from proud.files import check_writable, write_json
from proud.machine import choose_threads, cores, environment
from proud.model.answers import AnswerOptions
from proud.model.load import load_model
from proud.model.predict import Model, predict_files
from proud.nets.models import build_net, model_spec

CLASSES = tuple("abcdefg")
BATCH = 32  # of the timm loop


def saved_model(name: str, folder: Path) -> Path:
    spec = model_spec(name, len(CLASSES))
    Model(build_net(spec), spec, CLASSES, {}, torch.device("cpu")).save(folder)
    return folder


# ---- start-up


def seconds(command: list[str]) -> dict[str, float]:
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed")
    return {"wall_s": time.perf_counter() - begin, "cpu_s": used.ru_utime + used.ru_stime}


def drop_from_file_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def start_up(model: Path, image: Path, repeats: int, cold: bool) -> list[dict[str, Any]]:
    proud = [sys.executable, "-m", "proud"]
    predict = ["predict", str(model), str(image), "--out", f"{model}.csv", "--overwrite"]
    rows = []
    for name, words in (("proud --help", ["--help"]), ("proud predict, 1 image", predict)):
        row: dict[str, Any] = {"command": name}
        if cold:
            drop_from_file_cache(Path(sysconfig.get_path("purelib")))
            row["cold"] = seconds([*proud, *words])
        seconds([*proud, *words])
        row["warm_runs"] = [seconds([*proud, *words]) for _ in range(repeats)]
        row["warm"] = {key: median(run[key] for run in row["warm_runs"]) for key in ("wall_s", "cpu_s")}
        rows.append(row)
    return rows


# ---- images per second


def timm_loop(name: str, threads: int) -> Callable[[list[Path]], None]:
    torch.set_num_threads(threads)
    network = timm.create_model(name, pretrained=False, num_classes=len(CLASSES)).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=network))

    def predict(files: list[Path]) -> None:
        labels = []
        with torch.inference_mode():
            for start in range(0, len(files), BATCH):
                images = [transform(Image.open(path).convert("RGB")) for path in files[start : start + BATCH]]
                labels += network(torch.stack(images)).softmax(1).argmax(1).tolist()

    return predict


def difference(model: Model, files: list[Path]) -> float:
    """Largest difference of a probability from the network's in one pass, in the default layout."""
    images, _, _ = decode_all(files, model.pixels)
    spec = model.spec
    net, views = model.net, ops.evaluation_view(images, spec.size, spec.mean, spec.std)
    with torch.no_grad():
        logits = net.head(net.backbone(views))
    return (model.logits(images).softmax(1) - logits.softmax(1)).abs().max().item()


def images_per_second(name: str, folder: Path, files: list[Path], repeats: int, threads: int) -> dict[str, Any]:
    model = load_model(folder, "cpu")
    theirs = timm_loop(name, threads)
    loops = {"timm": theirs, "ours": lambda paths: predict_files(model, paths, AnswerOptions())}
    runs: list[dict[str, dict[str, float]]] = []
    for loop in loops.values():
        loop(files[:BATCH])
    for _ in range(repeats):
        runs.append({})
        for label, loop in loops.items():
            wall, cpu = time.perf_counter(), time.process_time()
            loop(files)
            runs[-1][label] = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    found: dict[str, Any] = {"network": name, "images": len(files), "runs": runs}
    for key in ("wall", "cpu"):
        times = {label: median(run[label][f"{key}_s"] for run in runs) for label in loops}
        found |= {f"{label}_per_{key}_s": len(files) / value for label, value in times.items()}
        found[f"ratio_{key}"] = median(run["timm"][f"{key}_s"] / run["ours"][f"{key}_s"] for run in runs)
    return found | {"difference": difference(model, files[:BATCH])}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=[DEFAULT_BACKBONE])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="also start with an empty file cache (Linux)")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    check_writable(given.out)
    choose_threads(given.threads)
    about = environment(torch.device("cpu")) | {"threads": given.threads, "cores": cores(), "batch": BATCH, "seed": 0}
    found: dict[str, Any] = about | {"command": this_command(), "start_up": [], "prediction": []}
    with tempfile.TemporaryDirectory() as home:
        make_images(Path(home) / "images", "pacs", most=-(-given.images // 3))
        files = sorted((Path(home) / "images").rglob("*.jpg"))[: given.images]
        for name in given.networks:
            folder = saved_model(name, Path(home) / name)
            found["prediction"].append(images_per_second(name, folder, files, given.repeats, given.threads))
        found["start_up"] = start_up(folder, files[0], given.repeats, given.cold)
    write_json(given.out, found)
    for row in found["prediction"]:
        print(f"{row['network']}: {row['ratio_cpu']:.2f} times as many images per CPU second as the timm loop")
    for row in found["start_up"]:
        print(f"{row['command']}: {row['warm']['wall_s']:.2f} s, {row['warm']['cpu_s']:.2f} s of CPU time")


if __name__ == "__main__":
    main()
