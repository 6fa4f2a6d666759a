"""Thousands of mutated files: each is used or refused in one clear line; nothing hangs, runs or writes elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mutate import STRANGE, json_text, mutate_bytes, mutate_json, mutate_safetensors, seeds_of_images

HANGS = 120  # seconds for one case, which takes a fraction of one
FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "pickle.find_class",
    "code.__new__",
)
NETWORK = ("socket.connect", "socket.getaddrinfo")
CHANGES = {  # event -> where its folder handles are among the arguments
    "os.rename": (2, 3),
    "os.link": (2, 3),
    "os.symlink": (2, 2),
    "os.remove": (1,),
    "os.rmdir": (1,),
    "os.mkdir": (2,),
    "os.chmod": (2,),
    "os.truncate": (),
}


class Watch:
    """What the interpreter says it is about to do while a case runs."""

    def __init__(self) -> None:
        self.inside: Path | None = None
        self.seen: list[str] = []
        self.base = -1  # the folder handle of the file that is being opened, which the event does not name
        self.open, os.open = os.open, self.opening
        sys.addaudithook(self.hook)

    def opening(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self.base = -1 if dir_fd is None else dir_fd
        try:
            return self.open(path, flags, mode, dir_fd=dir_fd)
        finally:
            self.base = -1

    def place(self, path: str | bytes, handle: int) -> Path:
        """Where a name leads, relative to a folder's handle or to the current folder."""
        base = f"/proc/self/fd/{handle}" if handle >= 0 else ""
        return Path(os.path.realpath(Path(base, os.fsdecode(path))))

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event in FORBIDDEN or event in NETWORK:
            self.seen.append(f"{event} {arguments!r}"[:200])
        elif event in CHANGES:
            names = [name for name in arguments[:2] if isinstance(name, str | bytes)]
            handles = [arguments[number] for number in CHANGES[event]] or [-1]
            places = [self.place(name, handle) for name, handle in zip(names, handles, strict=False)]
            if not all(place.is_relative_to(self.inside) for place in places):
                self.seen.append(f"{event} {places}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes) and isinstance(arguments[2], int):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            path = self.place(arguments[0], self.base)
            if writes and not path.is_relative_to(self.inside) and path != Path(os.devnull):
                self.seen.append(f"writes {path}")

    @contextmanager
    def looking(self, folder: Path) -> Iterator[None]:
        self.inside = Path(os.path.realpath(folder))
        try:
            yield
        finally:
            self.inside = None


def _hangs(number: int, frame: object) -> None:
    raise RuntimeError(f"hangs for {HANGS} s")


def fuzz(name: str, cases: int, folder: Path, one: Callable[[random.Random], None]) -> dict[str, Any]:
    """Run so many cases; a UserError or BadImage is a refusal, anything else a failure, which stops the count."""
    from proud.data.decode import BadImage
    from proud.errors import UserError

    watch, refused, slowest = Watch(), 0, 0.0
    signal.signal(signal.SIGALRM, _hangs)
    for case in range(cases):
        signal.alarm(HANGS)
        began = time.perf_counter()
        chance = random.Random(f"{name}-{case}")
        try:
            with warnings.catch_warnings(), watch.looking(folder):
                warnings.simplefilter("ignore")
                one(chance)
        except (UserError, BadImage) as error:
            refused += 1
            assert len(str(error)) < 20_000, f"{name} {case}: a message of {len(str(error))} letters"
        except Exception as error:
            raise AssertionError(f"{name}, case {case}: {type(error).__name__}: {str(error)[:300]}") from error
        slowest = max(slowest, time.perf_counter() - began)
        assert not watch.seen, f"{name}, case {case}: {watch.seen}"
    signal.alarm(0)
    return {"cases": cases, "refused": refused, "used": cases - refused, "slowest_seconds": round(slowest, 3)}


# ---- what is mutated


def images(cases: int, folder: Path) -> dict[str, Any]:
    from proud.data.decode import PixelFormat, decode

    seeds = seeds_of_images()

    def one(chance: random.Random) -> None:
        _, content = chance.choice(seeds)
        found = decode(mutate_bytes(content, chance), PixelFormat(16))
        assert found.shape == (3, 16, 16)

    return fuzz("images", cases, folder, one)


def models(cases: int, folder: Path) -> dict[str, Any]:
    import torch

    from proud.model.load import load_model
    from proud.model.predict import Model
    from proud.nets.models import build_net, model_spec
    from toy import restamp

    spec = model_spec("digits", 2, 16)
    Model(build_net(spec), spec, ("cat", "dog"), {"seed": 1}, torch.device("cpu")).save(folder)
    about, tensors = (folder / "model.json").read_bytes(), (folder / "model.safetensors").read_bytes()

    def one(chance: random.Random) -> None:
        (folder / "model.json").write_bytes(about)
        (folder / "model.safetensors").write_bytes(tensors)
        if chance.random() < 0.5:
            (folder / "model.json").write_bytes(json_text(mutate_json(json.loads(about), chance), chance))
        else:
            (folder / "model.safetensors").write_bytes(mutate_safetensors(tensors, chance))
        restamp(folder)  # whoever forges it computes the checksums, too
        model = load_model(folder, "cpu")
        assert model.logits(torch.zeros((1, 3, 18, 18), dtype=torch.uint8)).shape == (1, 2)

    return fuzz("models", cases, folder, one)


def checkpoints(cases: int, folder: Path) -> dict[str, Any]:
    import torch

    from proud.held import HeldFolder
    from proud.methods import method_class
    from proud.methods.context import make_context
    from proud.nets.models import model_spec
    from proud.stamps import sealed, unsealed
    from proud.training.checkpoint import (
        Checkpoint,
        Position,
        check_position,
        load_checkpoint,
        load_into,
        save_checkpoint,
    )
    from proud.training.run_folder import refuse_difference
    from toy import toy_settings, toy_task

    task = toy_task(per_class=2)
    spec = model_spec("digits", 4, 16)
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=1, precision="fp32")
    method = method_class("erm")(toy_settings("erm"), context)
    method.net.head(torch.zeros(1, method.net.num_features)).sum().backward()
    method.optimizer.step()
    config = {"lr": 0.1, "method_config": {"epochs": 4}}
    held = HeldFolder(folder)
    save_checkpoint(held, Checkpoint(method.state_dict(), Position(0, 1, 1), config))
    (path,) = folder.glob("*.json")
    about, tensors = unsealed(json.loads(path.read_bytes())), path.with_suffix(".safetensors").read_bytes()

    def one(chance: random.Random) -> None:
        changed = mutate_safetensors(tensors, chance) if chance.random() < 0.5 else tensors
        right = about | {"sha256": hashlib.sha256(changed).hexdigest()}  # whoever forges it computes that too
        path.with_suffix(".safetensors").write_bytes(changed)
        given = mutate_json(right, chance) if changed is tensors else right
        path.write_bytes(json_text(sealed(given) if isinstance(given, dict) else given, chance))
        found = load_checkpoint(held)
        if found is not None:
            refuse_difference(folder, found.config, config)
            check_position(found.position, method.stage_list(), folder)
            load_into(method, found.state, folder)

    return fuzz("checkpoints", cases, folder, one)


def resealed(given: dict[str, Any]) -> dict[str, Any]:
    """Whoever forges it computes the checksum, too."""
    from proud.stamps import SEAL, sealed

    return sealed({key: value for key, value in given.items() if key != SEAL})


def run_folders(cases: int, folder: Path) -> dict[str, Any]:
    """run.json, result.json and records.jsonl of a finished run, as `--resume` and the bench read them."""
    from proud.config import Options
    from proud.held import HeldFolder
    from proud.model.format import read_result
    from proud.stored import EpochRecord
    from proud.training.records import OwnRecords, epochs_of
    from proud.training.run import train
    from proud.training.run_folder import RunFolder, opened, refuse_other_data
    from toy import toy_run, toy_settings, toy_task

    task = toy_task(per_class=2)
    settings = toy_settings("erm", epochs=1, pretrain_epochs=1)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu")
    train(toy_run("erm", task), settings, options, data=task)
    names = ("run.json", "result.json", "records.jsonl")
    (folder / "manifest.json").unlink()  # which would refuse every change
    whole = {name: (folder / name).read_bytes() for name in names}
    config = json.loads(whole["run.json"])["config"]

    def one(chance: random.Random) -> None:
        for name, content in whole.items():
            (folder / name).write_bytes(content)
        name = chance.choice(names)
        line = json.loads(whole[name].splitlines()[0] if name == "records.jsonl" else whole[name])
        given = mutate_json(line, chance)
        given = resealed(given) if name == "run.json" and isinstance(given, dict) else given
        (folder / name).write_bytes(json_text(given, chance) + b"\n")
        with opened(RunFolder(folder), config, Options(out=str(folder), resume=True)) as before:
            assert before is not None
            refuse_other_data(folder, before["task"], task.report)
            read_result(folder)
            OwnRecords(HeldFolder(folder), "records.jsonl", EpochRecord).cut(1)
            epochs_of(folder).read()

    return fuzz("run folders", cases, folder, one)


def tables(cases: int, folder: Path) -> dict[str, Any]:
    """CSV files that name images."""
    from proud.data.csv_table import scan_csv
    from toy import write_folders

    root = write_folders(folder / "data", {"a": 0, "b": 1}, per_class=1)
    real = os.path.realpath(root)
    outside = folder / "outside.png"
    outside.write_bytes(next(root.rglob("*.png")).read_bytes())
    (root / "out.png").symlink_to(outside)
    (root / "loop.png").symlink_to(root / "loop.png")
    (root / "up").symlink_to(folder)
    places = [path.relative_to(root).as_posix() for path in sorted(root.glob("?/*/*.png"))]
    bad = [
        "../outside.png",
        str(outside),
        "out.png",
        "loop.png",
        "up/outside.png",
        "a/..",
        ".",
        "",
        "a\x00.png",
        "x" * 300,
    ]
    bad += ["/dev/zero", "~/x.png", "a/" * 2000 + "x.png", "-rf.png", "\n", '"', "a\u202eb.png", "/proc/self/mem"]
    words = [str(value) for value in STRANGE if isinstance(value, str) and value != "\udcff"]

    def one(chance: random.Random) -> None:
        rows = [["path", "domain", "label"]]
        for place in places:
            row = [place, chance.choice(("a", "b", "..", "-x", "d" * 300)), chance.choice(("cat", "", *words))]
            if chance.random() < 0.1:
                row[chance.randrange(3)] = chance.choice(bad + words)
            rows.append(row)
        text = "\n".join(",".join(f'"{cell}"' if chance.random() < 0.5 else cell for cell in row) for row in rows)
        content = text.encode()
        (root / "table.csv").write_bytes(mutate_bytes(content, chance) if chance.random() < 0.5 else content)
        for domain in scan_csv(root / "table.csv").domains.values():
            for entry in domain.entries:
                found = os.path.realpath(root / entry.location)
                assert Path(found).is_relative_to(real) and Path(found).is_file(), found

    return fuzz("tables", cases, folder, one)


def results(cases: int, folder: Path) -> dict[str, Any]:
    """Lines of results.jsonl, as a bench and its tables read them."""
    from proud.bench.results import read_rows
    from proud.report.tables import write_tables

    path = folder / "results.jsonl"
    row = {"format": "proud-result-1", "bench": "mine", "note": "", "method": "erm", "labeled": "a", "test": "b"}
    row |= {"seed": 1, "domains": ["a", "b", "c"], "unlabeled": ["c"], "test_accuracy": 0.5, "val_accuracy": 0.7}
    row |= {"epochs": 2, "seconds": 1.0, "images": {"a": 3}, "commit": "0", "versions": {}, "device": "cpu"}
    row |= {"config": {"method": "erm", "method_config": {"epochs": 2}}, "command": "proud bench", "finished": "now"}

    def one(chance: random.Random) -> None:
        path.write_bytes(
            json_text(mutate_json(row, chance), chance) + b"\n" + json.dumps(row | {"seed": 2}).encode() + b"\n"
        )
        write_tables("mine", read_rows(path), folder / "tables", note="")

    return fuzz("bench results", cases, folder, one)


KINDS: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    "images": images,
    "models": models,
    "checkpoints": checkpoints,
    "run folders": run_folders,
    "CSV tables": tables,
    "bench results": results,
}


def fuzz_into(kind: str, cases: int, folder: Path, answer: Path) -> None:
    """In a child: a crash of the interpreter itself is noticed by whoever started it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = KINDS[kind](cases, folder)
    except AssertionError as error:
        found = {"cases": cases, "failure": str(error)}
    answer.write_text(json.dumps(found))
