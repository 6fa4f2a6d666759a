"""Bugs planted one by one in a copy of the sources: which of them do the tests of CI notice?

`make planted`, or some of them by number: `python benchmarks/planted.py 3 7` renews these rows of the results file. For
each bug only the test files that are about that part are run, so the share is a lower bound. Writes
benchmarks/results/planted.json, which docs/internals/reliability.md shows; each row has its commit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "planted.json"
LIMIT = 3600  # seconds for the tests of one bug


class Bug(NamedTuple):
    kind: str
    file: str
    right: str
    wrong: str
    tests: str


BUGS = [
    Bug(
        "a file is not synced",
        "held.py",
        "                    os.fsync(handle)\n                finally",
        "                    pass\n                finally",
        "reliability/test_kills.py",
    ),
    Bug(
        "a folder entry is not synced",
        "held.py",
        "            os.fsync(self.handle())\n\n    def write_together",
        "            pass\n\n    def write_together",
        "reliability/test_kills.py",
    ),
    Bug(
        "a damaged file is believed", "manifest.py", "if Stamp.of(content) == stamp:", "if True:", "model/test_load.py"
    ),
    Bug(
        "a result with a wrong bit is believed",
        "bench/results.py",
        "list(parse_lines(content, ResultRow, FORMAT))",
        "list(parse_lines(content, ResultRow))",
        "bench/test_results.py",
    ),
    Bug(
        "weights may be NaN",
        "tensors.py",
        "if tensor.is_floating_point() and not tensor.isfinite().all():",
        "if False:",
        "reliability/test_hostile.py",
    ),
    Bug(
        "shapes are not compared",
        "tensors.py",
        "if found[name] != tuple(tensor.shape):",
        "if False:",
        "reliability/test_hostile.py",
    ),
    Bug(
        "a network is built before its file is compared",
        "model/load.py",
        "        with weights_on_meta():\n            return",
        "        if True:\n            return",
        "reliability/test_hostile.py",
    ),
    Bug("repeated keys in JSON", "typed.py", "if len(found) < len(pairs):", "if False:", "test_typed.py"),
    Bug(
        "infinite numbers in JSON",
        "typed.py",
        "if not math.isfinite(number := float(text)):",
        "number = float(text)\n    if False:",
        "test_typed.py",
    ),
    Bug(
        "epochs in any order",
        "training/records.py",
        "            check_order(found)\n",
        "",
        "training/test_checkpoint.py",
    ),
    Bug("pipes are waited for", "files.py", "if not stat.S_ISREG(about.st_mode):", "if False:", "test_typed.py"),
    Bug(
        "formulas in cells",
        "text.py",
        'valid_utf8(FORMULA.sub("\'", cell))',
        "valid_utf8(cell)",
        "reliability/test_hostile.py",
    ),
    Bug("control characters on the terminal", "printing.py", "return printable(", "return str(", "test_printing.py"),
    Bug(
        "endless lines on the terminal",
        "printing.py",
        "LONGEST_LINE = 4_000",
        "LONGEST_LINE = 4_000_000_000",
        "test_printing.py",
    ),
    Bug(
        "a full output is a traceback",
        "cli/exit.py",
        "UNWRITABLE = (errno.ENOSPC, ",
        "UNWRITABLE = (",
        "test_printing.py",
    ),
    Bug(
        "images over the limit",
        "data/bad.py",
        "if width * height > most * 1_000_000:",
        "if width * height > most * 1_100_000:",
        "data/test_memory_budget.py",
    ),
    Bug(
        "decoders do not wait for memory",
        "data/memory_budget.py",
        "lambda: self.taken + wanted <= limit or not self.taken",
        "lambda: True",
        "data/test_memory_budget.py",
    ),
    Bug(
        "the cache believes times",
        "data/cache_build.py",
        "if not self._sources_unchanged(self.count if whole else SAMPLED_FILES):",
        "if False:",
        "data/test_cache.py",
    ),
    Bug(
        "the cache believes its bytes",
        "data/cache_build.py",
        "if whole or changed or not self._some_pieces(done):",
        "if whole or changed:",
        "data/test_cache.py",
    ),
    Bug(
        "a table names files elsewhere",
        "data/csv_table.py",
        "return Path(os.path.realpath(path)).is_relative_to(self.base)",
        "return True",
        "reliability/test_hostile.py data/test_csv_table.py",
    ),
    Bug(
        "validation images are trained on",
        "data/splits.py",
        "others = [row for place, row in enumerate(rows) if place not in chosen]",
        "others = list(rows)",
        "data/test_splits.py",
    ),
    Bug(
        "a loss has the wrong sign",
        "ops/losses.py",
        "logits = -cosine_distance(features, prototypes) / tau",
        "logits = cosine_distance(features, prototypes) / tau",
        "ops/test_losses.py",
    ),
    Bug(
        "mixing the wrong way round",
        "ops/mixing.py",
        "torch.lerp(x_labeled, x_unlabeled,",
        "torch.lerp(x_unlabeled, x_labeled,",
        "ops/test_mixing.py",
    ),
    Bug(
        "a quantile off by one",
        "trust/conformal.py",
        "(count + 1) * coverage",
        "count * coverage",
        "trust/test_sets.py",
    ),
    Bug(
        "the temperature is inverted",
        "trust/calibration.py",
        "best = 2 / (low + high)",
        "best = (low + high) / 2",
        "trust/test_calibration.py",
    ),
    Bug(
        "scores are of all epochs",
        "training/result.py",
        "records[-LAST_EPOCHS:]",
        "records",
        "training/test_loop.py methods/test_golden.py",
    ),
    Bug(
        "the average stands still",
        "methods/ema.py",
        "            self.steps.add_(1)\n",
        "",
        "methods/test_mean_teacher.py trust/test_plus.py",
    ),
    Bug("threads without a limit", "config.py", "MOST_THREADS = 1024", "MOST_THREADS = 2**40", "training/test_loop.py"),
    Bug(
        "a saved bias is zero",
        "model/format.py",
        "files[WEIGHTS] = tensor_bytes(state, MODEL_FORMAT)",
        'files[WEIGHTS] = tensor_bytes(state | {"head.bias": 0 * state["head.bias"]}, MODEL_FORMAT)',
        "training/test_run_folder.py",
    ),
    Bug(
        "a folder that was taken over is written",
        "training/run_folder.py",
        'if mark is None or mark["writer"] != self._writer or not self.is_in_place():',
        "if False:",
        "training/test_run_folder.py",
    ),
    Bug(
        "two processes lock one run",
        "training/run_folder.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "training/test_run_folder.py reliability/test_faults.py",
    ),
    Bug(
        "links are written through",
        "held.py",
        "PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK",
        "PLAIN = os.O_NONBLOCK",
        "training/test_run_folder.py",
    ),
    Bug(
        "a demo replaces what is not its own",
        "cli/demo.py",
        'return mark.get("runs", [])',
        "return [run_id(out / method) for method in METHODS]",
        "cli/test_demo.py",
    ),
    Bug(
        "every epoch draws the same",
        "randomness.py",
        "generator.manual_seed(seed_for(self.seed, stage, epoch, purpose))",
        "generator.manual_seed(seed_for(self.seed, stage, 0, purpose))",
        "methods/test_golden.py",
    ),
    Bug(
        "requests need no token",
        "web/guard.py",
        'if not self.token or scope["path"] in self.public:',
        "if True:",
        "web/test_guard.py",
    ),
]


def caught(bug: Bug, copy: Path) -> dict[str, Any]:
    """Run the tests with the bug in the copy. A test that fails without the bug, too, does not count."""
    path = copy / "src" / "proud" / bug.file
    text = path.read_text(encoding="utf-8")
    if text.count(bug.right) != 1:
        raise SystemExit(f"{bug.kind}: {bug.file} has {text.count(bug.right)} places for it, not one")
    began, tests, others = time.monotonic(), [f"tests/{name}" for name in bug.tests.split()], []
    while True:
        path.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")
        by = first_failure(copy, [*tests, *(f"--deselect={name}" for name in others)])
        path.write_text(text, encoding="utf-8")
        if not by or not first_failure(copy, [by]):
            break
        others.append(by)
    about = {"bug": bug.kind, "file": bug.file, "caught": bool(by), "by": by}
    return about | {"seconds": round(time.monotonic() - began)}


def first_failure(copy: Path, tests: list[str]) -> str:
    """The test that fails, or nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    paths = {"PYTHONPATH": str(copy / "src"), "PROUD_COMMIT": "planted"}
    done = subprocess.run(command, cwd=copy, env=os.environ | paths, capture_output=True, text=True, timeout=LIMIT)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" ")[2].split(" - ")[0] if failed else ""


def main(numbers: list[int]) -> int:
    import torch

    from proud.machine import environment

    here = environment(torch.device("cpu"))
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    kept = {row["bug"]: row for row in rows}
    with tempfile.TemporaryDirectory(prefix="planted-") as place:
        copy = Path(place) / "proud"
        copy.mkdir()
        for name in ("src", "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / name, copy / name)
        for name in ("pyproject.toml", "README.md", "Makefile"):
            shutil.copy(ROOT / name, copy / name)
        for bug in [BUGS[number] for number in numbers] if numbers else BUGS:
            kept[bug.kind] = caught(bug, copy) | {"commit": here["commit"]}
            print(kept[bug.kind], flush=True)
            rows = [kept[each.kind] for each in BUGS if each.kind in kept]
            found = {"planted": len(rows), "caught": sum(row["caught"] for row in rows), "rows": rows}
            about = {"command": "make planted", "versions": here["versions"], "device": here["device"]}
            RESULT.write_text(json.dumps(found | about, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["caught"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main([int(number) for number in sys.argv[1:]]))
