"""`proud train` from folders of PNG and JPEG files: what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from cli.conftest import FLAGS, train
from proud import ProUD, cli
from proud.errors import UserError
from proud.methods import method_class
from toy import CLASSES, write_folders


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


def test_what_the_commands_suggest_can_be_pasted(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "my run", "--epochs", "1", "--pretrain-epochs", "1", "--method", "erm")
    assert f"proud predict '{tmp_path / 'my run'}' IMAGES" in " ".join(capsys.readouterr().out.split("\n"))


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


def test_data_check_is_for_benchmarks(data: Path) -> None:
    with pytest.raises(UserError, match="own folders need no check"):
        cli.run(["data", "check", str(data)])
    with pytest.raises(UserError, match="Where is pacs unpacked"):
        cli.run(["data", "check", "pacs"])


@pytest.mark.parametrize(("flags", "method"), [(("erm", "proud-plus"), "proud-plus"), (("proud-plus", "erm"), "erm")])
def test_of_a_flag_that_is_given_twice_the_last_counts(flags: tuple[str, str], method: str, data: Path) -> None:
    given = [part for flag in flags for part in ("--method", flag)]
    run, settings, _ = cli.train_arguments(["--data", str(data), "--labeled", "central", *given])
    assert run.method == method and type(settings) is method_class(method).Config


def test_a_refused_run_leaves_no_folder(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no domain"):
        train(data, tmp_path / "x", test="nort")
    assert not (tmp_path / "x").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="There is no domain"):
        train(data, tmp_path / "mine", test="nort")
    assert (tmp_path / "mine").is_dir()


def test_the_classes_are_shown(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [flag for flag in FLAGS.split() if flag != "--quiet"]
    told = [
        "train",
        "--data",
        str(data),
        "--labeled",
        "central",
        "--test",
        "none",
        "--out",
        str(tmp_path / "x"),
        *flags,
    ]
    assert cli.run([*told, "--method", "erm", "--epochs", "1", "--pretrain-epochs", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    counts = json.loads((tmp_path / "x" / "run.json").read_text())["task"]["domains"]["central"]["per_class"]
    line = f"4 classes in central: {', '.join(f'{name} {count}' for name, count in counts.items())}"
    assert shown.count(line) == 2  # before training, and with the result


def test_where_it_cannot_run_it_says_so() -> None:
    code = "import sys; sys.platform = 'win32'; import proud"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.strip().endswith("on Windows, use it under WSL")


def test_what_a_method_s_name_says_cannot_be_unsaid(tmp_path: Path) -> None:
    for method, undone in (("proud-no-udmix", "--udmix"), ("erm-noisemix", "--no-noisemix")):
        with pytest.raises(UserError, match=f"'{method}' means"):
            cli.train_arguments(["--labeled", "pen", "--method", method, undone])
    with pytest.raises(UserError, match="udmix=True: 'proud-no-udmix' means udmix=False"):
        ProUD(method="proud-no-udmix", udmix=True).fit(tmp_path, [tmp_path])
