"""`proud train` from folders of PNG and JPEG files: what it writes, what it refuses, and that it does nothing twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.conftest import FLAGS, ONE_EPOCH, train
from proud import ProUD
from proud.cli import main as cli
from proud.cli.flags.train import parse_train
from proud.errors import UserError
from proud.files import write_json
from proud.methods import method_class
from toy import CLASSES, write_folders


def main(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["proud", *argv])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_files_of_a_run(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names == {
        "run.json",
        "records.jsonl",
        "timings.jsonl",
        "result.json",
        "model",
        "outputs.safetensors",
        "diagnosis.json",
        "pseudo_labels.csv",
        "snapshots",
        "manifest.json",
        ".proud",
    }
    assert {path.name for path in (trained / "model").iterdir()} == {
        "model.safetensors",
        "model.json",
        "prototypes.safetensors",
        "README.md",
        "manifest.json",
    }
    about = json.loads((trained / "run.json").read_text())
    # small images get the digits net and its settings, also on the user's own data
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
    found = parse_train(["--data", str(tmp_path), "--labeled", "a"])
    assert (found.settings.mixup, found.settings.flip, found.run.model) == (2.0, True, "auto")
    found = parse_train(["--data", str(tmp_path), "--labeled", "a", "--model=digits"])
    assert (found.settings.mixup, found.settings.flip) == (0.4, False)


def test_train_from_a_table(data: Path, tmp_path: Path) -> None:
    root = shutil.copytree(data, tmp_path / "data")
    table = root / "table.csv"
    lines = ["path,domain,label"]
    for path in sorted(root.glob("*/*/*.*")):
        domain, label, _ = path.relative_to(root).parts
        lines.append(f"{path.relative_to(root)},{domain},{label if domain == 'central' else ''}")
    table.write_text("\n".join(lines))
    assert train(table, tmp_path / "x", "--method", "erm", *ONE_EPOCH) == 0
    table.write_text("file,domain\n")
    with pytest.raises(UserError, match="lacks the columns path, label"):
        train(table, tmp_path / "y")
    table.write_text("path,domain,label\nnone.png,central,a\n")
    with pytest.raises(UserError, match=r"line 2: there is no file none\.png"):
        train(table, tmp_path / "y")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--labeled", "centrl"], r"no domain 'centrl'.*Did you mean 'central'.*central, north, south"),
        (["--test", "eastern"], r"no domain 'eastern'.*central, north, south"),
        (["--test", "central"], r"--labeled and --test are both 'central'"),
        (["--unlabeled", "north", "nowhere"], r"no domain 'nowhere'"),
        (["--unlabeled", "central"], r"'central' is the labeled domain"),
        (["--val", "1.5"], "--val must be at least 0 and below 1"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--lr", "0"], "--lr must be positive"),
        (["--lr", "nan"], "--lr must be positive"),
        (["--batch-size", "0"], "--batch-size must be at least 2"),
        (["--batch-size", "999999999999"], "at most 1,000,000"),
        (["--eval-every", "0"], "--eval-every must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--size", "20"], "multiple of 16"),
        (["--device", "gpu"], "--device 'gpu' is not valid"),
        (["--device", "cuda:99"], "CUDA device"),
        (["--model", "resnet999"], "Unknown model 'resnet999'"),
        (["--weights", "nowhere.safetensors"], "--weights"),
        (["--resume", "--overwrite"], "exclude each other"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_settings_are_refused(more: list[str], message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "x", *more)
    assert not (tmp_path / "x" / "run.json").exists()
    assert not (tmp_path / "x" / "checkpoints").exists()


def test_unusable_data_is_refused(tmp_path: Path) -> None:
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
    with pytest.raises(UserError, match=r"Name the labeled domain.*central, north"):
        cli.run(["train", "--data", str(root)])


def test_bad_images_are_named_or_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=3)
    (root / "north" / "plain" / "empty.png").touch()
    whole = (root / "north" / "plain" / "003.png").read_bytes()
    (root / "central" / "down" / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"2 images cannot be used") as error:
        train(root, tmp_path / "x", "--method", "erm", *ONE_EPOCH)
    assert "empty.png" in str(error.value)
    assert "half.png" in str(error.value)
    assert train(root, tmp_path / "x", "--method", "erm", *ONE_EPOCH, "--skip-bad") == 0
    assert "2 unreadable images skipped (listed in run.json)" in capsys.readouterr().out


def test_the_suggested_command_can_be_pasted(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(data, tmp_path / "my run", *ONE_EPOCH, "--method", "erm")
    assert f"proud predict '{tmp_path / 'my run'}' IMAGES" in " ".join(capsys.readouterr().out.split("\n"))


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(monkeypatch, "--version") == 0
    assert main(monkeypatch, "train", "--data", "nowhere", "--labeled", "x") == 2
    output = capsys.readouterr().err
    assert output.startswith("proud: There is no folder")
    assert "Traceback" not in output

    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert main(monkeypatch, "train") == 130


def test_the_check_of_a_benchmark_needs_its_folder() -> None:
    with pytest.raises(UserError, match="Name the folder of pacs"):
        cli.run(["data", "check", "pacs"])


@pytest.mark.parametrize(("flags", "method"), [(("erm", "proud-plus"), "proud-plus"), (("proud-plus", "erm"), "erm")])
def test_the_last_of_two_equal_flags_counts(flags: tuple[str, str], method: str, data: Path) -> None:
    given = [part for flag in flags for part in ("--method", flag)]
    found = parse_train(["--data", str(data), "--labeled", "central", *given])
    assert found.run.method == method and type(found.settings) is method_class(method).Config


def test_a_refused_run_leaves_no_folder(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no domain"):
        train(data, tmp_path / "x", test="nort")
    assert not (tmp_path / "x").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="There is no domain"):
        train(data, tmp_path / "mine", test="nort")
    assert (tmp_path / "mine").is_dir()


def test_erm_needs_no_unlabeled_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_folders(tmp_path / "data", {"central": 0}, per_class=12), tmp_path / "x"
    with pytest.raises(UserError, match=r"proud needs at least one \(erm needs none\)"):
        train(root, out)
    assert train(root, out, "--method", "erm", *ONE_EPOCH) == 0
    assert list(json.loads((out / "run.json").read_text())["task"]["domains"]) == ["central"]
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [3, 3], "both stages pass over the labeled images"
    assert train(root, out, "--method", "erm", "--resume", *ONE_EPOCH) == 0
    with pytest.raises(UserError, match="no unlabeled site"):
        cli.run(["label-next", str(out), "--out", str(tmp_path / "x.csv")])
    assert cli.run(["evaluate", str(out), "--domain", "central", "--device", "cpu"]) == 0


def test_sites_behind_links_are_trained_on_with_a_flag(data: Path, tmp_path: Path) -> None:
    root = tmp_path / "linked"
    root.mkdir()
    for site in data.iterdir():
        (root / site.name).symlink_to(site)
    with pytest.raises(UserError, match="--follow-links reads them"):
        train(root, tmp_path / "x")
    assert train(root, tmp_path / "x", "--method", "erm", "--follow-links", *ONE_EPOCH) == 0
    assert train(data, tmp_path / "y", "--method", "erm", *ONE_EPOCH) == 0
    linked, plain = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in "xy")
    assert linked == plain
    assert json.loads((tmp_path / "x" / "run.json").read_text())["config"]["follow_links"] is True


def test_the_classes_are_shown(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(data), "--labeled", "central", "--test", "none", "--out", str(tmp_path / "x")]
    flags = FLAGS.split()
    assert cli.run(["train", *where, *flags, "--method", "erm", *ONE_EPOCH]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    counts = json.loads((tmp_path / "x" / "run.json").read_text())["task"]["domains"]["central"]["per_class"]
    line = f"4 classes in central: {', '.join(f'{name} {count}' for name, count in counts.items())}"
    assert shown.count(line) == 2  # before training, and with the result


def test_windows_is_refused() -> None:
    code = "import sys; sys.platform = 'win32'; import proud"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.strip().endswith("on Windows, use it under WSL")


def test_settings_cannot_contradict_the_name_of_the_method(tmp_path: Path) -> None:
    for method, undone in (("proud-no-udmix", "--udmix"), ("erm-noisemix", "--no-noisemix")):
        with pytest.raises(UserError, match=f"'{method}' means"):
            parse_train(["--labeled", "pen", "--method", method, undone])
    with pytest.raises(UserError, match="udmix=True: 'proud-no-udmix' means udmix=False"):
        ProUD(method="proud-no-udmix", udmix=True).fit(tmp_path, unlabeled=[tmp_path])


def test_size_and_batch_suit_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for site, label in product("ab", "xy"):
        (tmp_path / "data" / site / label).mkdir(parents=True)
        Image.new("RGB", (100, 90)).save(tmp_path / "data" / site / label / "1.png")

    def chosen(*flags: str) -> tuple[int, int, str]:
        where = ["--data", str(tmp_path / "data"), "--labeled", "a", "--out", str(tmp_path / "run")]
        found = parse_train([*where, *flags])
        return found.run.size, found.settings.batch_size, found.notice

    assert chosen() == (128, 32, "Chosen for a CPU: --size 128 --batch-size 32 (on a GPU 224 and 128).")
    assert chosen("--size", "96") == (96, 32, "Chosen for a CPU: --batch-size 32 (on a GPU 128).")
    assert chosen("--batch-size", "8") == (128, 8, "Chosen for a CPU: --size 128 (on a GPU 224).")
    assert chosen("--size", "96", "--batch-size", "8") == (96, 8, "")
    assert chosen("--device", "cuda") == (0, 128, "")
    assert chosen("--model", "vit_tiny_patch16_224")[:2] == (0, 32), "networks of a fixed size keep it"
    (tmp_path / "run").mkdir()
    spec = {"name": "resnet18", "classes": 2, "size": 224, "mean": [0.5] * 3, "std": [0.5] * 3}
    task = {"data": "", "benchmark": False, "size": 224, "square": "middle", "stored_side": 252, "classes": ["x", "y"]}
    about = {"format": "proud-run-1", "config": {"size": 0, "method_config": {"batch_size": 128}}, "model": spec}
    write_json(tmp_path / "run" / "run.json", about | {"task": task | {"domains": {}, "skipped": []}})
    assert chosen("--resume")[:2] == (0, 128), "a run that was started on a GPU"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a command scans folders, reads image headers, checks its output folder, and builds a model spec."""
    from proud.data import benchmarks, shapes
    from proud.training import run, run_folder

    found: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    sizes = shapes._sizes

    def counted_sizes(catalog: Any, domain: Any) -> list[tuple[int, ...]]:
        headers = list(sizes(catalog, domain))
        found[f"sizes of {domain.name}"] += 1
        found[f"headers of {domain.name}"] += len(headers)
        return headers

    monkeypatch.setattr(shapes, "_sizes", counted_sizes)
    count(benchmarks, "scan_folder")
    count(run_folder, "stored_run")
    count(run, "model_spec")
    return found


def test_nothing_is_done_twice(calls: Counter[str], data: Path, tmp_path: Path) -> None:
    assert train(data, tmp_path / "x", "--method", "erm", *ONE_EPOCH) == 0
    assert calls["scan_folder"] == calls["stored_run"] == calls["model_spec"] == 1
    assert calls["sizes of central"] == calls["sizes of north"] == calls["sizes of south"] == 1
    assert 0 < calls["headers of central"] <= 16
