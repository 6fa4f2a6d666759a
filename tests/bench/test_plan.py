from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from bench.small_bench import Make, write_domains
from proud.bench.plan import DEVELOPMENT, Job, Plan, make_plan, parse_combos, parse_methods, parse_pairs, parse_seeds
from proud.bench.results import command
from proud.cli import bench
from proud.cli.bench import prepare
from proud.config import RunConfig
from proud.data.folder import REPORT_MARK
from proud.errors import UserError
from proud.methods import method_config
from proud.methods.presets import preset
from proud.report.published import PUBLISHED

PACS = tuple(PUBLISHED["pacs"].domains)


def pacs(**changes: object) -> Plan:
    usual: dict = {"methods": ["proud", "erm"], "seeds": [2022, 2023]}
    return make_plan(RunConfig(data="pacs", root="r", model="resnet18.tv_in1k"), "pacs", PACS, **usual | changes)


def test_order_is_seeds_then_combinations_then_methods() -> None:
    jobs = pacs().jobs
    assert len(jobs) == 2 * 12 * 2
    assert [job.key.seed for job in jobs] == [2022] * 24 + [2023] * 24
    assert [(job.run.labeled, job.run.test) for job in jobs[:24:2]] == PUBLISHED["pacs"].combos
    assert [job.run.method for job in jobs[:4]] == ["proud", "erm", "proud", "erm"]
    assert jobs[0].run.unlabeled == ("cartoon", "sketch")
    assert len({job.name for job in jobs}) == len(jobs)


def test_settings_come_from_the_preset_and_then_from_the_user() -> None:
    plan = pacs(overrides={"epochs": "3", "alpha": "2", "schedule": "cosine", "pml": "no"})
    proud, erm = plan.jobs[0].settings, plan.jobs[1].settings
    assert (proud.lr, proud.weight_decay, proud.epochs, proud.schedule) == (0.001, 0.01, 3, "cosine")
    assert proud.alpha == 2.0 and proud.pml is False  # type: ignore[attr-defined]
    assert erm.epochs == 3 and not hasattr(erm, "alpha")
    assert pacs().jobs[0].settings.epochs == 80


@pytest.mark.parametrize("name", ["small", "pacs"])
def test_a_folder_that_is_called_like_a_preset_gets_that_of_its_images(name: str) -> None:
    run = RunConfig(data=name, model="resnet18.tv_in1k")
    found = make_plan(run, name, PACS, methods=["proud"], seeds=[1], data=f"{name} 0123456789ab").jobs[0].settings
    assert found == method_config("proud", **preset("", run.model, "proud"))


def test_a_folder_that_is_called_embedded_is_not_the_built_in_set(tmp_path: Path, arguments: Make) -> None:
    root = write_domains(tmp_path / "embedded", ("A", "B", "C"), ["x", "y"], 2)
    assert prepare(arguments(name=str(root), combos="all"))[1].data.startswith("embedded ")


def test_ablations_by_name() -> None:
    plan = pacs(methods=parse_methods("proud,proud-no-udmix,proud-no-pml"), seeds=[1], combos="photo:sketch")
    assert [(job.settings.udmix, job.settings.pml) for job in plan.jobs] == [  # type: ignore[attr-defined]
        (True, True),
        (False, True),
        (True, False),
    ]


def test_the_development_cells_are_cells_of_the_tables() -> None:
    assert sum(map(len, DEVELOPMENT.values())) == 8
    for name, cells in DEVELOPMENT.items():
        assert cells <= set(PUBLISHED[name].combos)


def test_combinations_are_in_the_order_of_the_table() -> None:
    plan = pacs(combos=" sketch:photo, photo:cartoon ,photo:cartoon", methods=["erm"], seeds=[1])
    assert [(job.run.labeled, job.run.test) for job in plan.jobs] == [("photo", "cartoon"), ("sketch", "photo")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"combos": "photo:skech"}, "no domain 'skech'"),
        ({"combos": "photo"}, "LABELED:TEST"),
        ({"combos": "photo:photo"}, "another one"),
        ({"combos": ","}, "empty"),
        ({"overrides": {"alhpa": "1"}}, "no such setting"),
        ({"overrides": {"epochs": "many"}}, "not of type int"),
        ({"overrides": {"pml": "maybe"}}, "true or false"),
        ({"overrides": {"schedule": "step"}}, "constant, cosine"),
        ({"overrides": {"epochs": "0"}}, "at least 1"),
        ({"overrides": {"pml": "true"}, "methods": ["proud-no-pml"]}, "means pml=False"),
    ],
)
def test_invalid_arguments_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pacs(**changes)


def test_words_of_the_command_line() -> None:
    assert parse_seeds("3, 1,3") == [3, 1]
    assert parse_pairs(["batch-size=4", "alpha = 1"]) == {"batch_size": "4", "alpha": "1"}
    for bad in (lambda: parse_seeds("x"), lambda: parse_pairs(["alpha"]), lambda: parse_methods("prod")):
        with pytest.raises(UserError):
            bad()


def test_a_bench_needs_three_domains() -> None:
    with pytest.raises(UserError, match="three domains"):
        make_plan(RunConfig(data="x"), "x", ("a", "b"), methods=["erm"], seeds=[1])


def test_odd_domain_names_never_share_or_leave_a_folder() -> None:
    names = [("a-b", "c"), ("a", "b-c"), ("../x", "y"), (".._x", "y"), ("a b", "c"), ("a_b", "c")]
    jobs = [Job(RunConfig(labeled=a, test=b, method="erm"), method_config("erm")) for a, b in names]
    assert len({job.name for job in jobs}) == len(names)
    assert not any("/" in job.name or job.name.startswith(".") for job in jobs)


def test_the_command_of_a_run_reproduces_its_settings_even_with_an_equal_budget() -> None:
    made = pacs(methods=["proud", "erm"], overrides={"alpha": "0.25"}, epochs={"proud": 7, "erm": 31})
    for job in made.jobs[:2]:
        words = shlex.split(command(made, job))
        given = dict(words[n + 1].split("=") for n, word in enumerate(words) if word == "--set")
        again = pacs(methods=[job.run.method], overrides=given)
        assert again.jobs[0].settings == job.settings


def test_domains_without_labels_are_unlabeled_in_every_combination(arguments: Make, tiny: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(tiny, root)
    flat = root / "three"
    for place, path in enumerate(sorted(flat.rglob("*.png"))):
        path.rename(flat / f"{place}.png")
    for folder in flat.iterdir():
        if folder.is_dir():
            folder.rmdir()
    _, plan = prepare(arguments(name=str(root), combos="all"))
    assert plan.domains == ("four", "one", "two") and len(plan.jobs) == 6
    assert all("three" in job.run.unlabeled for job in plan.jobs)
    with pytest.raises(UserError, match="'three' has images without a label"):
        prepare(arguments(name=str(root), combos="three:one"))
    with pytest.raises(UserError, match="two domains with labels"):
        parse_combos("all", ["one", "two", "three"], ["one", "two"])


def test_the_figures_of_a_report_are_no_domain(
    tmp_path: Path, arguments: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_domains(tmp_path / "sites", ("A", "B", "C"), ["x", "y"], 2)
    write_domains(root, ("report_files",), ["x"], 2, seed=1)
    (root / "report_files" / REPORT_MARK).write_text("{}")
    given = arguments(name=str(root), combos="A:B")
    assert prepare(given)[1].domains == ("A", "B", "C")
    assert bench.run(given) == 0
    assert "report_files holds the figures of a report and is skipped" in capsys.readouterr().out


def test_epochs_given_twice_are_refused(arguments: Make) -> None:
    with pytest.raises(UserError, match="both given"):
        bench.run(arguments(epochs=2, set=("epochs=1",)))


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("minutes", -1.0, "at least 0"),
        ("parallel", 0, "at least 1"),
        ("eval_every", 0, "at least 1"),
        ("equal_budget", -3, "at least 0"),
        ("threads", -1, "between 0 and 1024"),
    ],
)
def test_numbers_outside_their_limit_are_refused(arguments: Make, name: str, value: float, limit: str) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} must be {limit}, got"):
        bench.run(arguments(**{name: value}))
