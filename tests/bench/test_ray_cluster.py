"""The queue on a Ray cluster of this machine: a killed worker, Ctrl-C, and every result exactly once."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.ray_jobs import two_benches
from bench.small_bench import Diary, Make, work_on
from proud.bench.queue import Answer, Scheduler
from proud.bench.ray_cluster import Driver, Resources, SharedPaths, cluster, run_remotely, tasks_of
from proud.bench.results import Results, key_of
from proud.bench.reuse import Families
from proud.cli.bench import out_folder, prepare
from proud.config import Options
from proud.errors import UserError
from reliability.children import ends, read, start, wait_until

COMBOS = "one:two,two:one,one:three"
EPOCHS = 6


@pytest.fixture
def needs_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        assert "CI" not in os.environ, "CI must install proud[dev], which has Ray"
        pytest.skip("Ray is not installed: pip install 'proud[ray]'")


def holders(out: Path) -> dict[str, int]:
    """Job → process that waits in the middle of it."""
    found = {}
    for path in (out / "locks").glob("*.lock"):
        text = path.read_text()
        pid = json.loads(text)["pid"] if text.endswith("}") else 0
        if (out / f"waiting-{path.stem}-{pid}").exists():
            found[path.stem] = pid
    return found


@pytest.mark.usefixtures("needs_ray")
def test_a_killed_worker_and_ctrl_c_lose_nothing_and_repeat_nothing(arguments: Make, tmp_path: Path) -> None:
    given = arguments(combos=COMBOS, epochs=EPOCHS, engine="ray", ray_cpus=(os.cpu_count() or 1) / 2)
    out, log, first, second = out_folder(given), tmp_path / "log", tmp_path / "first", tmp_path / "second"
    benches = start(two_benches, log, given, first, second)
    held = wait_until(lambda: len(holders(out)) == 2 and holders(out), benches)
    assert len(set(held.values())) == 2  # each in a process of its own
    name, victim = next(iter(held.items()))
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: holders(out).get(name, victim) != victim, benches)  # another process took it over
    os.kill(benches.pid, signal.SIGINT)
    wait_until(first.exists, benches)
    assert first.read_text() == "130" and "Stopped: 3 of 3 runs are left. The same command continues." in read(log)
    assert len(list(out.glob("runs/*/checkpoints"))) == 2

    (out / "go").touch()
    assert ends(benches) == 0 and second.read_text() == "0", read(log)
    rows = Results(out / "results.jsonl").rows()
    assert Counter(key_of(row)[1:3] for row in rows) == Counter(tuple(pair.split(":")) for pair in COMBOS.split(","))
    assert [row["test"] for row in rows if "shared" in row] == ["two"]  # one → three comes first, and serves it too
    assert not list(out.glob("runs/*/checkpoints"))
    for row in rows:
        records = (out / "runs" / f"erm-{row['labeled']}-{row['test']}-1" / "records.jsonl").read_text().splitlines()
        epochs = [(record["stage"], record["epoch"]) for record in map(json.loads, records)]
        assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, EPOCHS + 1)]


# ---- without a cluster


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'proud\[ray\]'"), cluster():
        pass


class Task:
    """In place of a remote function."""

    def __init__(self, ray: FakeRay, function: Any) -> None:
        self.ray, self.function = ray, function

    def remote(self, *arguments: Any) -> int:
        self.ray.tasks.append((self.function, arguments))
        return len(self.ray.tasks) - 1


class FakeRay:
    """In place of Ray: a task runs when its answer is fetched. `errors`: what befalls tasks, by test domain."""

    def __init__(self, **errors: Exception) -> None:
        self.errors, self.tasks, self.cancelled = errors, [], []

    def remote(self, **options: Any) -> Any:
        return lambda function: Task(self, function)

    def wait(self, references: list[int], num_returns: int = 1, timeout: float = 0) -> tuple[list[int], list[int]]:
        return references[:num_returns], references[num_returns:]

    def get(self, reference: int) -> Answer:
        function, arguments = self.tasks[reference]
        if error := self.errors.get(arguments[1].run.test):
            raise error
        return function(*arguments)

    def cancel(self, reference: int, force: bool) -> None:
        self.cancelled.append(reference)


@pytest.fixture(autouse=True)
def forget_tasks() -> None:
    tasks_of.cache_clear()


def driver(arguments: Any, ray: FakeRay, view: Diary) -> tuple[Driver, Families]:
    _, plan = prepare(arguments)
    folder = out_folder(arguments)
    paths = SharedPaths(str(Path.cwd()), str(folder), arguments.name, "")
    options = Options(device="cpu", threads=1)
    return Driver(ray, Scheduler(plan, folder, view), paths, options, Resources()), Families(plan, folder)


def test_a_task_that_ray_gives_up_is_a_failure_of_its_job(arguments: Make) -> None:
    view = Diary()
    made, families = driver(arguments(), FakeRay(two=RuntimeError("worker died\nlong story")), view)
    with families:
        assert made.run_until(lambda: "", families) == ""
    outcome = made.scheduler.outcome("")
    assert {key.test: message for key, message in outcome.failures.items()} == {
        "two": "Ray could not run this job: worker died"
    }
    assert [key.test for key in view.ended] == ["one"]
    assert [row["test"] for row in Results(out_folder(arguments()) / "results.jsonl").rows()] == ["one"]


def test_the_same_error_of_two_tasks_ends_the_bench(arguments: Make) -> None:
    ray = FakeRay(**dict.fromkeys(("one", "two", "three"), RuntimeError()))
    made, families = driver(arguments(combos="all"), ray, Diary())
    with families:
        made.run_until(lambda: "", families)
    with pytest.raises(UserError, match="Ray could not run this job: RuntimeError"):
        made.scheduler.outcome("")
    assert len(made.scheduler.failures) == 1


def test_results_that_are_finished_when_it_stops_are_not_lost(arguments: Make) -> None:
    ray = FakeRay()
    made, families = driver(arguments(), ray, Diary())
    with families:
        made.submit(made.scheduler.left(families))
        made.stop()
    assert len(ray.cancelled) == 2
    assert [row["test"] for row in Results(out_folder(arguments()) / "results.jsonl").rows()] == ["two", "one"]


def test_a_row_that_another_bench_has_added_meanwhile_is_not_added_twice(arguments: Make) -> None:
    made, families = driver(arguments(), FakeRay(), Diary())
    with families:
        made.submit(made.scheduler.left(families))
        assert work_on(arguments(), Diary()).stopped == ""
        for reference in list(made.running):
            made.take(reference)
    assert len(Results(out_folder(arguments()) / "results.jsonl").rows()) == 2


def test_other_images_on_another_machine_are_refused(arguments: Make, tmp_path: Path) -> None:
    _, plan = prepare(arguments())
    empty = tmp_path / "other"
    (empty / "one" / "a").mkdir(parents=True)
    (tiny_image,) = sorted(Path(arguments().name).glob("one/a/0.png"))
    (empty / "one" / "a" / "0.png").write_bytes(tiny_image.read_bytes())
    paths = SharedPaths(str(Path.cwd()), str(tmp_path / "out"), str(empty), "")
    answer = run_remotely(plan, plan.jobs[0], [], [], paths, Options(device="cpu"))
    assert "differ from those on the driver's machine" in answer.error
