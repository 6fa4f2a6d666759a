"""Run the commands of docs/start/own-folders.md and keep what they print: `python benchmarks/screens.py`.

The images are the built-in set's: pen is called central, texture north, print south, and street is the new site.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from table_text import RESULTS, ROOT, read, source, this_command

from proud.data.embedded import load_embedded
from proud.files import write_json
from proud.machine import environment

PAGE = ROOT / "docs" / "start" / "own-folders.md"
FOLDERS = {"pen": "sites/central", "texture": "sites/north", "print": "sites/south", "street": "new_site"}
SHOWN = 14  # lines at the start and at the end of a long screen


def commands(page: Path = PAGE) -> list[list[str]]:
    """The words of each command in the page's sh blocks, without the program's name."""
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for line in block.splitlines()
    ]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("proud ")]


def write_sites(root: Path) -> None:
    for site, (images, labels) in load_embedded().items():
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = root / FOLDERS[site] / (str(label) if site == "pen" else "")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{number:03d}.png")


def screen(number: int) -> str:
    """What a command printed, as Markdown; of long screens, start and end."""
    stored = read("screens.json")
    found = stored["screens"][number - 1]
    lines = found["printed"].splitlines()
    if len(lines) > 2 * SHOWN + 1:
        lines = [*lines[:SHOWN], f"… {len(lines) - 2 * SHOWN} more lines", *lines[-SHOWN:]]
    about = f"\n{found['seconds']:.0f} s.\n{source('screens.json', stored)}"
    return "```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n" + about


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_sites(Path(folder))
        for words in commands():
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "proud", *words],
                cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
                env=os.environ | {"COLUMNS": "110", "NO_COLOR": "1"},
            )  # fmt: skip
            seconds = time.perf_counter() - begin
            found.append({"command": shlex.join(["proud", *words]), "printed": done.stdout, "seconds": seconds})
    about = environment(torch.device("cpu"))
    write_json(RESULTS / "screens.json", {"screens": found, "seed": 2022, "command": this_command(), **about})


if __name__ == "__main__":
    main()
