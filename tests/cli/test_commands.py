"""From folders of PNG and JPEG files to a table of predictions, through the commands alone."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proud import cli
from proud.deploy.evaluate import evaluate_domain, is_own_data
from proud.errors import UserError
from toy import CLASSES, toy_images, write_folders

FLAGS = (
    "--size 16 --epochs 4 --pretrain-epochs 6 --batch-size 16 --lr 0.02 --threads 1 --device cpu --quiet "
    "--weight-decay 0.0005"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_folders(root, {"central": 0, "north": 1}, per_class=12)
    write_folders(root, {"south": 2}, per_class=6, suffix=".jpg")
    return root


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "x"
    assert train(data, out) == 0
    return out


def train(data: Path, out: Path, *more: str, labeled: str = "central", test: str = "none") -> int:
    return cli.run(
        ["train", "--data", str(data), "--labeled", labeled, "--test", test, "--out", str(out), *FLAGS.split(), *more]
    )


def main(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["proud", *argv])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_train_leaves_what_it_promises(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names == {
        "run.json",
        "records.jsonl",
        "timings.jsonl",
        "result.json",
        "model.safetensors",
        "model.json",
        "outputs.safetensors",
        "prototypes.safetensors",
        "diagnosis.json",
        "pseudo_labels.csv",
        "checkpoints",
        "snapshots",
    }
    about = json.loads((trained / "run.json").read_text())
    # small images get the digits net and its settings, although the data is one's own
    assert about["model"]["name"] == "digits"
    assert about["config"]["method_config"]["mixup"] == 0.4
    assert {domain: row["role"] for domain, row in about["task"]["domains"].items()} == {
        "central": "labeled",
        "north": "unlabeled",
        "south": "unlabeled",
    }


def test_large_images_get_the_settings_for_photographs(tmp_path: Path) -> None:
    for domain in "ab":
        for label in "xy":
            (tmp_path / domain / label).mkdir(parents=True)
            Image.new("RGB", (100, 80)).save(tmp_path / domain / label / "0.png")
    run, settings, _ = cli.train_arguments(["--data", str(tmp_path), "--labeled", "a"])
    assert (settings.mixup, settings.flip, run.model) == (2.0, True, "auto")
    _, settings, _ = cli.train_arguments(["--data", str(tmp_path), "--labeled", "a", "--model=digits"])
    assert (settings.mixup, settings.flip) == (0.4, False)


def test_predict_labels_new_images(trained: Path, tmp_path: Path) -> None:
    images, labels = toy_images(1, per_class=3, seed=9)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for row, image in enumerate(images):
        suffix = ".jpg" if row % 2 else ".png"
        Image.fromarray(image).save(tmp_path / ("deep/er" if row % 3 else "") / f"{row:02d}{suffix}", quality=95)
    (tmp_path / "notes.txt").write_text("not an image")
    out = tmp_path / "predictions.csv"
    assert cli.run(["predict", str(trained), str(tmp_path), "--out", str(out), "--device", "cpu"]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "confidence", "set", "abstain", "uncertainty"]
    assert len(rows) == len(images)
    right = [row["label"] == labels[int(Path(row["path"]).stem)] for row in rows]
    assert np.mean(right) > 0.8
    assert all(0.25 <= float(row["confidence"]) <= 1 for row in rows)
    with pytest.raises(UserError, match="exists: choose another --out or add --overwrite"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(out)])
    one = next(tmp_path.glob("*.png"))
    assert cli.run(["predict", str(trained), str(one), "--out", str(out), "--overwrite"]) == 0
    assert len(out.read_text().splitlines()) == 2


def test_predict_names_bad_images_or_goes_on(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(toy_images(0, 1)[0][0]).save(tmp_path / "good.png")
    (tmp_path / "empty.png").touch()
    out = tmp_path / "p.csv"
    with pytest.raises(UserError, match=r"empty\.png"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(out)])
    assert not out.exists()
    assert cli.run(["predict", str(trained), str(tmp_path), "--out", str(out), "--skip-bad"]) == 0
    assert "1 unreadable left out" in capsys.readouterr().out
    (tmp_path / "good.png").unlink()
    with pytest.raises(UserError, match="None of the 1 images could be read"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(tmp_path / "q.csv"), "--skip-bad"])


def test_predict_without_images_or_run(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Name the images"):
        cli.run(["predict", str(trained)])
    with pytest.raises(UserError, match="no such file or folder"):
        cli.run(["predict", str(trained), str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="No images found"):
        cli.run(["predict", str(trained), str(tmp_path)])
    with pytest.raises(UserError, match="There is no folder"):
        cli.run(["predict", str(tmp_path / "norun"), str(tmp_path)])
    with pytest.raises(UserError, match="not a run's folder"):
        cli.run(["predict", str(tmp_path), str(tmp_path)])


def test_evaluate(trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["evaluate", str(trained), "--domain", "north", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "48" in said
    assert all(name in said for name in CLASSES)
    write_folders(tmp_path, {"elsewhere": 3}, per_class=2)
    assert cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere", "--device", "cpu"]) == 0
    with pytest.raises(UserError, match=r"no domain 'nort'.*Did you mean 'north'"):
        cli.run(["evaluate", str(trained), "--domain", "nort"])
    shutil.move(tmp_path / "elsewhere" / "plain", tmp_path / "elsewhere" / "unheard")
    with pytest.raises(UserError, match="does not know: unheard"):
        cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere"])
    for path in sorted((tmp_path / "elsewhere").glob("*/*.png")):
        shutil.move(path, tmp_path / "elsewhere" / f"{path.parent.name}-{path.name}")
    with pytest.raises(UserError, match="have no label"):
        cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere"])


def test_train_from_a_table(data: Path, tmp_path: Path) -> None:
    table = data / "table.csv"
    lines = ["path,domain,label"]
    for path in sorted(data.glob("*/*/*.*")):
        domain, label, _ = path.relative_to(data).parts
        lines.append(f"{path.relative_to(data)},{domain},{label if domain == 'central' else ''}")
    table.write_text("\n".join(lines))
    assert train(table, tmp_path / "x", "--method", "erm", "--epochs", "1", "--pretrain-epochs", "1") == 0
    table.write_text("file,domain\n")
    with pytest.raises(UserError, match="lacks the columns path, label"):
        train(table, tmp_path / "y")
    table.write_text("path,domain,label\nnone.png,central,a\n")
    with pytest.raises(UserError, match=r"line 2: there is no file none\.png"):
        train(table, tmp_path / "y")
    table.unlink()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--labeled", "centrl"], r"no domain 'centrl'.*Did you mean 'central'.*central, north, south"),
        (["--test", "eastern"], r"no domain 'eastern'.*central, north, south"),
        (["--test", "central"], r"--labeled and --test are both 'central'"),
        (["--unlabeled", "north", "nowhere"], r"no domain 'nowhere'"),
        (["--unlabeled", "central"], r"'central' is the labeled domain"),
        (["--val", "1.5"], "--val"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--lr", "0"], "--lr must be positive"),
        (["--lr", "nan"], "--lr must be positive"),
        (["--batch-size", "0"], "--batch-size must be at least 1"),
        (["--eval-every", "0"], "--eval-every must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--size", "20"], "multiple of 16"),
        (["--device", "gpu"], "not a device"),
        (["--device", "cuda:99"], "CUDA device"),
        (["--model", "resnet999"], "Unknown model 'resnet999'"),
        (["--weights", "nowhere.safetensors"], "--weights"),
        (["--resume", "--overwrite"], "exclude each other"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_cannot_be(more: list[str], message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "x", *more)
    assert not (tmp_path / "x" / "run.json").exists()
    assert not (tmp_path / "x" / "checkpoints").exists()


def test_data_that_cannot_be(tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "x"
    with pytest.raises(UserError, match="no folder or CSV file"):
        train(root, out)
    write_folders(root, {"central": 0}, per_class=2)
    with pytest.raises(UserError, match="No unlabeled domain"):
        train(root, out)
    write_folders(root, {"north": 1}, per_class=2)
    (root / "central" / "extra").mkdir()
    with pytest.raises(UserError, match="No images in the class folder extra"):
        train(root, out)
    (root / "central" / "extra").rmdir()
    for label in CLASSES[1:]:
        shutil.rmtree(root / "central" / label)
    with pytest.raises(UserError, match=f"only one class, '{CLASSES[0]}'"):
        train(root, out)
    with pytest.raises(UserError, match=r"Say which domain has labels.*central, north"):
        cli.run(["train", "--data", str(root)])


def test_bad_images_are_named_or_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=3)
    (root / "north" / "plain" / "empty.png").touch()
    whole = (root / "north" / "plain" / "003.png").read_bytes()
    (root / "central" / "down" / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"2 images cannot be used") as error:
        train(root, tmp_path / "x", "--method", "erm", "--epochs", "1", "--pretrain-epochs", "1")
    assert "empty.png" in str(error.value)
    assert "half.png" in str(error.value)
    assert train(root, tmp_path / "x", "--method", "erm", "--epochs", "1", "--pretrain-epochs", "1", "--skip-bad") == 0
    assert "2 unreadable images were left out" in capsys.readouterr().out


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(monkeypatch, "--version") == 0
    assert main(monkeypatch, "train", "--data", "nowhere", "--labeled", "x") == 2
    said = capsys.readouterr().err
    assert said.startswith("proud: There is no folder")
    assert "Traceback" not in said

    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert main(monkeypatch, "train") == 130


def test_names_that_look_like_formulas_are_neutralised(tmp_path: Path) -> None:
    from proud.training.records import write_table

    write_table(tmp_path / "t.csv", ["path", "label"], [["=cmd()", "+1"], ["plain", "@x"]])
    assert (tmp_path / "t.csv").read_text().splitlines()[1:] == ["'=cmd(),'+1", "plain,'@x"]


def test_what_the_commands_suggest_can_be_pasted(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "my run", "--epochs", "1", "--pretrain-epochs", "1", "--method", "erm")
    assert f"proud predict '{tmp_path / 'my run'}' IMAGES" in " ".join(capsys.readouterr().out.split("\n"))


def test_predict_repeats_what_the_run_said_and_looks_at_its_own_answers(
    data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    about = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps(about | {"warnings": ["The network learned nothing."]}))
    cli.run(["predict", str(copy), str(data / "central"), "--out", str(tmp_path / "1.csv"), "--device", "cpu"])
    told = capsys.readouterr().out
    assert "Look: The network learned nothing." in told and "are called" not in told
    same = tmp_path / "same"
    same.mkdir()
    for place in range(16):
        Image.fromarray(np.full((16, 16, 3), 200, np.uint8)).save(same / f"{place}.png")
    cli.run(["predict", str(trained), str(same), "--out", str(tmp_path / "2.csv"), "--device", "cpu"])
    told = capsys.readouterr().out
    assert "Look: 16 of 16 images are called" in told and "learned nothing" not in told
    (copy / "model.json").write_text(json.dumps(about | {"warnings": [1]}))
    with pytest.raises(UserError, match="warnings"):
        cli.run(["predict", str(copy), str(same), "--out", str(tmp_path / "3.csv"), "--device", "cpu"])


def test_evaluating_on_what_was_learned_from_is_told(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["evaluate", str(trained), "--domain", "central", "--device", "cpu"])
    assert "central is the labeled domain" in " ".join(capsys.readouterr().out.split())
    cli.run(["evaluate", str(trained), "--domain", "north", "--device", "cpu"])
    assert "is the labeled domain" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("place", ["same", "link", "copy", "other"])
def test_the_same_data_is_known_by_any_path(
    place: str, trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = data / "north" / ".." if place == "same" else tmp_path / place
    if place == "link":
        where.symlink_to(data)
    elif place != "same":
        shutil.copytree(data, where)
    if place == "other":
        next((where / "central").rglob("*.png")).unlink()
    cli.run(["evaluate", str(trained), "--data", str(where), "--domain", "central", "--device", "cpu"])
    told = "central is the labeled domain" in " ".join(capsys.readouterr().out.split())
    assert told == (place != "other")


def test_own_data() -> None:
    assert is_own_data({"data": "embedded"}, "embedded", "")
    assert not is_own_data({"data": "embedded"}, "./embedded", "")
    assert not is_own_data({"data": "python"}, "python", "")
    assert not is_own_data({}, "", "")
    assert is_own_data({"data": "pacs", "root": "/x/pacs"}, "PACS", "/x/y/../pacs")
    assert not is_own_data({"data": "pacs", "root": "/x/pacs"}, "pacs", "/y/pacs")


def test_evaluate_says_what_it_left_out(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folders(tmp_path / "data", {"north": 1}, per_class=2)
    first, second, *others = sorted(root.rglob("*.png"))
    first.write_bytes(b"no picture")
    second.write_bytes(b"")
    told = ["evaluate", str(trained), "--data", str(root), "--domain", "north", "--device", "cpu"]
    with pytest.raises(UserError, match="2 images cannot be used"):
        cli.run(told)
    capsys.readouterr()
    assert cli.run([*told, "--skip-bad"]) == 0
    assert "2 unreadable images were left out." in capsys.readouterr().out
    arguments = cli.EvaluateArguments(trained, "north", str(root), device="cpu", skip_bad=True)
    row = evaluate_domain(arguments)
    assert (row["left_out"], row["images"]) == (2, 6)
    for path in others:
        path.write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"None of the 8 images could be read; the first: .*\.png"):
        cli.run([*told, "--skip-bad"])


def test_evaluate_says_what_it_does_not_read(trained: Path, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"north": 1}, per_class=2)
    outside = write_folders(tmp_path / "outside", {"north": 1}, per_class=2)
    (root / "north" / "more").symlink_to(outside / "north" / "plain")
    (root / "east").mkdir()
    (root / "east" / "plain").symlink_to(outside / "north" / "plain")
    told = ["evaluate", str(trained), "--data", str(root), "--device", "cpu", "--domain"]
    with pytest.warns(UserWarning, match=r"north: 1 link that leaves the folder is not followed \(north/more\)"):
        assert cli.run([*told, "north"]) == 0
    with pytest.raises(UserError, match=r"'east' in .* has no images. Links that leave .*: east/plain"):
        cli.run([*told, "east"])


def test_label_next_can_leave_out_what_cannot_be_read(data: Path, trained: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(data, root)
    (root / "north" / "broken.png").write_bytes(b"no picture")
    told = ["label-next", str(trained), "--data", str(root), "--out", str(tmp_path / "x.csv"), "--device", "cpu"]
    with pytest.raises(UserError, match="--skip-bad"):
        cli.run(told)
    assert cli.run([*told, "--skip-bad"]) == 0


def test_data_check_is_for_benchmarks(data: Path) -> None:
    with pytest.raises(UserError, match="own folders need no check"):
        cli.run(["data", "check", str(data)])
    with pytest.raises(UserError, match="Where is pacs unpacked"):
        cli.run(["data", "check", "pacs"])
