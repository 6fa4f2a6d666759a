"""Help answers at once, without torch, and errors say what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from proud.cli.main import COMMANDS, run
from proud.errors import UserError
from proud.methods import METHODS

HELP = [["--help"], *([name, "--help"] for name in COMMANDS if name != "help")]


@pytest.mark.parametrize("argv", HELP, ids=" ".join)
def test_help_needs_no_torch_and_half_a_second(argv: list[str]) -> None:
    program = "\n".join(
        [
            "import sys",
            "from proud.cli.main import run",
            "try:",
            "    run(sys.argv[1:])",
            "except SystemExit:",
            "    pass",
            "heavy = {'torch', 'timm', 'sklearn', 'matplotlib'} & set(sys.modules)",
            "sys.exit(f'imported {heavy}' if heavy else 0)",
        ]
    )
    spent = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True)
        after = os.times()
        assert done.returncode == 0, done.stderr
        # its own time, not that of others on a busy machine
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(spent) < 0.5
    assert "usage: proud" in done.stdout
    assert "(default: )" not in done.stdout
    assert "(default: '')" not in done.stdout


def flags(argv: list[str]) -> str:
    wide = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "proud", *argv, "--help"], capture_output=True, text=True, env=wide
    ).stdout


def test_the_promised_flags_are_there_and_flat() -> None:
    text = flags(["train"])
    wanted = "data labeled test unlabeled method model weights size epochs batch-size lr val seed device out resume"
    for name in [*wanted.split(), "overwrite", "skip-bad", "alpha", "tau-ratio", "views", "joint-forward", "dapp-bn"]:
        assert f"--{name}" in text, name
    assert "." not in "".join(word for word in text.split() if word.startswith("--"))
    for method in METHODS:
        assert method in text


def test_help_follows_method_and_data() -> None:
    text = flags(["train", "--method", "erm", "--data", "pacs"])
    assert "erm-method options" in text
    assert "--views" not in text
    assert "(default: 80)" in text


def test_wrong_words_get_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="Did you mean 'train'"):
        run(["trian"])
    with pytest.raises(UserError, match="Did you mean 'erm'"):
        run(["train", "--method", "ermm"])
    with pytest.raises(SystemExit) as end:
        run(["train", "--labeled", "pen", "--bach-size", "3"])
    assert end.value.code == 2
    assert "--batch-size" in capsys.readouterr().err


def test_version_and_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert run([]) == 0
    assert "proud train --data ROOT" in capsys.readouterr().out
