"""Labels that the user adds: matched to the right images, certain in DaPP, part of their site's prototypes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import oracle
from proud import ops
from proud.cli import main as cli
from proud.cli.show import show_sites
from proud.config import TaskSpec
from proud.data.csv_table import read_labels
from proud.data.labels import add_labels
from proud.data.source import find_task
from proud.data.task import read_task
from proud.data.types import Task
from proud.errors import UserError
from proud.files import write_table
from proud.methods import method_class
from proud.methods.context import make_context
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.evaluator import Evaluator
from toy import CLASSES, SIDE, restamp, toy_settings, toy_task, write_folders

FLAGS = "--epochs 2 --pretrain-epochs 1 --batch-size 8 --threads 1 --device cpu --quiet --size 16"


def views(seed: int, count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.normalize(torch.randn(3, count, 5, generator=generator), dim=-1)
    return features, torch.randn(3, count, 4, generator=generator).softmax(-1)


def test_dapp_takes_known_labels_in_one_chunk_or_several() -> None:
    features, probs = views(1)
    whole = [(features, probs)]
    plain = ops.dapp(lambda: whole, 0.1)
    known = torch.full((12,), -1)
    assert_same(ops.dapp(lambda: whole, 0.1, known=known), plain)
    known[[2, 7]] = (plain.labels[[2, 7]] + 1) % 4
    found = ops.dapp(lambda: whole, 0.1, known=known)
    assert found.labels[[2, 7]].tolist() == known[[2, 7]].tolist()
    assert found.uncertainty[[2, 7]].tolist() == [0, 0]
    assert (found.uncertainty[known < 0] > 0).all()
    pieces = [(features[:, rows], probs[:, rows]) for rows in (slice(0, 5), slice(5, 12))]
    assert_same(ops.dapp(lambda: pieces, 0.1, known=known), found)
    # by hand: one-hot probabilities for the first prototypes, known labels in the second
    stated = torch.where((known >= 0)[:, None], torch.nn.functional.one_hot(known.clamp_min(0), 4).float(), probs)
    soft = torch.from_numpy(
        oracle.soft_prototypes(features.flatten(0, 1).numpy(), stated.flatten(0, 1).numpy())
    ).float()
    votes = (-ops.cosine_distance(features, soft)).softmax(-1).sum(0).argmax(-1)
    first = torch.where(known >= 0, known, votes)
    hard, present = ops.hard_prototypes(features.flatten(0, 1), first.repeat(3), 4)
    assert torch.allclose(found.prototypes, hard, atol=1e-6)
    assert torch.equal(found.present, present)


def assert_same(a: ops.PseudoLabels, b: ops.PseudoLabels) -> None:
    assert torch.equal(a.labels, b.labels)
    for name in ("uncertainty", "prototypes", "agreement"):
        assert torch.allclose(getattr(a, name), getattr(b, name), atol=1e-6)


def test_agreement_is_the_share_of_views_that_find_the_label() -> None:
    features, probs = views(2)
    found = ops.dapp(lambda: [(features, probs)], 0.1)
    distances = (1 - features @ torch.nn.functional.normalize(found.prototypes, dim=1).T).numpy()
    distances[..., ~found.present.numpy()] = np.inf
    alone = distances.argmin(-1)
    for row, label in enumerate(found.labels.tolist()):
        assert found.agreement is not None
        assert found.agreement[row].item() == pytest.approx(np.mean(alone[:, row] == label))


def with_known(task: Task, rows: dict[int, int]) -> Task:
    first, *others = task.training.unlabeled
    known = torch.full((len(first),), -1)
    for row, label in rows.items():
        known[row] = label
    return replace(task, training=replace(task.training, unlabeled=(replace(first, known=known), *others)))


@pytest.mark.parametrize("name", ["proud", "proud-plus"])
def test_known_labels_are_certain_and_enter_the_prototypes(name: str) -> None:
    task = toy_task(per_class=3)
    spec = model_spec("digits", len(CLASSES), SIDE)

    def labeled(task: Task):
        context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=3, precision="fp32")
        method = method_class(name)(toy_settings(name), context)
        random = Randomness(3, context.device)
        random.begin_epoch("main", 0)
        method.begin_epoch(method.stage_list()[1], 0, random)
        return method

    before = labeled(task)
    found = before.found["hidden 1"]
    wanted = {1: int(found.labels[1] + 1) % 4, 5: int(found.labels[5] + 2) % 4}
    after = labeled(with_known(task, wanted))
    now = after.found["hidden 1"]
    for row, label in wanted.items():
        assert after.labels[row] == now.labels[row] == label
        assert after.uncertainty[row] == now.uncertainty[row] == 0
    assert not torch.equal(now.prototypes, found.prototypes)
    assert torch.equal(after.index.count, before.index.count)  # the labeled domain is unchanged


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return write_folders(tmp_path / "data", {"central": 0, "north": 1, "south": 2}, per_class=3)


def task_of(root: Path) -> Task:
    return read_task(find_task(TaskSpec(data=str(root), labeled="central", seed=1)), SIDE)


def write(path: Path, *rows: str, columns: str = "path,domain,label") -> Path:
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def test_rows_are_matched_by_path_or_content(folders: Path, tmp_path: Path) -> None:
    task = task_of(folders)
    north = task.training.unlabeled[0]
    paths = task.evaluation.audits["north"].paths
    rows = [f"{paths[3]},north,plain,", f"moved.png,north,down,{north.ids[5]}", f"{paths[6]},north,,"]
    table = write(tmp_path / "extra.csv", *rows, columns="path,domain,label,content")
    found = add_labels(task, read_labels(table), table)
    known = found.training.unlabeled[0].known
    assert known is not None
    assert {row: CLASSES[label] for row, label in enumerate(known.tolist()) if label >= 0} == {3: "plain", 5: "down"}
    assert found.training.unlabeled[1].known is None
    assert found.report["domains"]["north"]["known"] == 2
    assert "known" not in task.report["domains"]["north"]
    assert found.training.labeled is task.training.labeled


def test_equal_images_share_a_label(folders: Path, tmp_path: Path) -> None:
    copy = folders / "north" / "plain" / "copy.png"
    copy.write_bytes((folders / "north" / "plain" / "003.png").read_bytes())
    table = write(tmp_path / "extra.csv", "north/plain/copy.png,north,plain")
    task = task_of(folders)
    known = add_labels(task, read_labels(table), table).training.unlabeled[0].known
    assert known is not None and (known >= 0).sum() == 2
    both = ("north/plain/copy.png,north,plain", "north/plain/003.png,north,down")
    write(table, *both)
    with pytest.raises(UserError, match=r"003\.png is 'down', but the same image in line 2 is 'plain'"):
        add_labels(task, read_labels(table), table)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("north/plain/003.png,north,stripes", "line 2: the class 'stripes' is unknown; .* across, checks, down, plain"),
        ("north/plain/999.png,north,plain", "line 2: north/plain/999.png is not among the images of 'north'"),
        ("central/plain/003.png,central,plain", "line 2: 'central' is the labeled domain"),
        ("x.png,west,plain", "line 2: 'west' is not in this run; unlabeled ones are: north, south"),
        ("north/plain/003.png,north,plain\nnorth/plain/003.png,north,plain", "line 3: .*003.png is listed before, in"),
        ("north/plain/003.png,north,", "No label is filled in"),
    ],
)
def test_invalid_tables_are_refused(row: str, message: str, folders: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "extra.csv", row)
    with pytest.raises(UserError, match=message):
        add_labels(task_of(folders), read_labels(table), table)


@pytest.mark.parametrize("method", ["proud", "proud-plus"])
def test_from_label_next_back_into_training(method: str, folders: Path, tmp_path: Path) -> None:
    data = ["train", "--data", str(folders), "--labeled", "central", "--test", "none", *FLAGS.split()]
    common = [*data, "--method", method]
    assert cli.run([*common, "--out", str(tmp_path / "first")]) == 0
    extra = tmp_path / "extra.csv"
    asking = ["label-next", str(tmp_path / "first"), "--k", "3", "--out", str(extra), "--device", "cpu"]
    assert cli.run(asking) == 0
    with pytest.raises(UserError, match="exists"):
        cli.run(asking)
    header, *rows = extra.read_text().splitlines()
    assert header == "path,domain,label,guess,uncertainty,content"
    assert len(rows) == 6
    with pytest.raises(UserError, match="No label is filled in"):
        cli.run([*common, "--out", str(tmp_path / "second"), "--labels", str(extra)])
    filled = []
    for row in rows:
        path, domain, label, *rest = row.split(",")
        assert not label
        filled.append(",".join([path, domain, Path(path).parent.name, *rest]))
    extra.write_text("\n".join([header, *filled]))
    assert cli.run([*common, "--out", str(tmp_path / "second"), "--labels", str(extra)]) == 0
    pseudo = (tmp_path / "second" / "pseudo_labels.csv").read_text().splitlines()[1:]
    for row in filled:
        path, domain, label = row.split(",")[:3]
        assert f"{domain},{path},{label},0.0000" in pseudo
    # without the table the weights are the same, bit for bit; with it they differ
    assert cli.run([*common, "--out", str(tmp_path / "third")]) == 0
    runs = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("first", "second", "third")]
    assert all(torch.equal(runs[0][key], runs[2][key]) for key in runs[0])
    assert not all(torch.equal(runs[0][key], runs[1][key]) for key in runs[0])
    with pytest.raises(UserError, match="erm does not support --labels"):
        cli.run([*data, "--method", "erm", "--out", str(tmp_path / "x"), "--labels", str(extra)])
    # the next table starts with the labels of this one, and asks for other images
    again = tmp_path / "more.csv"
    assert cli.run(["label-next", str(tmp_path / "second"), "--k", "3", "--out", str(again), "--device", "cpu"]) == 0
    earlier, asked = again.read_text().splitlines()[:7], again.read_text().splitlines()[7:]
    assert earlier == [header, *filled]
    assert len(asked) == 6 and all(row.split(",")[2] == "" for row in asked)
    assert not {row.split(",")[0] for row in asked} & {row.split(",")[0] for row in rows}
    assert len(read_labels(again)) == 6


@pytest.fixture
def second(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with two added labels of north, started in the folder above its data."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "extra.csv", "north/plain/003.png,north,plain", "north/down/002.png,north,down")
    command = ["train", "--data", "data", "--labeled", "central", "--test", "none", "--labels", "extra.csv"]
    assert cli.run([*command, *FLAGS.split(), "--out", "second"]) == 0
    return tmp_path / "second"


def test_added_labels_are_never_overwritten(
    second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tmp_path / "extra.csv").read_text()
    (tmp_path / "link.csv").symlink_to("extra.csv")
    asking = ["label-next", str(second), "--k", "1", "--device", "cpu", "--out"]
    for out in ("extra.csv", "second/../extra.csv", "link.csv"):
        for more in ([], ["--overwrite"]):
            with pytest.raises(UserError, match="holds the labels that the run was trained with: choose another name"):
                cli.run([*asking, out, *more])
    assert (tmp_path / "extra.csv").read_text() == before
    about = {"name": "north", "score": 0.5, "text": "north: look", "verdict": "doubtful", "signals": {}, "look_at": []}
    (second / "diagnosis.json").write_text(json.dumps([about]))
    restamp(second)
    for name in ("extra-2.csv", "extra-3.csv"):
        capsys.readouterr()
        show_sites(second)
        assert capsys.readouterr().out.strip().endswith(f"--out {name}")
        (tmp_path / name).touch()
    assert cli.run([*asking, "extra-2.csv", "--overwrite"]) == 0
    rows = (tmp_path / "extra-2.csv").read_text().splitlines()
    assert rows[1:3] == ["north/plain/003.png,north,plain,,,", "north/down/002.png,north,down,,,"]
    assert len(rows) == 5
    monkeypatch.chdir(second)
    with pytest.raises(UserError, match=r"trained with --labels extra\.csv, which does not exist here"):
        cli.run([*asking, "more.csv", "--data", str(tmp_path / "data")])
    assert not (second / "more.csv").exists()


def test_evaluate_names_the_number_of_added_labels(
    second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(domain: str, *more: str) -> str:
        capsys.readouterr()
        assert cli.run(["evaluate", str(second), "--domain", domain, "--device", "cpu", *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    remark, whole = "The model was trained on 2 of these images with their labels", "central is the labeled domain"
    assert remark in output("north")
    assert "with their labels" not in output("south") and "with their labels" not in output("central")
    # in another folder the stored paths are not valid: images are recognised by their content
    monkeypatch.chdir(second)
    assert remark in output("north", "--data", "../data")
    assert whole in output("central", "--data", "../data")
    assert "with their labels" not in output("south", "--data", "../data")
    for command in (["evaluate", str(second), "--domain", "north"], ["label-next", str(second), "--out", "../x.csv"]):
        monkeypatch.chdir(second if command[0] == "evaluate" else tmp_path)
        if command[0] == "label-next":
            (tmp_path / "data").rename(tmp_path / "moved")
        with pytest.raises(UserError, match=r"trained with --data data, which does not exist here: .* with --data"):
            cli.run([*command, "--device", "cpu"])


def test_some_images_with_added_labels_are_recognised_by_content(
    folders: Path, tmp_path: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["label-next", str(second), "--k", "2", "--out", "extra-2.csv", "--device", "cpu"])
    filled = [line.split(",") for line in (tmp_path / "extra-2.csv").read_text().splitlines()]
    for row in filled[1:]:
        row[2] = Path(row[0]).parent.name
    (tmp_path / "extra-2.csv").write_text("\n".join(map(",".join, filled)))
    command = ["train", "--data", "data", "--labeled", "central", "--test", "none", "--labels", "extra-2.csv"]
    assert cli.run([*command, *FLAGS.split(), "--out", "third"]) == 0
    asked = next(row[0] for row in filled[3:] if row[1] == "north")
    few = tmp_path / "few" / "here" / Path(asked).parent.name
    few.mkdir(parents=True)
    (few / "a.png").write_bytes((folders / asked).read_bytes())
    capsys.readouterr()
    assert cli.run(["evaluate", "third", "--data", "few", "--domain", "here", "--device", "cpu"]) == 0
    assert "The model was trained on 1 of these images with their labels" in " ".join(capsys.readouterr().out.split())


def test_guesses_can_be_copied_into_labels(tmp_path: Path) -> None:
    names = ["＋陽", "-", "＝x", "'quoted'", "plain"]
    write_table(tmp_path / "t.csv", ["path", "domain", "label"], [["a.png", "north", name] for name in names])
    assert "'＋陽" in (tmp_path / "t.csv").read_text(encoding="utf-8")
    assert [row.label for row in read_labels(tmp_path / "t.csv")] == names


@pytest.mark.parametrize("method", ["erm", "proud"])
def test_label_next_names_a_method_that_uses_labels(
    method: str,
    folders: Path,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["train", "--data", str(folders), "--labeled", "central", "--test", "none", *FLAGS.split()]
    assert cli.run([*command, "--method", method, "--out", str(tmp_path / "run")]) == 0
    recwarn.clear()
    assert cli.run(["label-next", str(tmp_path / "run"), "--out", str(tmp_path / "x.csv"), "--device", "cpu"]) == 0
    warned = any("erm does not support --labels" in str(warning.message) for warning in recwarn)
    shown = " ".join(capsys.readouterr().out.split())
    assert warned == ("proud train … --method proud-plus --labels" in shown) == (method == "erm")
    assert warned or "proud train … --labels" in shown


def test_added_labels_do_not_count_as_pseudo_labels() -> None:
    task = toy_task(per_class=3)
    spec = model_spec("digits", len(CLASSES), SIDE)
    evaluator = Evaluator(task.evaluation, spec, torch.device("cpu"), "fp32")
    truth = task.evaluation.audits["hidden 1"].labels
    labels = (truth + 1) % 4
    labels[:3] = truth[:3]
    found = ops.PseudoLabels(labels, torch.zeros(len(labels)), torch.zeros(4, 2), torch.ones(4, dtype=torch.bool))
    stated = torch.full_like(truth, -1)
    stated[:3] = truth[:3]
    of_all, of_rest = evaluator.audit("hidden 1", found), evaluator.audit("hidden 1", found, stated)
    assert of_all.pop("recall") == [round(int((truth[:3] == k).sum()) / 3, 4) for k in range(4)]
    assert of_all == {"accuracy": pytest.approx(3 / len(labels))}
    assert of_rest.pop("recall") == [0.0] * 4
    assert of_rest == {"accuracy": 0, "audited": len(labels) - 3}
