"""The queue with real runs on tiny images: interruption, takeover, failures, every result exactly once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.small_bench import DOMAINS, Diary, Make, after, rows_of, work_on, write_domains
from bench.workers import get_stuck, run_bench
from proud.bench import queue
from proud.bench.claims import claim, owner
from proud.bench.plan import Job
from proud.bench.queue import Answer, Outcome, Scheduler
from proud.bench.results import Results, key_of
from proud.bench.reuse import Tasks
from proud.cli import bench
from proud.cli.bench import out_folder, prepare
from proud.data import reader
from proud.data.source import find_task
from proud.data.task import read_task
from proud.errors import UserError
from proud.training.loop import Progress
from reliability.children import ends, read, start, wait_until


@pytest.fixture
def checkpoints_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proud.training.loop.CHECKPOINT_SECONDS", 0.0)


# ---- what is done is not done again


def test_done_runs_are_skipped_and_rows_hold_what_a_table_needs(arguments: Make) -> None:
    first = arguments(methods="erm,proud", combos="one:two", note="made up")
    assert bench.run(first) == 0
    rows = rows_of(first)
    assert [row["method"] for row in rows] == ["erm", "proud"]
    for name in ("commit", "versions", "device", "seed", "seconds", "test_accuracy", "config", "note", "command"):
        assert name in rows[0]
    assert rows[0]["unlabeled"] == ["four", "three"] and rows[0]["images"]["two"] == 8
    assert "root" not in rows[0]["config"] and str(Path(first.name).parent) not in json.dumps(rows)
    assert not list(out_folder(first).glob("runs/*/checkpoints"))
    second = Diary()
    assert work_on(arguments(methods="erm,proud", combos="one:two,two:one"), second).stopped == ""
    assert second.began == second.ended == [("erm", "two", "one", 1), ("proud", "two", "one", 1)]
    assert [key_of(row) for row in rows_of(first)][2:] == second.began


def test_results_alone_are_enough_to_continue(arguments: Make, tmp_path: Path) -> None:
    """The runs in a results file from another machine are not repeated."""
    bench.run(arguments(combos="one:two"))
    there = tmp_path / "there"
    there.mkdir()
    (there / "results.jsonl").write_bytes((out_folder(arguments()) / "results.jsonl").read_bytes())
    diary = Diary()
    work_on(arguments(combos="one:two", out=str(there), seeds="1,2"), diary)
    assert {key.seed for key in diary.began} == {2}


def test_a_finished_run_without_its_row_is_recorded_and_not_repeated(arguments: Make) -> None:
    bench.run(arguments())
    path = out_folder(arguments()) / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # killed while writing the second
    steps: list[Progress] = []
    work_on(arguments(), Diary(lambda job, now: steps.append(now)))
    assert not steps
    rows = rows_of(arguments())
    assert len(rows) == 2 and rows[1]["test_accuracy"] == json.loads(lines[1])["test_accuracy"]
    assert not Results(path).add(rows[0])
    assert len(rows_of(arguments())) == 2


def test_a_job_that_another_worker_has_finished_meanwhile_is_not_attempted(arguments: Make) -> None:
    """Between the look at the results and the claim."""
    bench.run(arguments(combos="one:two"))
    catalog, plan = prepare(arguments(combos="one:two"))
    folder = out_folder(arguments())
    reuse, started = queue.WorkReuse(plan, folder, Tasks(catalog), queue.Options(device="cpu")), []
    answer = queue.attempt(
        reuse,
        plan.jobs[0],
        [],
        plan.jobs,
        queue.Options(device="cpu"),
        lambda now: None,
        results=Results(folder / "results.jsonl"),
        started=started.append,
    )
    assert answer == Answer() and not started


def test_the_same_data_under_another_path_continues(
    tmp_path: Path, arguments: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_domains(tmp_path / "sites", ("A", "B", "C"), ["x", "y"], 4)
    assert bench.run(arguments(name=str(root), combos="A:B")) == 0
    monkeypatch.chdir(tmp_path)
    again = arguments(name="./sites", combos="A:B,B:A")
    assert bench.run(again) == 0 and len(rows_of(again)) == 2


# ---- settings


def test_other_settings_are_refused(arguments: Make) -> None:
    bench.run(arguments(combos="one:two"))
    with pytest.raises(UserError, match=r"(?s)other settings.*lr: 0\.01 → 0\.5"):
        bench.run(arguments(combos="two:one", set=("batch_size=4", "least_steps=1", "lr=0.5")))
    with pytest.raises(UserError, match="epochs: 1 → 2"):
        bench.run(arguments(combos="one:two", epochs=2))


def test_a_half_done_run_of_other_settings_is_refused_before_anything_runs(arguments: Make) -> None:
    work_on(arguments(epochs=50), Diary(), deadline=after(5))
    diary = Diary()
    with pytest.raises(UserError, match="epochs: 50 → 60"):
        work_on(arguments(epochs=60), diary)
    assert not diary.began


def test_missing_weights_are_reported_before_anything_runs(arguments: Make) -> None:
    with pytest.raises(UserError, match=r"(?i)no such file"):
        bench.run(arguments(model="resnet18", size=32, weights="/no/such/file.safetensors"))


# ---- stopping


@pytest.mark.usefixtures("checkpoints_every_epoch")
def test_a_stopped_run_continues_where_it_was(arguments: Make) -> None:
    seen: list[tuple[str, int]] = []
    diary = Diary(lambda job, now: seen.append((now.stage, now.epoch)))
    assert work_on(arguments(epochs=6, combos="one:two"), diary, deadline=after(20)).stopped == "time"
    stage, epoch = seen[-1]
    assert not rows_of(arguments()) and stage == "main" and 2 < epoch < 6
    before = len(seen)
    assert work_on(arguments(epochs=6, combos="one:two"), diary).stopped == ""
    assert seen[before] in ((stage, epoch), (stage, epoch + 1))  # not from the start
    records = (out_folder(arguments()) / "runs" / "erm-one-two-1" / "records.jsonl").read_text().splitlines()
    assert len(records) == 7 and len(rows_of(arguments())) == 1


class Clock:
    """A second passes at every look."""

    now = 0

    def monotonic(self) -> int:
        self.now += 1
        return self.now


@pytest.mark.usefixtures("checkpoints_every_epoch")
def test_minutes_end_a_bench(
    arguments: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("proud.cli.bench.time", clock)
    long = arguments(epochs=100_000, minutes=0.5)
    run = out_folder(long) / "runs" / "erm-one-two-1"
    saved = [0]
    for _ in range(2):
        began = clock.now
        assert bench.run(long) == 0
        assert 30 <= clock.now - began < 35
        assert "The time is up: 2 of 2 runs are left" in capsys.readouterr().out
        saved.append(newest_checkpoint(run))
    assert saved == sorted(set(saved))  # the second continued from where the first was
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert len({(line["stage"], line["epoch"]) for line in lines}) == len(lines)


def newest_checkpoint(run: Path) -> int:
    """How many epochs the newest checkpoint has."""
    return max(int(path.stem.removeprefix("checkpoint-")) for path in (run / "checkpoints").glob("checkpoint-*.json"))


def test_ctrl_c_keeps_the_queue_usable(arguments: Make) -> None:
    def press(job: Job, now: Progress) -> None:
        if now.stage == "main" and now.step == 1 and not pressed:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[int] = []
    assert work_on(arguments(epochs=3), Diary(press)).stopped == "signal"
    assert work_on(arguments(epochs=3), Diary()) == Outcome("", {})
    assert len(rows_of(arguments())) == 2


# ---- failures


def test_one_failing_run_does_not_stop_the_others(arguments: Make) -> None:
    broken = arguments(methods="erm,proud", combos="one:two", set=("batch_size=4", "least_steps=1", "lr=1e30"))
    outcome = work_on(broken, Diary())
    assert {key.method for key in outcome.failures} == {"erm", "proud"}
    assert bench.run(broken) == 1


def test_combinations_whose_classes_do_not_fit_do_not_stop_the_others(tmp_path: Path, arguments: Make) -> None:
    """They fail with the same words twice, but these name their domains."""
    root = write_domains(tmp_path / "sites", ("A", "C"), ["x", "y", "z"], 2)
    write_domains(root, ("B",), ["x", "y"], 2, seed=1)
    uneven = arguments(name=str(root), methods="erm,proud", combos="all")
    assert bench.run(uneven) == 1
    assert {(row["labeled"], row["test"]) for row in rows_of(uneven)} == {
        ("A", "B"),
        ("A", "C"),
        ("C", "A"),
        ("C", "B"),
    }


def test_an_unexpected_error_in_one_run_does_not_stop_the_others(
    arguments: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(run: Any, *rest: Any, **named: Any) -> Any:
        if run.method == "erm":
            raise TypeError("expected Tensor as element 11")
        return usual(run, *rest, **named)

    usual = queue.train
    monkeypatch.setattr(queue, "train", train)
    given = arguments(methods="erm,proud", combos="one:two")
    outcome = work_on(given, Diary())
    assert [key.method for key in outcome.failures] == ["erm"]
    (message,) = outcome.failures.values()
    assert "TypeError: expected Tensor as element 11" in message
    (story,) = out_folder(given).glob("runs/*.error.txt")
    assert "Traceback" in story.read_text()
    assert [row["method"] for row in rows_of(given)] == ["proud"]
    monkeypatch.setattr(queue, "train", usual)
    assert bench.run(given) == 0
    assert {row["method"] for row in rows_of(given)} == {"erm", "proud"}


def test_the_same_failure_twice_ends_the_bench(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_train(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise UserError("the weights could not be downloaded")

    calls: list[int] = []
    monkeypatch.setattr(queue, "train", no_train)
    with pytest.raises(UserError, match="downloaded"):
        work_on(arguments(combos="all"), Diary())
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("error", "general"),
    [("--weights x: no such file.", True), ("The test domain 'two' has no image of 'a'.", False)],
)
def test_an_error_is_general_if_two_jobs_had_it_and_it_does_not_name_their_domains(
    error: str, general: bool, tmp_path: Path, arguments: Make
) -> None:
    """The scheduler decides, for jobs of this process and of Ray alike."""
    _, plan = prepare(arguments(methods="erm,proud", combos="one:two"))
    first, second = plan.jobs
    scheduler = Scheduler(plan, tmp_path, Diary())
    scheduler.settle(first, Answer(error=error))
    assert scheduler.failures == {first.key: error} and scheduler.fatal is None
    scheduler.settle(second, Answer(error=error))
    assert (scheduler.fatal is not None) == general
    if general:
        with pytest.raises(UserError, match="no such file"):
            scheduler.outcome("")
    else:
        assert scheduler.outcome("").failures == {first.key: error, second.key: error}


def test_a_result_that_is_refused_is_a_failure_of_its_job(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Results.add

    def choosy(self: Results, row: dict[str, Any]) -> bool:
        if row["test"] == "two":
            raise UserError("of different images")
        return add(self, row)

    monkeypatch.setattr(Results, "add", choosy)
    outcome = work_on(arguments(), Diary())
    assert [key.test for key in outcome.failures] == ["two"]
    assert [row["test"] for row in rows_of(arguments())] == ["one"]


# ---- images


def test_every_domain_is_decoded_once(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(sources: Any, pixels: Any, **options: Any) -> Any:
        calls.append(options["description"])
        return usual(sources, pixels, **options)

    usual = reader.decode_all
    monkeypatch.setattr(reader, "decode_all", counting)
    assert work_on(arguments(combos="one:two,two:one,three:one,four:one"), Diary()).stopped == ""
    assert len(rows_of(arguments())) == 4
    assert sorted(calls) == sorted(f"Decoding {name}" for name in DOMAINS)


def test_tasks_from_memory_are_those_read_anew(arguments: Make) -> None:
    catalog, plan = prepare(arguments(combos="all"))
    shared = Tasks(catalog)
    for job in plan.jobs:
        cached, fresh = shared(job.run), Tasks(catalog)(job.run)
        plain = read_task(find_task(job.run, catalog), 16)
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


def test_decoded_images_are_kept_where_the_user_says(arguments: Make, tmp_path: Path) -> None:
    assert bench.run(arguments(combos="one:two", cache=str(tmp_path / "cache"))) == 0
    assert len(list((tmp_path / "cache").glob("*/done.json"))) == len(DOMAINS)
    assert bench.run(arguments(combos="two:one", cache="none")) == 0


# ---- several workers


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "job.lock"
    with claim(path) as first, claim(path) as second:
        assert first and not second
        assert str(os.getpid()) in owner(path)
    with claim(path) as again:
        assert again
    assert owner(path) == "another worker"


@pytest.mark.parametrize("name", ["locks/erm-one-two-1.lock", "results.jsonl"])
@pytest.mark.parametrize("put", ["link", "pipe"])
def test_a_bench_writes_through_no_link(name: str, put: str, arguments: Make, tmp_path: Path) -> None:
    given = arguments(combos="one:two")
    victim, place = tmp_path / "victim", out_folder(given) / name
    victim.write_bytes(b"precious" if put == "link" and name.startswith("locks") else b"")
    before = victim.read_bytes()
    place.parent.mkdir(parents=True)
    place.symlink_to(victim) if put == "link" else os.mkfifo(place)
    with pytest.raises(UserError):
        bench.run(given)
    assert victim.read_bytes() == before


def test_two_workers_share_a_folder_and_one_is_killed(arguments: Make, tmp_path: Path) -> None:
    """The first is killed in its second job. The other does what is free, waits for that job and takes it over."""
    shared = arguments(combos="four:one,one:three,one:two,three:one,two:one,two:three", epochs=6, quiet=False)
    folder, stuck = out_folder(shared), tmp_path / "stuck"
    logs = [tmp_path / "doomed.log", tmp_path / "other.log"]
    doomed = start(get_stuck, logs[0], shared, "three", 4, stuck)
    wait_until(stuck.exists, doomed)
    lock = folder / "locks" / "erm-one-three-1.lock"
    assert f"process {doomed.pid} " in owner(lock)
    other = start(run_bench, logs[1], shared)
    wait_until(lambda: "Waiting for 2 runs of other workers" in read(logs[1]), other)
    assert {(row["labeled"], row["test"]) for row in rows_of(shared)} == {
        ("four", "one"),
        ("three", "one"),
        ("two", "one"),
        ("two", "three"),
    }
    doomed.kill()
    assert ends(other) == 0, read(logs[1])
    ends(doomed)
    rows = rows_of(shared)
    assert len(rows) == 6 and len({key_of(row) for row in rows}) == 6
    assert {row["test"] for row in rows if "shared" in row} == {"two", "three"}  # of one and of two
    said = "".join(map(read, logs))
    count = Counter(line.split("erm ")[1].split(",")[0] for line in said.splitlines() if "/6  erm" in line)
    assert len(count) == 6 and max(count.values()) == 1  # neither ran what the other had done
    for row in rows:
        records = folder / "runs" / f"erm-{row['labeled']}-{row['test']}-1" / "records.jsonl"
        assert len(records.read_text().splitlines()) == 7
