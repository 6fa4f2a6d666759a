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
from typing import Any

import torch
from PIL import Image
from table_text import RESULTS, ROOT, read, source, this_command

from proud.data.embedded import load_embedded
from proud.files import write_json
from proud.machine import environment

PAGE = ROOT / "docs" / "start" / "own-folders.md"
FOLDERS = {"pen": "sites/central", "texture": "sites/north", "print": "sites/south", "street": "new_site"}
FIRST, LAST = 9, 14  # lines that are shown of a long screen


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
    if len(lines) > FIRST + LAST + 5:
        lines = [*lines[:FIRST], f"… {len(lines) - FIRST - LAST} more lines", *lines[-LAST:]]
    shown = "```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"
    return shown + (source_of(stored) if number == len(stored["screens"]) else "")


def source_of(stored: dict[str, Any]) -> str:
    """After the last screen: how long all took, and where they come from."""
    seconds = sum(each["seconds"] for each in stored["screens"])
    all_took = f"All commands of this page together: {seconds / 60:.1f} minutes on a busy CPU."
    return f"\n{all_took}\n{source('screens.json', stored)}"


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
