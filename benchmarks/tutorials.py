"""Run tutorials and keep what they print: `python benchmarks/tutorials.py [NAME ...]`, by default on built-in data.

A tutorial is a script with cells, `# %%` for code and `# %% [markdown]` for text: editors open it as a notebook. One on
real data finds it through the environment variables that its first cell names.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from types import ModuleType

from table_text import RESULTS, ROOT, read, source, this_command

from proud.files import write_json
from proud.machine import choose_device, environment

FOLDER = ROOT / "docs" / "tutorials"
TUTORIALS = ("own_folders", "comparing_methods", "adding_a_method")
ON_REAL_DATA = ("blood_cells",)


def cells(name: str) -> list[tuple[str, str]]:
    """("text" or "code", its content) of each cell."""
    found = []
    for cell in (FOLDER / f"{name}.py").read_text(encoding="utf-8").split("# %%")[1:]:
        head, _, body = cell.partition("\n")
        if head.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("text", "\n".join(lines)))
        else:
            found.append(("code", body.strip()))
    return found


def run(name: str) -> list[str]:
    """What each code cell prints; files are written to the current folder."""
    module = ModuleType(name)
    sys.modules[name] = module
    printed = []
    for kind, text in cells(name):
        if kind == "code":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, f"{name}.py", "exec"), module.__dict__)
            printed.append(out.getvalue())
    return printed


def page(name: str) -> str:
    """Text, code and output as Markdown."""
    stored = read("tutorials.json").get(name)
    outputs = iter(stored["printed"] if stored else [])
    parts = []
    for kind, text in cells(name):
        if kind == "text":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if output := next(outputs, ""):
            parts.append(f"```text\n{output.rstrip()}\n```")
    if not stored:
        return f"Not run yet: `python benchmarks/tutorials.py {name}`.\n\n" + "\n\n".join(parts) + "\n"
    return "\n\n".join(parts) + "\n" + source("tutorials.json", stored)


def main() -> None:
    path = RESULTS / "tutorials.json"
    found = read(path.name) if path.exists() else {}
    for name in sys.argv[1:] or TUTORIALS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            printed = run(name)
        device = choose_device("auto" if name in ON_REAL_DATA else "cpu")
        found[name] = {"printed": printed, "command": this_command(), **environment(device)}
        write_json(path, found)


if __name__ == "__main__":
    main()
