"""Help is instant and imports no torch; errors name what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cli.fresh import assert_cpu_time, fresh_process
from proud.cli.main import COMMANDS, run
from proud.errors import UserError
from proud.methods import METHODS

HELP = [["--help"], *([name, "--help"] for name in COMMANDS)]


@pytest.fixture(scope="module")
def help_texts() -> list[str]:
    """The help of every command. One process prints them all: if it has not imported torch, none of them needs it."""
    program = "\n".join(
        [
            "import sys",
            "from proud.cli.main import run",
            f"for argv in {HELP}:",
            "    try:",
            "        run(argv)",
            "    except SystemExit:",
            "        pass",
            "    print(end='\\f')",
            "heavy = {'torch', 'timm', 'sklearn', 'matplotlib', 'ray'} & set(sys.modules)",
            "sys.exit(f'imported {heavy}' if heavy else 0)",
        ]
    )
    return fresh_process(program).split("\f")[:-1]


def test_help_imports_no_torch(help_texts: list[str]) -> None:
    assert len(help_texts) == len(HELP)
    for argv, text in zip(HELP, help_texts, strict=True):
        assert f"usage: proud {' '.join(argv[:-1])}" in text, argv
        assert "(default: )" not in text, argv
        assert "(default: '')" not in text, argv


HELP_PROGRAM = """
import sys
from proud.cli.main import run
try:
    run({argv})
except SystemExit:
    pass
ours = [name for name in sys.modules if name.split(".")[0] == "proud"]
assert len(ours) <= {most}, ours
"""


@pytest.mark.parametrize(
    ("argv", "most_modules", "times"), [(["--help"], 8, 0.2), (["train", "--help"], 34, 0.5)], ids=["proud", "train"]
)
def test_help_is_instant(argv: list[str], most_modules: int, times: float) -> None:
    """Few modules, and a fraction of the time of `import torch`."""
    assert_cpu_time(HELP_PROGRAM.format(argv=argv, most=most_modules), times)


def flags(argv: list[str]) -> str:
    wide = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "proud", *argv, "--help"], capture_output=True, text=True, env=wide
    ).stdout


def test_the_promised_flags_exist_without_prefixes() -> None:
    text = flags(["train"])
    wanted = "data labeled test unlabeled method model weights size epochs batch-size lr val seed device out resume"
    for name in [*wanted.split(), "overwrite", "skip-bad", "alpha", "tau-ratio", "views", "labels", "square"]:
        assert f"--{name}" in text, name
    assert "." not in "".join(word for word in text.split() if word.startswith("--"))
    for method in METHODS:
        assert method in text


def test_help_depends_on_method_and_data() -> None:
    text = flags(["train", "--method", "erm", "--data", "pacs"])
    assert "erm-method options" in text
    assert "--views" not in text
    assert "(default: 80)" in text


def test_misspelled_words_get_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
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
