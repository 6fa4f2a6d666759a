"""ProUD's loss curve on a tiny fixed task, kept as a test asset.

After a deliberate change of the algorithm, make it anew and say why in the commit: `python tests/golden.py`
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from proud.config import Options
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

PATH = Path(__file__).parent / "assets" / "golden_proud.json"


def curve() -> list[dict[str, Any]]:
    """Per epoch: all losses and, per domain, mean uncertainty and mixing ratio."""
    task = toy_task(per_class=5)
    with tempfile.TemporaryDirectory() as folder:
        options = Options(out=folder, threads=1, device="cpu", quiet=True)
        train(toy_run("proud", task), toy_settings("proud", epochs=3, pretrain_epochs=2), options, task=task)
        lines = (Path(folder) / "records.jsonl").read_text().splitlines()
    kept = ("uncertainty", "lambda_uncertainty", "lambda")
    found = []
    for record in map(json.loads, lines):
        row = {"stage": record["stage"], "epoch": record["epoch"], "losses": record["losses"]}
        domains = record.get("domains", {})
        row |= {"domains": {name: {key: domain[key] for key in kept} for name, domain in domains.items()}}
        found.append(row)
    return found


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(curve(), indent=1, sort_keys=True) + "\n")
