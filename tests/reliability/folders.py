"""Whole folders of runs and benches, damaged in one place, and then every command on them.

Each case ends with the undamaged answer or with a clear error. Where the damage was done by someone who computes right
checksums ("forged"), another answer is legitimate; a traceback, a hang or much memory never is.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mutate import json_text, mutate_bytes, mutate_json, mutate_safetensors

HANGS = 30  # seconds
MOST_MEMORY = 2_000_000  # kB
REPORTED = 0.1  # share of forged folders of which the whole page is written
ENVIRONMENT = ("versions", "device", "commit", "command", "model")
CHILD_FAILED = 99


# ---- the originals


class Originals:
    """A finished run, another one, a half-done one and a bench, of the same images."""

    def __init__(self, place: Path) -> None:
        from toy import write_folders

        self.place, self.case = place, place / "case"
        self.data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
        self.train = ["train", "--data", str(self.data), "--labeled", "a", "--test", "c", "--method", "proud"]
        self.train += ["--weights", "none", "--epochs", "2", "--pretrain-epochs", "1", "--batch-size", "8"]
        self.train += [
            "--views",
            "1",
            "--val",
            "0.34",
            "--threads",
            "1",
            "--device",
            "cpu",
            "--quiet",
            "--out",
            str(self.case),
        ]
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
            assert said.code in (0, 2) and "Traceback" not in said.text, (base, name, said)
            found[name] = (said.code, said.answer)
        assert found["report"][0] == 0, found["report"]
        return found

    # ---- the commands; each returns its exit code and its answer

    def commands(self, base: str, whole_report: bool = False) -> dict[str, Callable[[], tuple[int, Any]]]:
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
        }
        found: dict[str, Callable[[], tuple[int, Any]]] = {
            name: lambda argv=argv: with_file(argv, out) for name, argv in asked.items()
        }
        found["report"] = inputs
        if has_command("verify"):
            found["verify"] = lambda: (run_command(["verify", str(case)])[0], None)
        found["resume"] = lambda: resumed([*self.train, "--resume"], case)
        return found


def has_command(name: str) -> bool:
    from proud.cli.main import COMMANDS

    return name in COMMANDS


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
    out.unlink(missing_ok=True)
    code, _ = run_command(argv)
    if code:
        return code, None
    text = out.read_text(encoding="utf-8")
    if text.startswith("{"):
        return code, {key: value for key, value in json.loads(text).items() if key not in ENVIRONMENT}
    return code, text


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


# ---- damage


class Damage(NamedTuple):
    kind: str
    file: str
    forged: bool = False


def damage(case: Path, other: Path, chance: random.Random) -> Damage:
    """One file, in one way."""
    files = sorted(
        path.relative_to(case) for path in case.rglob("*") if path.is_file() and not path.name.endswith("lock")
    )
    name = chance.choice(files)
    path = case / name
    kind = chance.choice(list(KINDS))
    content = path.read_bytes()
    KINDS[kind](path, content, other / name, chance)
    forged = kind == "structure" and chance.random() < 0.5
    if forged:
        forge(case, path)
    return Damage(kind, str(name), forged)


def bit(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    data = bytearray(content or b"x")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def some_bytes(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(mutate_bytes(content, chance))


def zeroed(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    start = chance.randrange(max(1, len(content))) // 4096 * 4096
    path.write_bytes(content[:start] + b"\0" * len(content[start : start + 4096]) + content[start + 4096 :])


def cut(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(content[: chance.choice((0, 1, len(content) // 2, max(0, len(content) - 1)))])


def longer(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(content + chance.choice((b"\0", b"\n", b"{}\n", content)))


def structure(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    """A value, a type, a shape or a name, in a file that stays well-formed."""
    if path.suffix == ".json":
        path.write_bytes(json_text(mutate_json(json.loads(content), chance), chance))
    elif path.suffix == ".jsonl" and content.strip():
        lines = content.splitlines()
        row = chance.randrange(len(lines))
        lines[row] = json.dumps(mutate_json(json.loads(lines[row]), chance)).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif path.suffix == ".safetensors":
        path.write_bytes(
            mutate_safetensors(content, chance) if chance.random() < 0.5 else other_values(content, chance)
        )
    else:
        some_bytes(path, content, other, chance)


def other_values(content: bytes, chance: random.Random) -> bytes:
    """The header stays; one number of a tensor becomes another."""
    (length,) = struct.unpack("<Q", content[:8])
    data = bytearray(content)
    place = chance.randrange(8 + length, len(data) - 3) if len(data) > 12 + length else len(data) - 1
    data[place : place + 4] = struct.pack("<f", chance.choice((0.0, 1e30, float("nan"), float("inf"), -1.0)))[
        : len(data) - place
    ]
    return bytes(data)


def another_runs(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(other.read_bytes() if other.is_file() else b"")


def swapped(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    beside = chance.choice([each for each in sorted(path.parent.iterdir()) if each.is_file()])
    taken = beside.read_bytes()
    beside.write_bytes(content)
    path.write_bytes(taken)


def gone(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()


def folder_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def link_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to(
        chance.choice((path, other, Path("/dev/zero"), Path("/dev/null"), Path("/proc/self/mem"), path.parent))
    )


def pipe_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


KINDS = {
    "bit": bit,
    "bytes": some_bytes,
    "zeroed": zeroed,
    "cut": cut,
    "longer": longer,
    "structure": structure,
    "structure, too": structure,
    "of another run": another_runs,
    "swapped": swapped,
    "gone": gone,
    "a folder": folder_instead,
    "a link": link_instead,
    "a pipe": pipe_instead,
}


def forge(case: Path, path: Path) -> None:
    """Right checksums, as far as the damaged file still has a place for them."""
    from proud.stamps import SEAL, sealed
    from toy import restamp

    try:
        about = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        if isinstance(about, dict) and SEAL in about:
            path.write_text(json.dumps(sealed({key: value for key, value in about.items() if key != SEAL})))
        beside = path.with_suffix(".json")
        if path.suffix == ".safetensors" and path.parent.name == "checkpoints" and beside.is_file():
            about = json.loads(beside.read_bytes())
            about["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            value = {key: item for key, item in about.items() if key != SEAL}
            beside.write_text(json.dumps(sealed(value) if SEAL in about else value))
        for folder in (case / "model", case):
            restamp(folder)
    except Exception:  # what cannot be forged is plain damage
        pass


# ---- children


class Said(NamedTuple):
    code: int
    answer: Any
    text: str
    seconds: float = 0.0
    kilobytes: int = 0


Ask = Callable[[], tuple[int, Any]]


def in_child(place: Path, asked: dict[str, Ask]) -> dict[str, Said]:
    """Forked from this warm process: each command's code (negative: a signal) and answer, and all that it printed. A
    command that ends the child is the last."""
    log, answers = place / "log", place / "answers"
    answers.write_bytes(b"")
    child = os.fork()
    if not child:
        _child(log, answers, asked)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    found = {}
    for line in answers.read_text().splitlines():
        name, *said = json.loads(line)
        found[name] = Said(*said, kilobytes=used.ru_maxrss)
    if code:
        name = next(name for name in asked if name not in found)
        text = log.read_text(encoding="utf-8", errors="replace")
        found[name] = Said(code, None, text, float(HANGS if code == -signal.SIGALRM else 0), used.ru_maxrss)
    return found


def _child(log: Path, answers: Path, asked: dict[str, Ask]) -> None:
    code = CHILD_FAILED
    try:
        os.environ["PROUD_COMMIT"] = "tested"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with answers.open("a") as file:
            for name, ask in asked.items():
                output_to(log)
                signal.alarm(HANGS)
                began = time.monotonic()
                exit_code, answer = ask()
                sys.stdout.flush()
                sys.stderr.flush()
                text = log.read_text(encoding="utf-8", errors="replace")
                file.write(json.dumps([name, exit_code, answer, text, time.monotonic() - began]) + "\n")
                file.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def output_to(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))


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


def cases(originals: Originals, seeds: Iterator[int], until: float = float("inf")) -> Iterator[Found]:
    for seed in seeds:
        if time.monotonic() > until:
            return
        chance = random.Random(f"folder-{seed}")
        base = chance.choice(("finished", "finished", "half", "half", "bench"))
        originals.fresh(base)
        made = damage(originals.case, originals.kept["other"], chance)
        whole = made.forged and chance.random() < REPORTED
        for name, said in in_child(originals.place, originals.commands(base, whole)).items():
            outcome = judge(said, originals.right[base][name], made.forged, name)
            last = " | ".join(said.text.strip().splitlines()[-2:])[-300:]
            yield Found(outcome, f"{outcome}: seed {seed}, {base}, {name}, {made}: {last}" if outcome in BAD else "")


def fuzz_folders(place: Path, seeds: Iterator[int], until: float = float("inf")) -> dict[str, Any]:
    """Counts of all outcomes, and the first of the bad ones in words."""
    import warm  # noqa: F401

    from proud.cli.main import COMMANDS

    for name in ("train", "predict", "evaluate", "label-next", "bench", "report"):
        import_module(f"proud.cli.{COMMANDS[name].module}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    place.mkdir(parents=True, exist_ok=True)
    originals = Originals(place)
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for found in cases(originals, seeds, until):
        counts[found.outcome] += 1
        if found.about:
            print(found.about, file=sys.stderr, flush=True)
            bad.append(found.about.replace(str(place), "…"))
    return {
        "cases": sum(counts.values()),
        **{name: counts[name] for name in (*BAD, "the same answer", "refused", "used")},
        "bad": bad[:50],
    }


def fuzz_into(place: Path, seeds: range, answer: Path) -> None:
    """In a child, which may fork others."""
    answer.write_text(json.dumps(fuzz_folders(place, iter(seeds))))


if __name__ == "__main__":
    import tempfile

    sys.path[:0] = [str(Path(__file__).parents[1])]
    first, last = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="folders-") as temporary:
        answer = fuzz_folders(Path(temporary), iter(range(first, last)))
    print(json.dumps(answer, indent=1, ensure_ascii=False))
