"""One wrong bit in any file that a command believes: the answer stays the same, or there is an error."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from crashing import SmallRun, checkpoints_every_epoch, fingerprint
from disk import restore

from proud.errors import UserError
from proud.manifest import Files
from proud.model.format import read_result, read_run, read_verdicts
from proud.model.load import load_model
from proud.report.sources import RunSource
from proud.training.inspection import inspect
from proud.training.records import epochs_of, read_pseudo_labels, timings_of
from toy import toy_images

UNREAD = (".proud", "model/README.md")  # the mark of the writer, and what people may edit


def answers(run: Path) -> list[Any]:
    """All that later commands read of a finished run."""
    model = load_model(run, "cpu")
    source = RunSource(run, read_run(run), "run")
    arrays = [source.outputs, *source.snapshots.values()]
    plain = [{name: value.tobytes() for name, value in sorted(each.items())} for each in arrays]
    asked = model.predict_proba(toy_images(1, 1)[0])
    read = [read_run(run), read_result(run), read_verdicts(run), epochs_of(run).read(), timings_of(run).read()]
    pseudo = {name: [list(column) for column in each.values()] for name, each in labels_of(run).items()}
    return [np.asarray(asked).tobytes(), model.classes, model.config, model.trust, read, plain, pseudo]


def labels_of(run: Path) -> dict[str, dict[str, np.ndarray]]:
    return read_pseudo_labels(Files(run), {})


def inspect_problems(run: Path) -> list[str]:
    return [finding.name for finding in inspect(run) if finding.problem]


def flip(path: Path, chance: random.Random) -> Callable[[], None]:
    """Returns what makes it right again."""
    whole = path.read_bytes()
    place, bit = chance.randrange(len(whole)), chance.randrange(8)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
    return lambda: path.write_bytes(whole) and None


def flip_finished(run: SmallRun, cases: int, seed: int = 0) -> dict[str, int]:
    """AssertionError if a flip changes an answer without an error, or if `proud verify` does not find it."""
    chance, folder = random.Random(seed), run.place / "recorded" / "run"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in files if path.relative_to(folder).as_posix() not in UNREAD]
    right, refused = answers(folder), 0
    for case in range(cases):
        path = files[case % len(files)]
        undo = flip(path, chance)
        try:
            assert inspect_problems(folder), f"verify does not see a flip in {path.name}"
            assert answers(folder) == right, f"another answer after a flip in {path.name}"
        except UserError:
            refused += 1
        finally:
            undo()
    assert answers(folder) == right
    return {"flips": cases, "files": len(files), "refused": refused, "unnoticed": 0}


def flip_half_done(run: SmallRun, cases: int, seed: int = 0) -> dict[str, int]:
    """The same for a run that was killed in its last epoch and is resumed."""
    chance, noticed = random.Random(seed), 0
    # with both checkpoints, before the outcome is written
    last = next(tree for _, _, tree in run.states() if "run/checkpoints/checkpoint-000002.json" in tree)
    for case in range(cases):
        place = run.place / f"flipped-{case}"
        restore(last, place)
        folder = place / "run"
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".proud"]
        path = files[case % len(files)]
        flip(path, chance)
        with checkpoints_every_epoch(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                run.go_on(folder)
                if fingerprint(folder) != run.whole:
                    assert any("damaged" in str(each.message) or "changed" in str(each.message) for each in said), path
                    noticed += 1
            except UserError:
                noticed += 1
        shutil.rmtree(place)
    return {"flips": cases, "noticed": noticed, "unnoticed": 0}
