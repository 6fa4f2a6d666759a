"""Time and memory by the number of images: 32×32 files, the mapped cache, one full DaPP and 50 steps.

    python benchmarks/large_data.py --work DIR [--sizes 10000 100000 1000000]

Every phase runs in its own process. Start-up, from process start until all images are mapped, is measured five times,
with file metadata in the system's cache. Anonymous memory (RssAnon) excludes mapped files. The images are synthetic:
four kinds of stripes with noise, in four domains; 1 % are labeled. The work folder needs about 9 GB for a million
images; each size is removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SIDE = 32
FILES_PER_FOLDER = 1000
MODEL, VIEWS, STEPS, BATCH = "test_resnet", 1, 50, 64
STARTS = 5
RESULT = Path(__file__).parent / "results" / "large_data.json"


def make_images(root: Path, total: int) -> None:
    """PPM files in DIR/<domain>/<class>/<thousand>/."""
    import numpy as np

    random = np.random.default_rng(0)
    labeled = max(40, total // 100)
    counts = {"a": labeled} | dict.fromkeys("bcd", (total - labeled) // 3)
    across = np.mgrid[0:SIDE, 0:SIDE]
    clean = [(across[k % 2] // (2 + 2 * (k // 2)) % 2 * 120 + 60).astype(np.uint8)[..., None] for k in range(4)]
    for shift, (domain, count) in enumerate(counts.items()):
        for start in range(0, count, FILES_PER_FOLDER):
            folders = [root / domain / f"class {k}" / f"{start // FILES_PER_FOLDER:04d}" for k in range(4)]
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
            noise = random.integers(0, 60, (min(FILES_PER_FOLDER, count - start), SIDE, SIDE, 3), dtype=np.uint8)
            for row, pixels in enumerate(noise):
                content = b"P6 32 32 255\n" + (clean[row % 4] + pixels + 5 * shift).astype(np.uint8).tobytes()
                with (folders[row % 4] / f"{row:03d}.ppm").open("wb", buffering=0) as file:
                    file.write(content)


class Memory:
    """Peak anonymous memory in MB, sampled twenty times a second."""

    def __enter__(self) -> Memory:
        self.most, self.ended = anonymous_megabytes(), threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def look(self) -> None:
        while not self.ended.wait(0.05):
            self.most = max(self.most, anonymous_megabytes())


def anonymous_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1000


def load(data: Path, cache: Path) -> Any:
    from proud.config import RunConfig
    from proud.training.run import load as load_run

    run = RunConfig(data=str(data), labeled="a", model=MODEL, weights="none", size=SIDE)
    return load_run(run, progress=sys.stderr.isatty(), cache=str(cache))[0]


def build(data: Path, cache: Path) -> dict[str, float]:
    with Memory() as memory:
        began = time.perf_counter()
        load(data, cache)
        seconds = time.perf_counter() - began
    return {"build_seconds": round(seconds, 1), "build_megabytes": round(memory.most)}


def start(data: Path, cache: Path) -> dict[str, float]:
    """Wall time since process start, including imports, and CPU time."""
    load(data, cache)
    return {"wall": time.clock_gettime(time.CLOCK_BOOTTIME) - process_start(), "cpu": time.process_time()}


def train(data: Path, cache: Path) -> dict[str, float]:
    with Memory() as memory:
        task = load(data, cache)
        begun, dapp, steps = one_epoch(task)
    return {
        "images": sum(domain["images"] for domain in task.report["domains"].values()),
        "network_seconds": round(begun, 2),
        "dapp_seconds": round(dapp, 1),
        "steps_seconds": round(steps, 1),
        "most_megabytes": round(memory.most),
    }


def process_start() -> float:
    import os

    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def one_epoch(task: Any) -> tuple[float, float, float]:
    """Seconds for building the method, DaPP over all images, and 50 steps."""
    import torch

    from proud.methods import method_class, method_config
    from proud.methods.context import make_context
    from proud.nets.models import model_spec
    from proud.randomness import Randomness
    from proud.training.loop import plain_epoch

    torch.set_num_threads(1)
    clock = [time.perf_counter()]
    cpu, spec = torch.device("cpu"), model_spec(MODEL, len(task.training.classes), SIDE)
    context = make_context(task.training, spec, cpu, weights="none", seed=1, precision="fp32")
    method = method_class("proud")(method_config("proud", views=VIEWS, batch_size=BATCH), context)
    stage, random = method.stage_list()[-1], Randomness(1, cpu)
    random.begin_epoch(stage.name, 0)
    clock.append(time.perf_counter())
    method.begin_epoch(stage, 0, random)
    clock.append(time.perf_counter())
    short = type(stage)(stage.name, stage.epochs, STEPS, stage.pools)
    rows = {name: random.rows(name, count, STEPS, BATCH) for name, count in stage.pools.items()}
    plain_epoch(method, short, rows, random, lambda step: None)
    clock.append(time.perf_counter())
    return clock[1] - clock[0], clock[2] - clock[1], clock[3] - clock[2]


def measure(size: int, work: Path) -> dict[str, Any]:
    data, cache = work / f"images-{size}", work / f"cache-{size}"
    began = time.perf_counter()
    if not data.exists():
        make_images(data, size)
    row: dict[str, Any] = {"files": size, "make_seconds": round(time.perf_counter() - began, 1)}

    def phase(name: str) -> dict[str, float]:
        command = [sys.executable, __file__, "--work", str(work), "--phase", name, "--sizes", str(size)]
        answer: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return answer

    row |= phase("build")
    starts = [phase("start") for _ in range(STARTS)]
    for kind in ("wall", "cpu"):
        row[f"startup_{kind}_seconds"] = sorted(round(start[kind], 2) for start in starts)
    row |= phase("train")
    row["cache_megabytes"] = round(sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) / 1e6)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--phase", choices=["build", "start", "train"])
    chosen = parser.parse_args()
    if chosen.phase:
        phase = {"build": build, "start": start, "train": train}[chosen.phase]
        print(json.dumps(phase(*(chosen.work / f"{kind}-{chosen.sizes[0]}" for kind in ("images", "cache")))))
        return
    import torch

    from proud.machine import environment

    about: dict[str, Any] = {
        "command": f"python benchmarks/large_data.py --work DIR --sizes {' '.join(map(str, chosen.sizes))}"
    }
    about |= {"settings": {"model": MODEL, "size": SIDE, "views": VIEWS, "steps": STEPS, "batch": BATCH, "threads": 1}}
    about |= environment(torch.device("cpu"))  # before the results file changes
    rows = []
    for size in chosen.sizes:
        rows.append(measure(size, chosen.work))
        print(rows[-1], flush=True)
        chosen.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
        for kind in ("images", "cache"):
            shutil.rmtree(chosen.work / f"{kind}-{size}")


if __name__ == "__main__":
    main()
