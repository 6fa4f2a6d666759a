"""The cache on disk: the same images as in memory; an interrupted build continues, and damage is repaired."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from trees import task_of

from proud.config import Options, RunConfig
from proud.data import cache, cache_build
from proud.data.cache_build import VERSION
from proud.data.decode import PixelFormat
from proud.data.folder import scan_folder
from proud.data.types import Task
from proud.errors import UserError
from proud.machine import Stopped
from proud.methods.context import ImagePool
from proud.training.run import train
from toy import toy_settings

SIDE = 18  # of stored images, at size 16
pytestmark = pytest.mark.filterwarnings("ignore:.*(more than one class|also trained on)")  # some are the same


def write_data(root: Path) -> Path:
    """Three domains of 40 images, some the same, in pieces of 7."""
    random = np.random.default_rng(0)
    for domain in ("one", "two", "three"):
        for number in range(40):
            path = root / domain / "ab"[number % 2] / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = (
                random.integers(0, 256, (20, 24, 3), dtype=np.uint8) if number % 9 else np.zeros((9, 9, 3), np.uint8)
            )
            Image.fromarray(pixels).save(path)
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_build, "ROWS_PER_PIECE", 7)
        yield


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are decoded from now on."""
    names: list[str] = []
    decode = cache_build.decode

    def counting(source: Any, *how: Any) -> torch.Tensor:
        names.append(source.name)
        return decode(source, *how)

    monkeypatch.setattr(cache_build, "decode", counting)
    return names


def cached_task(data: Path, disk: Path | str, **changes: Any) -> Task:
    usual: dict[str, Any] = {"labeled": "one", "test": "three", "seed": 5, "skip_bad": True}
    return task_of(scan_folder(data), **usual | changes, disk=str(disk))


def same(a: Task, b: Task) -> None:
    for one, two in ((a.training.labeled, b.training.labeled), (a.training.unlabeled[0], b.training.unlabeled[0])):
        assert torch.equal(one.images, two.images)
    for one, two in ((a.evaluation.validation, b.evaluation.validation), (a.evaluation.test, b.evaluation.test)):
        assert one is not None and two is not None
        assert torch.equal(one.images, two.images) and torch.equal(one.labels, two.labels)
    assert torch.equal(a.training.labeled.labels, b.training.labeled.labels)
    assert a.training.unlabeled[0].ids == b.training.unlabeled[0].ids
    assert a.evaluation.audits["two"].paths == b.evaluation.audits["two"].paths
    assert a.report == {key: value for key, value in b.report.items() if key != "mapped_from_cache"}
    assert b.report["mapped_from_cache"] is True


def test_the_cache_gives_the_same_as_memory(data: Path, tmp_path: Path, decoded: list[str]) -> None:
    (data / "two" / "a" / "00.png").write_bytes(b"")
    (data / "two" / "b" / "03.png").write_bytes(b"no image")
    (data / "one" / "b" / "05.png").unlink()
    (data / "one" / "b" / "05.png").mkdir()  # not a file at all
    memory = cached_task(data, "none")
    same(memory, cached_task(data, tmp_path / "cache"))
    assert len(decoded) == 119
    same(memory, cached_task(data, tmp_path / "cache"))
    assert len(decoded) == 119  # once for all
    with pytest.raises(UserError, match=r"2 images cannot be used"):
        cached_task(data, tmp_path / "cache", skip_bad=False)


def test_many_rows_are_a_mapped_file_of_their_own(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "COPIED_BYTES", 0)
    same(cached_task(data, "none"), cached_task(data, tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*/.part-*"))


def test_an_interrupted_build_continues(
    data: Path, tmp_path: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = cache_build.decode

    def stop_at(count: int) -> Callable[..., torch.Tensor]:
        def decode(source: Any, *how: Any) -> torch.Tensor:
            if len(decoded) >= count:
                raise KeyboardInterrupt
            return counting(source, *how)

        return decode

    for count in (10, 30, 61):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(cache_build, "decode", stop_at(count))
            cached_task(data, tmp_path / "cache")
    same(cached_task(data, "none"), cached_task(data, tmp_path / "cache"))
    assert len(decoded) <= 120 + 3 * 7  # at most the pieces that were under way are made again


def test_a_changed_file_makes_a_new_cache_and_removes_the_old_one(
    data: Path, tmp_path: Path, decoded: list[str]
) -> None:
    cached_task(data, tmp_path / "cache")
    before = {path.name for path in (tmp_path / "cache").iterdir()}
    changed = data / "two" / "a" / "02.png"
    Image.fromarray(np.full((20, 24, 3), 9, np.uint8)).save(changed)
    decoded.clear()
    same(cached_task(data, "none"), cached_task(data, tmp_path / "cache"))
    after = {path.name for path in (tmp_path / "cache").iterdir()}
    assert len(decoded) == 40 and len(after) == len(before) == 3 and len(after & before) == 2
    cached_task(data, tmp_path / "cache", size=32)
    assert len(list((tmp_path / "cache").iterdir())) == 6  # another side is another cache


def flip(path: Path, place: int = 100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def call_unreadable(path: Path) -> None:
    """An image of the last piece, in a file that stays well-formed."""
    start, found, end = path.read_bytes().rpartition(b'"bad": {}')
    assert found
    path.write_bytes(start + b'"bad": {"37": "broken"}' + end)


DAMAGES: dict[str, tuple[Callable[[Path], object], int]] = {
    "a flipped bit": (lambda home: flip(home / "images.u8"), 7),
    "a shortened file": (lambda home: os.truncate(home / "images.u8", 36 * 3 * SIDE * SIDE), 5),
    "a lost file": (lambda home: (home / "images.u8").unlink(), 40),
    "another order": (lambda home: flip(home / "order.i64"), 0),
    "other hashes": (lambda home: flip(home / "hashes.u8"), 0),
    "no description": (lambda home: (home / "done.json").write_text("{}"), 0),
    "a torn description": (lambda home: (home / "done.json").write_text('{"version": 1, "count": 40, "fi'), 0),
    "a wrong description": (lambda home: (home / "done.json").write_text(f'{{"version": {VERSION}, "count": 40}}'), 0),
    "another version": (lambda home: (home / "done.json").write_text('{"version": 1, "count": 40}'), 0),
    "no steps either": (lambda home: [(home / n).write_text("[1]\n{}\n") for n in ("done.json", "steps.jsonl")], 40),
    "another image is unreadable": (lambda home: call_unreadable(home / "done.json"), 0),
    "the same in both lists": (lambda home: [call_unreadable(home / n) for n in ("done.json", "steps.jsonl")], 5),
    "touched": (lambda home: os.utime(home / "images.u8"), 0),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Task, Path]:
    """The data, their task as read into memory, and a whole cache of them."""
    base = tmp_path_factory.mktemp("intact")
    data = write_data(base / "data")
    cached_task(data, base / "cache")
    return data, cached_task(data, "none"), base / "cache"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_only_its_piece_made_again(
    damage: str, intact: tuple[Path, Task, Path], tmp_path: Path, decoded: list[str]
) -> None:
    data, memory, whole = intact
    shutil.copytree(whole, tmp_path / "cache")
    homes = {json.loads((home / "done.json").read_text())["made_from"]["domain"]: home
             for home in (tmp_path / "cache").iterdir()}  # fmt: skip
    harm, again = DAMAGES[damage]
    harm(homes["two"])
    same(memory, cached_task(data, tmp_path / "cache"))
    assert len(decoded) == again


def test_other_images_of_the_same_names_sizes_and_times_have_a_cache_of_their_own(tmp_path: Path) -> None:
    for root, seed in (("first", 1), ("second", 2)):
        random = np.random.default_rng(seed)
        for domain in ("one", "two", "three"):
            for number in range(4):
                path = tmp_path / root / domain / "ab"[number % 2] / f"{number}.bmp"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(random.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
                os.utime(path, (0, 0))
    for root in ("first", "second"):
        there, fresh = (
            task_of(scan_folder(tmp_path / root), labeled="one", seed=1, disk=disk)
            for disk in (str(tmp_path / "cache"), "none")
        )
        assert torch.equal(there.training.labeled.images, fresh.training.labeled.images)


def test_training_is_the_same_bit_for_bit(data: Path, tmp_path: Path) -> None:
    run = RunConfig(data=str(data), labeled="one", method="proud", test="three", model="digits", size=16)
    settings = toy_settings("proud", epochs=1, pretrain_epochs=1, batch_size=8)
    for name, disk in (("memory", "none"), ("mapped", str(tmp_path / "cache"))):
        train(run, settings, Options(out=str(tmp_path / name), device="cpu", threads=1, quiet=True, cache=disk))
    files = ("records.jsonl", "model/model.safetensors", "pseudo_labels.csv")
    for name in files:
        assert (tmp_path / "memory" / name).read_bytes() == (tmp_path / "mapped" / name).read_bytes()


def test_few_images_stay_in_memory_and_many_go_to_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder("auto", 1 << 20) is None
    assert cache.cache_folder("none", 1 << 40) is None
    assert cache.cache_folder("auto", 1 << 32) == Path("/somewhere/proud/images")
    assert cache.cache_folder("here", 1) == Path("here")


def test_a_folder_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cache in .*file cannot be written.*--cache DIR"):
        cached_task(data, tmp_path / "file")


def resident_megabytes() -> dict[str, float]:
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Rss"))
    return {name.rstrip(":"): int(kilobytes) / 1000 for name, kilobytes, _ in lines}


def test_batches_come_from_the_file_not_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 images of 157 kB; `benchmarks/large_data.py` does the same with a million."""
    monkeypatch.setattr(cache_build, "ROWS_PER_PIECE", 300)
    folder = tmp_path / "data" / "one" / "a"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"{number}.ppm").write_bytes(b"P6 4 4 255\n" + number.to_bytes(3, "big") * 16)
    catalog = scan_folder(tmp_path / "data")
    images = cache.map_domain(catalog, catalog.domains["one"], PixelFormat(229), tmp_path / "cache").images
    pool = ImagePool([images, images[:10]], torch.device("cpu"), resident=False)
    before = resident_megabytes()
    for rows in torch.randperm(300).split(10):
        assert pool.take(rows).shape == (10, 3, 229, 229)
    after = resident_megabytes()
    assert after["RssFile"] - before["RssFile"] > 40  # of 47
    assert after["RssAnon"] - before["RssAnon"] < 10


def test_images_that_were_replaced_with_their_times_kept_are_noticed(data: Path, tmp_path: Path) -> None:
    cached_task(data, tmp_path / "cache")
    for path in sorted((data / "two").rglob("*.png")):
        about = path.stat()
        content = bytearray(path.read_bytes())
        content[-20] ^= 1  # in the checksum of the pixels' chunk: as long as before, and broken
        path.write_bytes(content)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(UserError, match="cannot be used"):
        cached_task(data, tmp_path / "cache", skip_bad=False)


@pytest.mark.parametrize("name", ["images.u8", "hashes.u8", "order.i64"])
def test_a_rotten_byte_is_noticed_and_made_again(name: str, data: Path, tmp_path: Path, decoded: list[str]) -> None:
    whole = cached_task(data, tmp_path / "cache")
    decoded.clear()
    for path in (tmp_path / "cache").glob(f"*/{name}"):
        about = path.stat()
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    again = cached_task(data, tmp_path / "cache")
    assert torch.equal(whole.training.labeled.images, again.training.labeled.images)
    assert whole.report == again.report
    assert bool(decoded) == (name != "hashes.u8" and name != "order.i64")


def replace_keeping_times(path: Path, at: int) -> None:
    about, content = path.stat(), bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_verifying_compares_every_file(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_build, "SAMPLED_FILES", 0)  # as if none of the changed ones were drawn
    cached_task(data, tmp_path / "cache")
    replace_keeping_times(min((data / "two").rglob("*.png")), -20)
    cached_task(data, tmp_path / "cache", skip_bad=False)
    with pytest.raises(UserError, match="cannot be used"):
        cached_task(data, tmp_path / "cache", skip_bad=False, verify=True)


def test_a_resumed_run_verifies_the_cache(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    usual = cache_build.Build.intact
    monkeypatch.setattr(cache_build.Build, "intact", lambda self, whole=False: asked.append(whole) or usual(self))
    run = RunConfig(data=str(data), labeled="one", method="erm", test="three", model="digits", size=16, skip_bad=True)
    options = Options(out=str(tmp_path / "run"), device="cpu", threads=1, quiet=True, cache=str(tmp_path / "cache"))

    def stop(now: Any) -> None:
        if now.stage == "main":
            raise Stopped

    settings = toy_settings("erm", epochs=1, pretrain_epochs=1, batch_size=8)
    with pytest.raises(Stopped):
        train(run, settings, options, watch=stop)
    assert asked and not any(asked)
    asked.clear()
    train(run, settings, replace(options, resume=True))
    assert asked and all(asked)
