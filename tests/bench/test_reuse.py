"""No work twice: runs that share a training or a pretraining end as they would have ended alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench.small_bench import Diary, Make, after, rows_of, work_on
from proud.bench.reuse import Families, Tasks, WorkReuse, family
from proud.cli import bench
from proud.cli.bench import out_folder, prepare
from proud.config import Options
from proud.methods import METHODS, code_of
from toy import write_folders

THREE = "one:four,one:three,one:two"
TWO = "one:three,one:two"
BOTH: dict[str, Any] = {"methods": "erm,proud", "epochs": 5, "pretrain_epochs": 3}


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Domains of different sizes: the steps of an epoch depend on which of them are unlabeled."""
    root = tmp_path_factory.mktemp("data") / "uneven"
    for look, (name, per_class) in enumerate({"one": 2, "two": 1, "three": 3, "four": 5}.items()):
        write_folders(root, {name: look}, per_class=per_class)
    return {"name": str(root), "set": ("batch_size=8", "least_steps=1")}


class Steps(Diary):
    """Counts the steps of every method, test domain and stage."""

    def __init__(self) -> None:
        super().__init__(self.count)
        self.steps: dict[tuple[str, str, str], int] = {}

    def count(self, job: Any, now: Any) -> None:
        if now.record is None and now.step and not now.note:
            key = (job.run.method, job.run.test, now.stage)
            self.steps[key] = self.steps.get(key, 0) + 1


Apart = Callable[..., list[Path]]


@pytest.fixture(scope="session")
def runs_apart() -> dict[str, Path]:
    return {}


@pytest.fixture
def apart(arguments: Make, runs_apart: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """Every combination in a bench of its own; each is run once for all tests."""

    def make(combos: str, **changes: Any) -> list[Path]:
        outs = []
        for combo in combos.split(","):
            key = repr((combo, sorted(changes.items())))
            if key not in runs_apart:
                runs_apart[key] = tmp_path_factory.mktemp("apart")
                assert bench.run(arguments(combos=combo, eval_every=1, out=str(runs_apart[key]), **changes)) == 0
            outs.append(runs_apart[key])
        return outs

    return make


def assert_same_runs(together: Path, separate: list[Path]) -> None:
    """The same rows, weights and outputs, and the same records but for test accuracies of shared epochs that do not
    count."""
    there = {path.name: path for out in separate for path in (out / "runs").iterdir()}
    assert {path.name for path in (together / "runs").iterdir()} == there.keys()
    for name, path in there.items():
        for file in ("model/model.safetensors", "outputs.safetensors"):
            mine, theirs = load_file(together / "runs" / name / file), load_file(path / file)
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(value, theirs[key]) for key, value in mine.items()), f"{name}: {file}"
        mine, theirs = (lines(folder / "records.jsonl") for folder in (together / "runs" / name, path))
        assert len(mine) == len(theirs)
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            shared = a.pop("shared_with", None)
            if shared and number < len(mine) - 5:
                b = {key: value for key, value in b.items() if not key.startswith("test_")}
            assert a == b, f"{name}, line {number}"
    mine, theirs = (
        [plain(row) for out in outs for row in lines(out / "results.jsonl")] for outs in ([together], separate)
    )
    key = lambda row: (row["method"], row["test"])  # noqa: E731
    assert sorted(mine, key=key) == sorted(theirs, key=key)
    assert not (together / "shared").exists()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("finished", "seconds", "shared", "seal")}


@pytest.mark.parametrize(
    ("methods", "epochs", "combos"), [("rsc,dgvgs,l2d", 1, TWO), ("rsc", 6, TWO), ("erm-noisemix", 6, THREE)]
)
def test_a_training_on_the_labeled_domain_alone_serves_all_test_domains(
    arguments: Make, apart: Apart, methods: str, epochs: int, combos: str
) -> None:
    settings: dict[str, Any] = {"methods": methods, "epochs": epochs, "pretrain_epochs": 2}
    together, view = arguments(combos=combos, **settings), Steps()
    assert work_on(together, view).stopped == ""
    first = combos.split(",")[0].removeprefix("one:")
    assert {test for _, test, _ in view.steps} == {first}
    assert_same_runs(out_folder(together), apart(combos, **settings))
    for row in rows_of(together):
        assert row.get("shared") == (
            None if row["test"] == first else {"part": "training", "method": row["method"], "test": first}
        )


def test_where_steps_differ_only_the_pretraining_is_shared(
    arguments: Make, uneven: dict[str, Any], apart: Apart
) -> None:
    settings = uneven | {"methods": "erm,rsc", "epochs": 6, "pretrain_epochs": 2}
    together, view = arguments(combos=TWO, **settings), Steps()
    assert work_on(together, view).stopped == ""
    assert {(method, test) for method, test, stage in view.steps if stage == "main"} == {
        (method, test) for method in ("erm", "rsc") for test in ("two", "three")
    }
    # how much RSC removes grows with the share of all steps that are done: its pretraining depends on their number
    assert {(method, test) for method, test, stage in view.steps if stage == "pretrain"} == {
        ("erm", "three"),
        ("rsc", "three"),
        ("rsc", "two"),
    }
    assert_same_runs(out_folder(together), apart(TWO, **settings))


@pytest.mark.parametrize(
    ("methods", "sizes"), [("proud-plus,mean-teacher,fixmatch-noisemix", "uneven"), ("eid", "even")]
)
def test_the_pretraining_serves_all_test_domains(
    arguments: Make, uneven: dict[str, Any], apart: Apart, methods: str, sizes: str
) -> None:
    settings = {"methods": methods, "epochs": 5} | (uneven if sizes == "uneven" else {})
    together, view = arguments(combos=TWO, **settings), Steps()
    assert work_on(together, view).stopped == ""
    assert {test for _, test, stage in view.steps if stage == "pretrain"} == {"three"}
    assert_same_runs(out_folder(together), apart(TWO, **settings))
    shared = {row["method"]: row.get("shared") for row in rows_of(together) if row["test"] == "two"}
    assert shared == {name: {"part": "pretraining", "method": name, "test": "three"} for name in methods.split(",")}


def test_epochs_that_count_are_measured_on_the_runs_own_test_domain(arguments: Make) -> None:
    """With fewer than five main epochs some of the last five are of the pretraining."""
    together = arguments(methods="proud", combos=TWO, epochs=4)
    assert bench.run(together) == 0
    assert all("shared" not in row and len(row["test_accuracy_last"]) == 4 for row in rows_of(together))


@pytest.mark.parametrize("looks", (12, 30, 61))
def test_stopped_anywhere_it_ends_the_same(
    arguments: Make, apart: Apart, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr("proud.training.loop.CHECKPOINT_SECONDS", 0.0)
    together, view, stops = arguments(combos=TWO, **BOTH), Steps(), 0
    while work_on(together, view, deadline=after(looks)).stopped == "time":
        stops += 1
        assert stops < 50
    assert {test for method, test, stage in view.steps if method == "erm" or stage == "pretrain"} == {"three"}
    assert len(rows_of(together)) == 4
    assert_same_runs(out_folder(together), apart(TWO, **BOTH))


def test_runs_with_a_row_already_are_not_run_for_the_others(arguments: Make, apart: Apart) -> None:
    settings: dict[str, Any] = {"epochs": 6, "pretrain_epochs": 1}
    (separate,) = apart("one:four", **settings)
    together = arguments(combos=THREE, **settings)
    out_folder(together).mkdir()
    shutil.copy(separate / "results.jsonl", out_folder(together))
    view = Steps()
    assert work_on(together, view).stopped == ""
    assert {test for _, test, _ in view.steps} == {"three"}
    assert [(row["test"], "shared" in row) for row in rows_of(together)] == [
        ("four", False),
        ("three", False),
        ("two", True),
    ]


@pytest.mark.parametrize("file", ["kept.json", "checkpoint-*.safetensors", "checkpoint-*.json"])
def test_damaged_shared_work_is_done_again(arguments: Make, apart: Apart, file: str) -> None:
    together = arguments(combos=TWO, **BOTH)

    class Vandal(Diary):
        def finished(self, job: Any, row: Any) -> None:
            for path in out_folder(together).glob(f"shared/*/**/{file}"):
                content = path.read_bytes()
                path.write_bytes(content[: len(content) // 2])

    with pytest.warns(UserWarning, match="is damaged"):
        assert work_on(together, Vandal()).stopped == ""
    assert not any("shared" in row for row in rows_of(together))
    assert_same_runs(out_folder(together), apart(TWO, **BOTH))


def test_in_processes_side_by_side_nothing_is_trained_twice_or_differently(arguments: Make, apart: Apart) -> None:
    together = arguments(combos=TWO, parallel=2, eval_every=1, **BOTH)
    assert bench.run(together) == 0
    assert sorted(row["method"] for row in rows_of(together) if "shared" not in row) == ["erm", "proud"]
    assert_same_runs(out_folder(together), apart(TWO, **BOTH))


def test_an_equal_budget_is_shared_too(arguments: Make) -> None:
    settings = {"methods": "erm,proud", "epochs": 0, "equal_budget": 5, "set": ("batch_size=8", "least_steps=1")}
    together, view = arguments(combos=TWO, **settings), Steps()
    assert work_on(together, view).stopped == ""
    assert {test for method, test, stage in view.steps if method == "erm" or stage == "pretrain"} == {"three"}


def test_keys_differ_where_anything_differs_that_decides_the_work(arguments: Make, uneven: dict[str, Any]) -> None:
    def keys(options: Options | None = None, **changes: Any) -> Any:
        catalog, plan = prepare(arguments(**{"combos": "one:two", "epochs": 5} | changes))
        reuse = WorkReuse(plan, Path(), Tasks(catalog), options or Options(device="cpu", threads=1))
        return reuse.keys(plan.jobs[0])

    usual = keys()
    assert usual == keys() == keys(combos="one:three") and usual.training and usual.pretraining
    changes: list[dict[str, Any]] = [
        {"seeds": "2"}, {"combos": "two:one"}, {"methods": "erm-noisemix"}, {"methods": "dgvgs"}, {"val": 0.3},
        {"size": 32}, {"set": ("batch_size=4", "least_steps=1", "lr=0.5")}, {"pretrain_epochs": 2},
        {"precision": "bf16"}, {"options": Options(device="cpu", threads=2)}, {"name": uneven["name"]},
    ]  # fmt: skip
    every = [usual, *(keys(**change) for change in changes)]
    assert len({key.training for key in every}) == len({key.pretraining for key in every}) == len(every)
    # EID has a buffer with a row for each unlabeled image: it shares only between domains of the same size
    eid, uneven_eid = ([keys(methods="eid", combos=combo, **more) for combo in TWO.split(",")] for more in ({}, uneven))
    assert eid[0] == eid[1] and uneven_eid[0] != uneven_eid[1]
    longer = keys(epochs=6)
    assert longer.pretraining == usual.pretraining and longer.training != usual.training


def test_a_family_differs_in_the_test_domain_alone(arguments: Make) -> None:
    _, plan = prepare(arguments(combos="all", methods="erm,proud", seeds="1,2"))
    members: dict[str, set[tuple[str, str, int]]] = {}
    for job in plan.jobs:
        members.setdefault(family(job), set()).add((job.run.method, job.run.labeled, job.run.seed))
    assert len(members) == 2 * 4 * 2 and all(len(found) == 1 for found in members.values())


def test_methods_with_the_same_pretraining_share_it(arguments: Make, apart: Apart) -> None:
    settings: dict[str, Any] = {"seeds": "7", "epochs": 5}
    together, view = arguments(combos="one:two", methods="proud,proud-no-pml", **settings), Steps()
    assert work_on(together, view).stopped == ""
    assert {method for method, _, stage in view.steps if stage == "pretrain"} == {"proud"}
    assert rows_of(together)[1]["shared"] == {"part": "pretraining", "method": "proud", "test": "two"}
    separate = [out for method in ("proud", "proud-no-pml") for out in apart("one:two", methods=method, **settings)]
    assert_same_runs(out_folder(together), separate)


def test_what_another_bench_needs_is_not_removed(arguments: Make, tmp_path: Path) -> None:
    """`proud` and `proud-no-pml` have one pretraining, and may be two benches in one folder."""
    mine, other = (prepare(arguments(combos=THREE, methods=name, seeds="7"))[1] for name in ("proud", "proud-no-pml"))
    (name,) = {family(job) for job in [*mine.jobs, *other.jobs]}
    kept = tmp_path / "shared" / name
    kept.mkdir(parents=True)
    with Families(mine, tmp_path) as ours:
        ours.update(set())
        with Families(other, tmp_path) as theirs:
            theirs.update(set())
            ours.update({job.key for job in mine.jobs})
            assert kept.is_dir()
            theirs.update({job.key for job in other.jobs})
        assert not kept.is_dir()
    kept.mkdir(parents=True)
    with Families(other, tmp_path) as theirs:  # stopped before its end: it is needed when it continues
        theirs.update(set())
    assert kept.is_dir()
    with Families(mine, tmp_path) as ours:
        ours.update({job.key for job in mine.jobs})
    assert not kept.is_dir()


def test_a_copy_of_a_method_under_the_same_name_is_another_one(
    arguments: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = "from proud.methods import erm\n\n\nclass ERM(erm.ERM):\n    pass\n"
    (tmp_path / "mine_erm.py").write_text(copy)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "mine", ("mine_erm:ERM", {}))
    assert bench.run(arguments(methods="erm,mine", combos="one:two")) == 0
    rows = rows_of(arguments())
    assert len(rows) == 2 and not any("shared" in row for row in rows)
    code_of.cache_clear()
    family.cache_clear()
    _, plan = prepare(arguments(methods="mine", combos="one:two"))
    before = family(plan.jobs[0]), code_of("mine")
    (tmp_path / "mine_erm.py").write_text(copy + "\n\nCHANGED = True\n")
    code_of.cache_clear()
    family.cache_clear()
    assert family(plan.jobs[0]) == before[0], "otherwise what the older code left would never be removed"
    assert code_of("mine") != before[1]


def test_a_subclass_that_inherits_its_stages_shares_only_where_all_settings_are_the_same(
    arguments: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_proud.py").write_text("from proud.methods import proud\n\n\nclass Mine(proud.ProUD):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, mixup in (("mine-1", 1.0), ("mine-4", 4.0)):
        monkeypatch.setitem(METHODS, name, ("mine_proud:Mine", {"mixup": mixup}))
    _, plan = prepare(arguments(methods="mine-1,mine-4,proud,proud-no-udmix", combos="one:two", epochs=6))
    first, second, proud, without = (family(job) for job in plan.jobs)
    assert first != second and proud == without


def test_a_stage_of_labeled_images_alone_cannot_read_others(
    arguments: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from proud.methods import erm\n\n\nclass Peek(erm.ERM):\n    def begin_epoch(self, stage, epoch, random):\n"
        "        super().begin_epoch(stage, epoch, random)\n"
        "        self.context.unlabeled.take(self.context.labels[:1])\n"
    )
    (tmp_path / "mine_peek.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "peek", ("mine_peek:Peek", {}))
    assert bench.run(arguments(methods="peek", combos="one:two")) == 1
    (told,) = (out_folder(arguments()) / "runs").glob("*.error.txt")
    assert "reads unlabeled images, but its pools name labeled ones alone" in told.read_text()
