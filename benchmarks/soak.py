"""Full-size reliability tests: `make soak`, or a part of it: `python benchmarks/soak.py kills fuzz`.
`folders=100` damages fewer folders than usual.

Writes benchmarks/results/soak.json after every part; docs/internals/reliability.md shows it.
"""

from __future__ import annotations

import json
import os
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
FOLDERS = 3_600  # about six commands each
SERVED = 600  # about three commands each


def kills(place: Path) -> dict[str, Any]:
    """One run at random times: half with a checkpoint after every epoch, half with one per second."""
    from killing import Killer

    killer = Killer(place, epochs=60)
    every = killer.at_random_moments("every-epoch", 110, 0.0, seed=11)
    second = killer.at_random_moments("every-second", 50, 1.0, seed=12)
    return {
        "kills": every + second,
        "runs": killer.runs,
        "epochs": killer.epochs + 2,
        "files_compared": len(killer.whole),
        "different": 0,
    }


def command_kills(place: Path) -> dict[str, Any]:
    """Whole commands at random times, from their start to their end."""
    from commands import KILLS, Killed
    from servers import Servers

    killed = Killed(place)
    servers = Servers(killed)
    found = {"train": killed.kill_train(40), "Model.save": killed.kill_saving(40)}
    found |= {name: killed.kill(name, kills) for name, kills in KILLS.items()}
    found |= {"demo": killed.kill_demo(10), "review": servers.kill_review(16), "serve": servers.kill_serve(20)}
    return {"kills": sum(found.values()), "by_command": found, "different": 0}


def file_events(place: Path) -> dict[str, Any]:
    """The disk after every file event of a short run: what a kill leaves, and what power losses do."""
    from crashing import SmallRun

    run = SmallRun(place / "runs", epochs=2)
    kills = run.recover(run.states())
    return {"events": len(run.events), "kills": kills, "power_failures": run.recover(run.losses(3)), "different": 0}


def missing_syncs(place: Path) -> dict[str, Any]:
    """The same power losses if one sync had been left out, each in turn."""
    from crashing import SmallRun
    from disk import syncs, without

    run = SmallRun(place / "runs")
    known = [tree for _, _, tree in run.states(range(3))]
    found = covered = 0
    for place_of_sync in syncs(run.events):
        new = [state for state in run.states(range(3), without(run.events, place_of_sync)) if state[2] not in known]
        try:
            run.recover(new)
            covered += 1
        except AssertionError:
            found += 1
    return {"syncs": found + covered, "found": found, "covered_by_a_later_sync": covered}


def failing_writes(place: Path) -> dict[str, Any]:
    """Each change of a short run to its files fails once, in three ways."""
    from crashing import SmallRun
    from failing import KINDS, count_changes, fail_once

    run = SmallRun(place / "runs")
    count = count_changes(run)
    found = fail_once(run, [(at, kind) for kind in KINDS for at in range(1, count + 1)])
    return {"changes": count, **found, "not_resumable": 0, "different": 0}


def bit_flips(place: Path) -> dict[str, Any]:
    from crashing import SmallRun
    from flips import flip_finished, flip_half_done

    run = SmallRun(place / "runs")
    whole, half = flip_finished(run, 1800), flip_half_done(run, 200)
    return {"flips": whole["flips"] + half["flips"], "unnoticed": 0, "finished": whole, "half_done": half}


def bench_queue(place: Path) -> dict[str, Any]:
    from queues import kill_workers

    return kill_workers(place, kills=60)


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


def exports_and_servers(place: Path) -> dict[str, Any]:
    """The same for the commands that hand a model on."""
    return folders(place, SERVED, leaving=True)


def folders(place: Path, count: int = FOLDERS, leaving: bool = False) -> dict[str, Any]:
    """Damaged folders of runs and benches, each with every command that reads one."""
    from children import ends, start
    from folders import fuzz_into

    workers = os.cpu_count() or 1
    answers = [place / f"answer-{number}.json" for number in range(workers)]
    begun = [
        start(fuzz_into, place / str(number), range(number, count, workers), answer, leaving)
        for number, answer in enumerate(answers)
    ]
    codes = [ends(process, 10 * 3600) for process in begun]
    if not all(answer.exists() for answer in answers):
        return {"failure": f"exit codes {codes}"}
    parts = [json.loads(answer.read_text()) for answer in answers]
    found: dict[str, Any] = {name: sum((part[name] for part in parts), type(parts[0][name])()) for name in parts[0]}
    if found["bad"]:
        found["failure"] = f"{len(found['bad'])} or more, the first: {found['bad'][0]}"
    return found


PARTS: dict[str, Callable[[Path], Any]] = {
    "kills": kills,
    "command_kills": command_kills,
    "file_events": file_events,
    "missing_syncs": missing_syncs,
    "failing_writes": failing_writes,
    "bit_flips": bit_flips,
    "bench_queue": bench_queue,
    "ranks": ranks,
    "ray_workers": ray_workers,
    "faults": faults,
    "fuzz": fuzz,
    "folders": folders,
    "exports_and_servers": exports_and_servers,
}


def main(names: list[str]) -> int:
    import torch

    from proud.machine import environment

    sizes = {name.partition("=")[0]: int(name.partition("=")[2]) for name in names if "=" in name}
    asked, names = names, [name.partition("=")[0] for name in names]
    unknown = [name for name in names if name not in PARTS] + [name for name in sizes if name != "folders"]
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
                result: Any = folders(Path(place), sizes[name]) if name in sizes else PARTS[name](Path(place))
            except AssertionError as error:
                traceback.print_exc()
                result, failed = {"failure": portable(str(error), Path(place))}, True
        whole = next((each for each in asked if each.startswith(f"{name}=")), name)
        about = here | {"command": f"python benchmarks/soak.py {whole}"}
        about |= {"finished": datetime.now(UTC).isoformat(timespec="seconds")}
        about["seconds"] = round(time.monotonic() - began)
        found["parts"][name] = {"result": result, **about}
        found |= {"command": "make soak", **here}
        RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"  {about['seconds']} s: {result if not isinstance(result, list) else len(result)}", flush=True)
        failed |= isinstance(result, list) and not all(row["survived"] for row in result)
        failed |= isinstance(result, dict) and "failure" in result
        failed |= isinstance(result, dict) and any("failure" in row for row in result.values() if isinstance(row, dict))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
