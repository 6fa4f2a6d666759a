"""Full-size reliability tests: `make soak`, or a part of it: `python benchmarks/soak.py kills fuzz`.

Writes benchmarks/results/soak.json after every part; docs/reliability.md shows it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "reliability")]

RESULT = ROOT / "benchmarks" / "results" / "soak.json"
CASES = {
    "images": 10_000,
    "models": 1_000,
    "checkpoints": 1_000,
    "run folders": 700,
    "CSV tables": 700,
    "bench results": 700,
}


def kills(place: Path) -> dict[str, Any]:
    """Fifty random times: half with a checkpoint after every epoch, half with one per second."""
    from killing import Killer

    killer = Killer(place, epochs=60)
    every = killer.at_random_moments("every-epoch", 25, 0.0, seed=11)
    second = killer.at_random_moments("every-second", 25, 1.0, seed=12)
    return {
        "kills": every + second,
        "runs": killer.runs,
        "epochs": killer.epochs + 2,
        "files_compared": len(killer.whole),
        "different": 0,
    }


def file_events(place: Path) -> dict[str, Any]:
    """Every file operation of a short run, once with a kill and once with a power failure."""
    from killing import Killer

    killer = Killer(place, epochs=1)
    for at in range(1, killer.events + 1):
        for power_loss in (False, True):
            killer.at_event(f"event-{at}-{power_loss}", at, power_loss)
            shutil.rmtree(place / f"event-{at}-{power_loss}")
    return {"events": killer.events, "kills": killer.events, "power_failures": killer.events, "different": 0}


def bench_queue(place: Path) -> dict[str, Any]:
    from queues import kill_workers

    return kill_workers(place, kills=30)


def ranks(place: Path) -> dict[str, Any]:
    from far import kill_ranks

    return kill_ranks(place, kills=6)


def ray_workers(place: Path) -> dict[str, Any]:
    from far import kill_ray_workers

    return kill_ray_workers(place, kills=6)


def faults(place: Path) -> list[dict[str, Any]]:
    from damage import DAMAGE
    from faults import FAULTS
    from mounts import MOUNTED, can_mount
    from undisturbed import Site

    site = Site(place / "site")
    every = FAULTS | DAMAGE | (MOUNTED if can_mount(place / "try") else {})
    rows = []
    for number, (name, fault) in enumerate(every.items()):
        began = time.monotonic()
        row: dict[str, Any] = {"fault": name, "survived": True}
        try:
            row["said"] = portable(fault(site, place / f"fault-{number}"), place)
        except Exception as error:
            row |= {"survived": False, "said": f"{type(error).__name__}: {portable(str(error), place)[:500]}"}
            traceback.print_exc()
        rows.append(row | {"seconds": round(time.monotonic() - began, 1)})
        print(f"  {'survived' if row['survived'] else 'NOT SURVIVED'}: {name}", flush=True)
    return rows


def portable(text: str, place: Path) -> str:
    return text.replace(str(place), "…")


def fuzz(place: Path) -> dict[str, Any]:
    from children import ends, start
    from hostile import fuzz_into

    found = {}
    for number, (kind, cases) in enumerate(CASES.items()):
        answer = place / f"answer-{number}.json"
        code = ends(start(fuzz_into, kind, cases, place / str(number), answer), 1200)
        found[kind] = json.loads(answer.read_text()) if answer.exists() else {"failure": f"exit code {code}"}
        print(f"  {kind}: {found[kind]}", flush=True)
    return found


PARTS: dict[str, Callable[[Path], Any]] = {
    "kills": kills,
    "file_events": file_events,
    "bench_queue": bench_queue,
    "ranks": ranks,
    "ray_workers": ray_workers,
    "faults": faults,
    "fuzz": fuzz,
}


def main(names: list[str]) -> int:
    import torch

    from proud.machine import environment

    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}")
        return 2
    here = environment(torch.device("cpu"))  # before the results file changes
    found = json.loads(RESULT.read_text()) if names and RESULT.exists() else {"parts": {}}
    failed = False
    for name in names or PARTS:
        print(name, flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            try:
                result: Any = PARTS[name](Path(place))
            except AssertionError as error:
                traceback.print_exc()
                result, failed = {"failure": portable(str(error), Path(place))}, True
        about = here | {"command": f"python benchmarks/soak.py {name}"}
        about |= {"finished": datetime.now(UTC).isoformat(timespec="seconds")}
        about["seconds"] = round(time.monotonic() - began)
        found["parts"][name] = {"result": result, **about}
        found |= {"command": "make soak", **here}
        RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"  {about['seconds']} s: {result if not isinstance(result, list) else len(result)}", flush=True)
        failed |= isinstance(result, list) and not all(row["survived"] for row in result)
        failed |= isinstance(result, dict) and any("failure" in row for row in result.values() if isinstance(row, dict))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
