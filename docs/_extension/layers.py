"""The picture of the architecture: the layers that import-linter enforces, from pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
WIDTH, ROW, GAP = 660, 30, 6


def layers() -> str:
    """One row of boxes per layer, as SVG in the page's own colours."""
    contracts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (rows,) = (each["layers"] for each in contracts if each["type"] == "layers")
    boxes = []
    for place, row in enumerate(rows):
        names = [name.strip().removeprefix("proud.") for name in row.split("|")]
        width = (WIDTH - GAP * (len(names) - 1)) / len(names)
        for number, name in enumerate(names):
            boxes.append(box(name, number * (width + GAP), place * (ROW + GAP), width))
    height = len(rows) * (ROW + GAP) - GAP
    picture = [
        f'<svg class="layers" viewBox="-1 -1 {WIDTH + 2} {height + 2}" role="img" '
        'aria-label="The modules, layer above layer: each imports only from layers below it">',
        *boxes,
        "</svg>",
    ]
    return "\n".join(["```{raw} html", *picture, "```", ""])


def box(name: str, x: float, y: float, width: float) -> str:
    middle = f'x="{x + width / 2:.0f}" y="{y + ROW / 2:.0f}"'
    frame = f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROW}" rx="5"/>'
    return f'{frame}<text {middle} text-anchor="middle" dominant-baseline="central">{name}</text>'
