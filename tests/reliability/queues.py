"""A bench whose workers are killed again and again: every job is done exactly once, with the undisturbed numbers."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from children import ends, start

from toy import write_folders

COMBOS = "a:b,a:c,b:a,b:c,c:a,d:b"


def worker(data: Path, out: Path) -> None:
    """In a child: work until nothing is left."""
    from proud.cli import bench
    from proud.cli.flags.bench import BenchArguments
    from proud.config import Machine, NetSpec, ReadSpec
    from proud.training import loop

    loop.CHECKPOINT_SECONDS = 0.0
    arguments = BenchArguments(
        name=str(data),
        out=str(out),
        methods="erm",
        seeds="1",
        combos=COMBOS,
        set=("batch_size=8",),
        epochs=6,
        pretrain_epochs=1,
        reading=ReadSpec(size=16),
        network=NetSpec(model="digits", weights="none"),
        machine=Machine(device="cpu", threads=1),
        quiet=True,
    )
    raise SystemExit(bench.run(arguments))


def results(out: Path) -> dict[tuple[str, str], Any]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    keys = [(row["labeled"], row["test"]) for row in rows]
    assert len(set(keys)) == len(keys), f"done twice: {keys}"
    names = ("test_accuracy_last", "val_accuracy_last", "epochs", "images")
    return {key: [row[name] for name in names] for key, row in zip(keys, rows, strict=True)}


def records(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("runs/*/records.jsonl"))}


def kill_workers(place: Path, kills: int, seed: int = 0, longest: float = 1.2) -> dict[str, Any]:
    """Two at a time; one of them is killed after a moment, and another takes its place."""
    data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2, "d": 3}, per_class=2)
    whole, out = place / "whole", place / "killed"
    assert ends(start(worker, data, whole)) == 0
    chance, killed, benches = random.Random(seed), 0, 1
    while killed < kills:
        pair = [start(worker, data, out) for _ in range(2)]
        time.sleep(chance.uniform(0.1, longest))
        victim = pair[chance.randrange(2)]
        was_alive = victim.is_alive()
        victim.kill()
        killed += was_alive
        if killed < kills and chance.random() < 0.7:  # mostly both, so that jobs are left half done
            other = pair[0] if victim is pair[1] else pair[1]
            killed += other.is_alive()
            other.kill()
        for process in pair:
            ends(process)
        if (out / "results.jsonl").exists() and len(results(out)) == 6 and killed < kills:
            assert results(out) == results(whole) and records(out) == records(whole)
            benches += 1
            out = place / f"killed-{benches}"
    assert ends(start(worker, data, out)) == 0
    assert results(out) == results(whole), "other numbers"
    assert records(out) == records(whole), "other records"
    return {"kills": killed, "jobs": 6 * benches, "done_twice": 0, "lost": 0, "different": 0}
