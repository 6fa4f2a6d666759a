"""Interruption, takeover, exactly-once results: with real runs on tiny images."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from proud.bench import queue as worker
from proud.bench.claims import claim, owner
from proud.bench.plan import Job, Key
from proud.bench.results import Results, key_of
from proud.bench.queue import Outcome, Tasks, check_folder, work
from proud.cli.bench import BenchArguments, bench, out_folder, prepare
from proud.config import Options
from proud.data import decode as store
from proud.errors import UserError
from proud.training.loop import Progress

Make = Callable[..., BenchArguments]
Start = Callable[[BenchArguments], subprocess.Popen[str]]


class Diary:
    """A view that remembers, and may act on a step."""

    def __init__(self, on_step: Callable[[Job, Progress], None] = lambda job, now: None) -> None:
        self.began: list[Key] = []
        self.ended: list[Key] = []
        self.on_step = on_step

    def started(self, job: Job) -> None:
        self.began.append(job.key)

    def stepped(self, job: Job, now: Progress) -> None:
        self.on_step(job, now)

    def finished(self, job: Job, row: dict[str, Any]) -> None:
        self.ended.append(job.key)

    def failed(self, job: Job, error: UserError) -> None: ...

    def waiting(self, jobs: dict[Key, str]) -> None: ...


def run(arguments: BenchArguments, view: Diary, deadline: Callable[[], bool] = lambda: False) -> Outcome:
    catalog, plan = prepare(arguments)
    folder = out_folder(arguments)
    check_folder(plan, folder)
    return work(plan, folder, Tasks(catalog), Options(device="cpu", threads=1), view, deadline)


def rows_of(arguments: BenchArguments) -> list[dict[str, Any]]:
    return Results(out_folder(arguments) / "results.jsonl").rows()


def test_done_runs_are_skipped_and_lines_hold_what_a_table_needs(arguments: Make) -> None:
    first = arguments(methods="erm,proud", combos="one:two", note="made up")
    assert bench(first) == 0
    rows = rows_of(first)
    assert [row["method"] for row in rows] == ["erm", "proud"]
    for name in ("commit", "versions", "device", "seed", "seconds", "test_accuracy", "config", "note", "command"):
        assert name in rows[0]
    assert rows[0]["unlabeled"] == ["four", "three"] and rows[0]["images"]["two"] == 8
    assert "root" not in rows[0]["config"] and str(Path(first.name).parent) not in json.dumps(rows)
    assert not list(out_folder(first).glob("runs/*/checkpoints"))
    second = Diary()
    assert run(arguments(methods="erm,proud", combos="one:two,two:one"), second).stopped == ""
    assert second.began == [("erm", "two", "one", 1), ("proud", "two", "one", 1)]
    assert [key_of(row) for row in rows_of(first)][2:] == second.began


def test_results_alone_are_enough_to_go_on(arguments: Make, tmp_path: Path) -> None:
    """A results file from another machine: its runs are not repeated."""
    bench(arguments())
    there = tmp_path / "there"
    there.mkdir()
    (there / "results.jsonl").write_bytes((out_folder(arguments()) / "results.jsonl").read_bytes())
    diary = Diary()
    run(arguments(out=str(there), seeds="1,2"), diary)
    assert {key.seed for key in diary.began} == {2}


def test_a_finished_run_without_its_line_is_recorded_not_repeated(arguments: Make) -> None:
    bench(arguments())
    path = out_folder(arguments()) / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # killed while writing the second
    steps: list[Progress] = []
    run(arguments(), Diary(lambda job, now: steps.append(now)))
    assert not steps
    rows = rows_of(arguments())
    assert len(rows) == 2 and rows[1]["test_accuracy"] == json.loads(lines[1])["test_accuracy"]
    assert not Results(path).add(rows[0])
    assert len(rows_of(arguments())) == 2


def test_other_settings_are_refused(arguments: Make) -> None:
    bench(arguments(combos="one:two"))
    with pytest.raises(UserError, match=r"(?s)other settings.*lr: 0\.01 → 0\.5"):
        bench(arguments(combos="two:one", set=("batch_size=4", "lr=0.5")))
    with pytest.raises(UserError, match="epochs: 1 → 2"):
        bench(arguments(combos="one:two", epochs=2))


def test_a_setting_that_is_no_more_counts_if_it_was_on(arguments: Make, tmp_path: Path) -> None:
    bench(arguments(combos="one:two"))
    path = tmp_path / "out" / "results.jsonl"
    row = json.loads(path.read_text())
    for value, refused in ((False, False), (0.0, False), (0.3, True)):
        row["config"]["method_config"]["glitter"] = value
        path.write_text(json.dumps(row) + "\n")
        if not refused:
            bench(arguments(combos="one:two"))
            continue
        with pytest.raises(UserError, match=r"(?s)other settings.*glitter: 0\.3 → None"):
            bench(arguments(combos="one:two"))


def test_a_half_done_run_of_other_settings_is_refused_before_anything_runs(arguments: Make) -> None:
    run(arguments(epochs=50), Diary(), deadline=after(5))
    diary = Diary()
    with pytest.raises(UserError, match="epochs: 50 → 60"):
        run(arguments(epochs=60), diary)
    assert not diary.began


def after(looks: int) -> Callable[[], bool]:
    """A deadline that passes after it was looked at so often."""
    left = [looks]

    def passed() -> bool:
        left[0] -= 1
        return left[0] < 0

    return passed


def test_a_stopped_run_goes_on_where_it_was(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proud.training.loop.CHECKPOINT_SECONDS", 0.0)
    seen: list[tuple[str, int]] = []
    diary = Diary(lambda job, now: seen.append((now.stage, now.epoch)))
    assert run(arguments(epochs=6, combos="one:two"), diary, deadline=after(20)).stopped == "time"
    stage, epoch = seen[-1]
    assert not rows_of(arguments()) and stage == "main" and 2 < epoch < 6
    before = len(seen)
    assert run(arguments(epochs=6, combos="one:two"), diary).stopped == ""
    assert seen[before] in ((stage, epoch), (stage, epoch + 1))  # not from the start
    records = (out_folder(arguments()) / "runs" / "erm-one-two-1" / "records.jsonl").read_text().splitlines()
    assert len(records) == 7 and len(rows_of(arguments())) == 1


def test_minutes_end_a_bench_in_time(arguments: Make) -> None:
    long = arguments(epochs=100_000, minutes=0.06)
    began = time.monotonic()
    assert bench(long) == 0
    assert 3 < time.monotonic() - began < 20
    run = out_folder(long) / "runs" / "erm-one-two-1"
    first = newest_checkpoint(run)
    assert bench(long) == 0
    assert newest_checkpoint(run) > first > 0  # it went on from where it was
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert len({(line["stage"], line["epoch"]) for line in lines}) == len(lines)


def newest_checkpoint(run: Path) -> int:
    """How many epochs the newest checkpoint knows."""
    return max(int(path.stem.removeprefix("checkpoint-")) for path in (run / "checkpoints").glob("checkpoint-*.json"))


def test_ctrl_c_keeps_the_queue_usable(arguments: Make) -> None:
    def press(job: Job, now: Progress) -> None:
        if now.stage == "main" and now.step == 1 and not pressed:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[int] = []
    assert run(arguments(epochs=3), Diary(press)).stopped == "signal"
    assert run(arguments(epochs=3), Diary()) == Outcome("", {})
    assert len(rows_of(arguments())) == 2


def test_one_failing_run_does_not_stop_the_others(arguments: Make) -> None:
    broken = arguments(methods="erm,proud", combos="one:two", set=("batch_size=4", "lr=1e30"))
    outcome = run(broken, Diary())
    assert {key.method for key in outcome.failures} == {"erm", "proud"}
    assert bench(broken) == 1


def test_what_nobody_expected_in_one_run_does_not_stop_the_others(
    arguments: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(run: Any, *rest: Any, **named: Any) -> Any:
        if run.method == "erm":
            raise TypeError("expected Tensor as element 11")
        return usual(run, *rest, **named)

    usual = worker.train
    monkeypatch.setattr(worker, "train", train)
    given = arguments(methods="erm,proud", combos="one:two")
    outcome = run(given, Diary())
    assert [key.method for key in outcome.failures] == ["erm"]
    (message,) = outcome.failures.values()
    assert "TypeError: expected Tensor as element 11" in message
    (story,) = out_folder(given).glob("runs/*/error.txt")
    assert "Traceback" in story.read_text()
    assert [row["method"] for row in rows_of(given)] == ["proud"]
    monkeypatch.undo()
    assert bench(given) == 0
    assert {row["method"] for row in rows_of(given)} == {"erm", "proud"}


def test_the_same_failure_twice_ends_the_bench(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_train(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise UserError("the weights could not be downloaded")

    calls: list[int] = []
    monkeypatch.setattr(worker, "train", no_train)
    with pytest.raises(UserError, match="downloaded"):
        run(arguments(combos="all"), Diary())
    assert len(calls) == 2


def test_missing_weights_are_told_before_anything_runs(arguments: Make) -> None:
    with pytest.raises(UserError, match=r"(?i)no such file"):
        bench(arguments(model="resnet18", size=32, weights="/no/such/file.safetensors"))


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "job.lock"
    with claim(path) as first, claim(path) as second:
        assert first and not second
        assert str(os.getpid()) in owner(path)
    with claim(path) as again:
        assert again
    assert owner(path) == "another worker"


def test_every_domain_is_decoded_once(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(sources: Any, side: int, **options: Any) -> Any:
        calls.append(options["description"])
        return store.decode_all(sources, side, **options)

    monkeypatch.setattr("proud.data.reader.decode_all", counting)
    assert run(arguments(combos="all"), Diary()).stopped == ""
    assert len(rows_of(arguments())) == 12
    assert sorted(calls) == sorted(f"Decoding {name}" for name in ("one", "two", "three", "four"))


def test_tasks_from_the_cache_are_those_made_afresh(arguments: Make) -> None:
    catalog, plan = prepare(arguments(combos="all"))
    shared = Tasks(catalog)
    for job in plan.jobs:
        cached, fresh = shared(job.run), Tasks(catalog)(job.run)
        plain = worker.assemble(
            catalog, labeled=job.run.labeled, test=job.run.test, unlabeled=job.run.unlabeled, size=16, val=0.1, seed=1
        )
        for other in (fresh, plain):
            assert other.report == cached.report
            for a, b in (
                (cached.training.labeled, other.training.labeled),
                (cached.evaluation.validation, other.evaluation.validation),
                (cached.evaluation.test, other.evaluation.test),
            ):
                assert a is not None and b is not None
                assert torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)
            for one, two in zip(cached.training.unlabeled, other.training.unlabeled, strict=True):
                assert one.ids == two.ids and torch.equal(one.images, two.images)


def test_two_workers_share_a_folder_and_one_is_killed(arguments: Make, start_worker: Start) -> None:
    shared = arguments(combos="one:two,one:three,two:one,two:three,three:one,four:one", epochs=25, quiet=False)
    folder = out_folder(shared)
    doomed, other = start_worker(shared), start_worker(shared)
    try:
        victim = wait_for_job_of(doomed, folder)
        doomed.send_signal(signal.SIGKILL)
        rest, _ = doomed.communicate()
        survived, _ = other.communicate(timeout=120)
    finally:
        for process in (doomed, other):
            process.kill()
    assert other.returncode == 0, survived
    rows = rows_of(shared)
    assert len(rows) == 6 and len({key_of(row) for row in rows}) == 6
    assert sum("shared" in row for row in rows) == 2  # one → three and two → one gave their training to the other
    assert victim in {row["labeled"] + ":" + row["test"] for row in rows}
    told = Counter(line.split("erm ")[1].split(",")[0] for line in (rest + survived).splitlines() if "/6  erm" in line)
    assert max(told.values()) == 1  # nobody ran what the other had done
    for row in rows:
        records = folder / "runs" / f"erm-{row['labeled']}-{row['test']}-1" / "records.jsonl"
        assert len(records.read_text().splitlines()) == 26


def wait_for_job_of(process: subprocess.Popen[str], folder: Path) -> str:
    """Until this process is in the midst of a run; returns which."""
    for _ in range(600):
        for lock in folder.glob("locks/*.lock"):
            records = folder / "runs" / lock.stem / "records.jsonl"
            busy = records.exists() and records.read_text().count("\n") > 3
            if busy and f"process {process.pid} " in owner(lock):
                _, labeled, test, _ = lock.stem.split("-")
                return f"{labeled}:{test}"
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise AssertionError("the worker never came to work")
