"""Results on stdout, lists of images on stdin, and what is refused there."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from proud.cli import main as cli
from proud.errors import UserError


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    return content


def give(stdin: io.BytesIO, content: bytes) -> None:
    stdin.write(content)
    stdin.seek(0)


def test_predictions_on_stdout_and_messages_on_stderr(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images = [str(path) for path in sorted((data / "south").rglob("*.jpg"))[:3]]
    (tmp_path / "broken.png").write_bytes(b"no picture")
    command = ["predict", str(trained), "--device", "cpu", "--skip-bad"]
    assert cli.run([*command, "--out", "-", *images, "broken.png"]) == 0
    output = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(output.out)))
    assert [row["path"] for row in rows] == images
    assert "3 images → stdout" in output.err and "1 unreadable image skipped" in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["broken.png"], "no file called -"
    assert cli.run([*command, "--out", "p.csv", *images]) == 0
    output = capsys.readouterr()
    assert "3 images → p.csv" in output.out
    assert list(csv.DictReader(io.StringIO(Path("p.csv").read_text()))) == rows


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\0"])
def test_paths_on_stdin(
    end: bytes, trained: Path, data: Path, stdin: io.BytesIO, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [str(path) for path in sorted((data / "south").rglob("*.jpg"))[:3]]
    give(stdin, end.join(image.encode() for image in images[1:]) + end)
    assert cli.run(["predict", str(trained), images[0], "-", "--out", "-", "--device", "cpu"]) == 0
    assert [row["path"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == images


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no paths on stdin"),
        (b"\x89PNG\r\n", "stdin is an image, not a list"),
        (b"gone.png\n", "gone.png: no such"),
    ],
)
def test_other_input_is_refused(content: bytes, message: str, trained: Path, stdin: io.BytesIO) -> None:
    give(stdin, content)
    with pytest.raises(UserError, match=message):
        cli.run(["predict", str(trained), "-", "--out", "-", "--device", "cpu"])


def test_numbers_of_an_evaluation_on_stdout(trained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["evaluate", str(trained), "--domain", "south", "--out", "-", "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["domain"] == "south" and "mean of the classes" in output.err


def test_images_to_label_on_stdout(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["label-next", str(trained), "--k", "1", "--out", "-", "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert [row["domain"] for row in csv.DictReader(io.StringIO(output.out))] == ["north", "south"]
    assert "Images to label: north 1, south 1" in output.err


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--labeled", "pen"],
        ["bench", "embedded"],
        ["demo"],
        ["report", "runs/x"],
    ],
)
def test_what_is_several_files_cannot_go_to_stdout(command: list[str]) -> None:
    with pytest.raises(UserError, match=r"--out -: a \w+ is several files, which cannot be written to stdout"):
        cli.run([*command, "--out", "-"])


def test_a_closed_pipe_ends_the_command(trained: Path, data: Path) -> None:
    command = [sys.executable, "-m", "proud", "predict", str(trained), str(data / "south"), "--out", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert "Traceback" not in child.stderr.read()
        assert child.wait() == 141


def test_a_closed_stdout_is_refused_before_any_work(trained: Path, data: Path) -> None:
    command = [sys.executable, "-m", "proud", "predict", str(trained), str(data / "south"), "--out", "-"]
    found = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (2, "proud: --out -: stdout is closed. Name a file.\n")
