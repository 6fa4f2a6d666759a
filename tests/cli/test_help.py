"""Help is instant and imports no torch; errors name what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

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
    ("argv", "most_modules", "times"), [(["--help"], 8, 0.2), (["train", "--help"], 50, 0.5)], ids=["proud", "train"]
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


def test_the_usual_flags_of_train_come_first() -> None:
    lines = flags(["train"]).splitlines()
    first = [line.split()[1] for line in lines[:25] if line.startswith("│ --")]
    wanted = "data labeled test out method epochs size batch-size resume overwrite model"
    assert first == [f"--{name}" for name in wanted.split()]
    assert "--resume" in "\n".join(lines[:22])


def test_lines_of_help_are_at_most_100_characters_wide() -> None:
    """On a terminal of 200 columns."""
    for method in ("proud-plus", "eid"):
        assert max(map(len, flags(["train", "--method", method]).splitlines())) <= 100
    for name in COMMANDS.keys() - {"train"}:
        assert max(map(len, flags([name]).splitlines())) <= 100, name
    assert max(map(len, flags([]).splitlines())) <= 120


def test_no_symbols_in_help() -> None:
    """Settings are explained in words, not by a paper's symbols."""
    from proud.cli.flags.train_help import field_texts
    from proud.methods import method_class

    for method in METHODS:
        for name, text in field_texts(method_class(method).Config).items():
            assert text.isascii() and not re.search(r"\bEq\.|\b(U|Beta)\(|\([A-Z]\)", text), f"{method} {name}: {text}"


def test_defaults_are_those_of_the_data_and_the_device(tmp_path: Path) -> None:
    for site in ("a", "b"):
        (tmp_path / site / "x").mkdir(parents=True)
        Image.new("RGB", (100, 90)).save(tmp_path / site / "x" / "1.png")
    data = ["train", "--data", str(tmp_path)]
    on_cpu, on_gpu = (" ".join(flags([*data, "--device", device]).split()) for device in ("cpu", "cuda"))
    assert "sees (default: 128)" in on_cpu and "sees (default: 224)" in on_gpu
    assert "unlabeled) (default: 32)" in on_cpu and "unlabeled) (default: 128)" in on_gpu
    assert "(default: resnet18.tv_in1k)" in on_cpu
    Image.new("RGB", (60, 50)).save(tmp_path / "a" / "x" / "1.png")
    assert "sees (default: 32)" in " ".join(flags(data).split())


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
