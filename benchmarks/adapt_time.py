"""What `proud predict --adapt` costs beside `proud predict`: CPU and wall time, and the peak of the memory.

Usage: python benchmarks/adapt_time.py RUN FOLDER --out benchmarks/results/adapt-time.json --data-name TEXT

Both commands classify all images of FOLDER, one after the other, each in a process of its own; start-up and decoding
are included. On a shared machine, CPU time says more than wall time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from table_text import this_command

from proud.files import write_json
from proud.machine import choose_device, cores, environment
from proud.model.load import load_model
from proud.model.predict import find_images


def used_by(words: list[str], threads: int) -> dict[str, Any]:
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "proud", *words],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"proud {words[0]} failed")
    return {
        "wall_s": round(time.perf_counter() - begin, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-name", required=True, help="description of the images")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    about = environment(choose_device("cpu"))
    result: dict[str, Any] = {"data": arguments.data_name, "images": len(find_images(arguments.folder))}
    with tempfile.TemporaryDirectory() as place:
        words = ["predict", str(arguments.run), str(arguments.folder), "--device", "cpu", "--out"]
        for name, flags in (("plain", []), ("adapted", ["--adapt"])):
            result[name] = used_by([*words, f"{place}/{name}.csv", *flags], arguments.threads)
            result[name]["cpu_ms"] = round(1000 * result[name]["cpu_s"] / result["images"], 2)
            print(name, result[name], flush=True)
    spec = load_model(arguments.run, "cpu").spec
    result |= {"network": spec.name, "size": spec.size, "threads": arguments.threads, "cores": cores()}
    result |= {"command": this_command(), **about}
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
