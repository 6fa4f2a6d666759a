"""Nothing that a stranger wrote reaches the terminal as a command, and nothing is printed past the one printer."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proud.cli import main as cli
from proud.model.predict import Model
from proud.nets.models import build_net, model_spec
from proud.printing import LONGEST_LINE, MOST_LINES, DataOutput, make_console, shown, write
from toy import write_folders

SOURCE = Path(__file__).parents[1] / "src" / "proud"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
HARMFUL = f"cat{CLIPBOARD}\x9b31m\u202e\x08\r"


def is_inert(text: str) -> bool:
    """Only line breaks, tabs and rich's own colours are left."""
    return not set(text) & set("\x07\x08\r\x9b\u202e") and "\x1b]" not in text


def test_only_one_module_prints() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "printing.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            plain = isinstance(called, ast.Name) and name == "print"
            direct = name == "write" and ast.unparse(called).startswith(("sys.std", "sys.__std"))
            assert not plain and not direct, f"{path}, line {node.lineno}: use proud.printing.write"
            assert name not in ("Console", "get_console"), (
                f"{path}, line {node.lineno}: use proud.printing.make_console"
            )


@pytest.mark.parametrize("terminal", [False, True])
def test_whatever_is_printed_is_inert(terminal: bool) -> None:
    console = make_console()
    console.file, console._force_terminal = io.StringIO(), terminal
    table = Table(HARMFUL, title=HARMFUL)
    table.add_row(escape(HARMFUL))
    table.add_row(Text(HARMFUL))
    console.print(HARMFUL, table, Text(HARMFUL), escape(HARMFUL))
    with Live(Text(HARMFUL), console=console, auto_refresh=False) as live:
        live.refresh()
    console.print(HARMFUL, markup=False, highlight=False, soft_wrap=True)
    said = console.file.getvalue()
    assert is_inert(said)
    assert said.count("\\x1b]52;c;") >= 5


def test_lengths_are_bounded() -> None:
    began = time.process_time()
    console = make_console()
    console.file = io.StringIO()
    console.print(escape("x" * 10_000_000), soft_wrap=True)
    console.print("y\n" * 1_000_000, markup=False)
    assert len(console.file.getvalue()) < 2 * LONGEST_LINE + 3 * MOST_LINES
    assert len(shown("x" * 10_000_000)) == LONGEST_LINE + 1
    assert time.process_time() - began < 5


def test_a_strangers_model_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = model_spec("digits", 2, 16)
    model = Model(build_net(spec), spec, (HARMFUL, "dog"), {}, torch.device("cpu"), warnings=(HARMFUL, "w" * 90_000))
    model.save(tmp_path / "model")
    root = write_folders(tmp_path / "data", {"a": 0}, per_class=1)
    out = str(tmp_path / "out.csv")
    assert cli.run(["predict", str(tmp_path / "model"), str(root), "--out", out, "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert is_inert(said.out + said.err)
    assert len(said.out + said.err) < 20_000
    assert "\\x1b]52" in said.out + said.err


def test_data_is_written_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    DataOutput().write(HARMFUL * 1000)
    assert capsys.readouterr().out == HARMFUL * 1000
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    DataOutput().write(HARMFUL)
    assert is_inert(capsys.readouterr().out)


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write(HARMFUL)
    assert is_inert(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("--version >&-", 0, ""),
        ("--help >&- 2>&-", 0, ""),
        ("--help > /dev/full", 2, "the output cannot be written: No space left on device"),
        ("nothing > /dev/full 2>&-", 2, ""),
    ],
)
def test_a_closed_or_full_output(command: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m proud {command}"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == code
    assert said in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") <= 1
