"""Whole folders of runs and benches, damaged in one place, and then every command on them.

Each case ends with the undamaged answer or with a clear error. Where the damage was done by someone who computes right
checksums ("forged"), another answer is legitimate; a traceback, a hang or much memory never is.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from asking import ask_review, ask_serve
from damaged_files import damage
from forked import CHILD_FAILED, HANGS, Ask, Said, in_child

MOST_MEMORY = 2_000_000  # kB
REPORTED = 0.1  # share of forged folders of which the whole page is written
EXPORTED = 0.1  # share of folders that are exported, which takes seconds
TRAINING = """--labeled a --test c --method proud --weights none --epochs 2 --pretrain-epochs 1 --batch-size 8 --views 1
--val 0.34 --threads 1 --device cpu --quiet"""
LEAVING = ("compare", "export", "serve", "review")  # what a model is used for elsewhere, or by others
ENVIRONMENT = ("versions", "device", "commit", "command", "model")


# ---- the originals


class Originals:
    """A finished run, another one, a half-done one and a bench, of the same images."""

    def __init__(self, place: Path) -> None:
        from toy import write_folders

        self.place, self.case = place, place / "case"
        self.data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
        self.train = ["train", "--data", str(self.data), *TRAINING.split(), "--out", str(self.case)]
        self.kept = {
            "finished": self._keep("finished", lambda: [self.train]),
            "other": self._keep("other", lambda: [[*self.train, "--seed", "5"]]),
            "half": self._keep("half", lambda: [self.train], stop_after=2),
            "bench": self._keep("bench", lambda: [self.bench()]),
        }
        self.right = {base: self._answers(base) for base in ("finished", "half", "bench")}

    def bench(self, *more: str) -> list[str]:
        flags = ["--methods", "erm", "--combos", "a:c", "--set", "epochs=1", "--set", "pretrain_epochs=1", *more]
        return ["bench", str(self.data), *flags, "--out", str(self.case)]

    def _keep(self, name: str, commands: Callable[[], list[list[str]]], stop_after: int = 0) -> Path:
        for argv in commands():
            said = in_child(self.place, {name: lambda argv=argv: run_command(argv, stop_after)})[name]
            assert said.code == (130 if stop_after else 0), said
        shutil.move(self.case, self.place / name)
        return self.place / name

    def fresh(self, base: str) -> None:
        shutil.rmtree(self.case, ignore_errors=True)
        shutil.copytree(self.kept[base], self.case, symlinks=True)

    def _answers(self, base: str) -> dict[str, Any]:
        self.fresh(base)
        found = {}
        for name, said in in_child(self.place, self.commands(base)).items():
            # a run that is not finished has no model
            assert said.code == 0 or (base == "half" and said.code == 2), (base, name, said)
            assert "Traceback" not in said.text, (base, name, said)
            found[name] = (said.code, said.answer)
        assert found["report"][0] == 0, found["report"]
        return found

    # ---- the commands; each returns its exit code and its answer

    def commands(self, base: str, whole_report: bool = False, export: bool = True) -> dict[str, Ask]:
        """In the order of their use: those that change the folder come last."""
        case, out = self.case, self.place / "out"
        inputs = lambda: report_inputs(case, out, whole_report)  # noqa: E731
        if base == "bench":
            return {"report": inputs, "bench --table-only": lambda: run_command(self.bench("--table-only"))}
        cpu = ["--device", "cpu"]
        asked = {
            "predict": ["predict", str(case), str(self.data / "b"), "--out", str(out), *cpu],
            "predict model": ["predict", str(case / "model"), str(self.data / "b"), "--out", str(out), *cpu],
            "evaluate": ["evaluate", str(case), "--domain", "b", "--out", str(out), *cpu],
            "label-next": ["label-next", str(case), "--k", "2", "--out", str(out), *cpu],
            "compare": ["compare", str(case), str(self.kept["other"]), str(self.data / "b"), "--out", str(out), *cpu],
        }
        asked |= {"export": ["export", str(case), "--format", "torch", "--out", str(out)]} if export else {}
        found: dict[str, Ask] = {name: lambda argv=argv: with_file(argv, out) for name, argv in asked.items()}
        image, cache = next((self.data / "b").rglob("*.png")), self.place / "cache"
        found["serve"] = lambda: ask_serve(run_command, case, image)
        found["review"] = lambda: ask_review(run_command, case, out, cache)
        found["report"] = inputs
        found["verify"] = lambda: (run_command(["verify", str(case)])[0], None)
        found["resume"] = lambda: resumed([*self.train, "--resume"], case)
        return found


def run_command(argv: list[str], stop_after: int = 0) -> tuple[int, Any]:
    """The exit code; with `stop_after` the run is stopped after so many epochs."""
    from proud.cli import main
    from proud.cli.exit import exit_code
    from proud.errors import Stopped
    from proud.training import loop

    loop.CHECKPOINT_SECONDS = 0.0
    finish = loop.Loop._finish

    def stopping(self: loop.Loop, *arguments: Any) -> None:
        finish(self, *arguments)
        if stop_after and self.position.records == stop_after:
            raise Stopped

    loop.Loop._finish = stopping
    main.warnings.showwarning = main.show_warning
    return exit_code(lambda: main.run(argv)), None


def with_file(argv: list[str], out: Path) -> tuple[int, Any]:
    for path in (out, out.with_suffix(".html"), out.with_suffix(".json")):  # some write a page and a record, too
        path.unlink(missing_ok=True)
    code, _ = run_command(argv)
    if code:
        return code, None
    content = out.read_bytes()
    if content.startswith(b"{"):
        return code, {key: value for key, value in json.loads(content).items() if key not in ENVIRONMENT}
    return code, hashlib.sha256(content).hexdigest()


def resumed(argv: list[str], case: Path) -> tuple[int, Any]:
    code, _ = run_command(argv)
    if code:
        return code, None
    names = ("model/model.safetensors", "result.json", "records.jsonl")
    return code, [hashlib.sha256((case / name).read_bytes()).hexdigest() for name in names]


def report_inputs(case: Path, out: Path, whole: bool) -> tuple[int, Any]:
    """All that the page is made of. The page itself takes seconds: it is written where `whole` says so."""
    from proud.cli.exit import exit_code

    found: list[str] = []

    def read() -> int:
        from proud.report.page import write_report
        from proud.report.sources import read_sources

        runs, benches = read_sources([case])
        for run in runs:
            parts: list[Any] = [run.metadata, run.name, run.records, run.seconds, run.result, run.look_at]
            parts += [sorted((name, array.tobytes()) for name, array in run.outputs.items())]
            snapshots = run.snapshots.items()
            parts += [sorted((moment, name, each[name].tobytes()) for moment, each in snapshots for name in each)]
            found.append(hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest())
        found.extend(repr(bench.rows) for bench in benches)
        if whole:
            page = out.with_name("page.html")
            write_report([case], page, overwrite=True)
        return 0

    code = exit_code(read)
    return code, found if code == 0 else None


# ---- cases


class Found(NamedTuple):
    """One command on one damaged folder."""

    outcome: str
    about: str


def judge(said: Said, right: tuple[int, Any], forged: bool, command: str) -> str:
    if said.code == -signal.SIGALRM or said.seconds > HANGS:
        return "hang"
    if said.code < 0 or "Traceback" in said.text or said.code == CHILD_FAILED:
        return "traceback"
    if said.kilobytes > MOST_MEMORY:
        return "memory"
    if (said.code, said.answer) == right:
        return "the same answer"
    if said.code == 2 or (command == "verify" and said.code):
        return "refused" if "proud: " in said.text or command == "verify" else "without a message"
    return "used" if forged else "silently wrong"


BAD = ("silently wrong", "traceback", "hang", "memory", "without a message")


def cases(originals: Originals, seeds: Iterable[int], leaving: bool | None) -> Iterator[Found]:
    for seed in seeds:
        chance = random.Random(f"folder-{seed}")
        base = chance.choice(("finished", "finished", "half", "half", "bench"))
        originals.fresh(base)
        made = damage(originals.case, originals.kept["other"], chance)
        asked = originals.commands(base, made.forged and chance.random() < REPORTED, chance.random() < EXPORTED)
        asked = {name: ask for name, ask in asked.items() if leaving in (None, name in LEAVING)}
        for name, said in in_child(originals.place, asked).items():
            outcome = judge(said, originals.right[base][name], made.forged, name)
            last = " | ".join(said.text.strip().splitlines()[-2:])[-300:]
            yield Found(outcome, f"{outcome}: seed {seed}, {base}, {name}, {made}: {last}" if outcome in BAD else "")


def fuzz_folders(place: Path, seeds: Iterable[int], leaving: bool | None = None) -> dict[str, Any]:
    """Counts of all outcomes, and the first of the bad ones in words. `leaving`: the commands of LEAVING alone, or the
    others alone."""
    import warm  # noqa: F401

    from proud.cli.main import COMMANDS

    for command in COMMANDS.values():
        import_module(f"proud.cli.{command.module}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    place.mkdir(parents=True, exist_ok=True)
    originals = Originals(place)
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for found in cases(originals, seeds, leaving):
        counts[found.outcome] += 1
        if found.about:
            print(found.about, file=sys.stderr, flush=True)
            bad.append(found.about.replace(str(place), "…"))
    return {
        "cases": sum(counts.values()),
        **{name: counts[name] for name in (*BAD, "the same answer", "refused", "used")},
        "bad": bad[:50],
    }


def fuzz_into(place: Path, seeds: range, answer: Path, leaving: bool | None = None) -> None:
    """In a child, which may fork others."""
    answer.write_text(json.dumps(fuzz_folders(place, seeds, leaving)))
