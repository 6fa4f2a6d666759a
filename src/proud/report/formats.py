"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.text import safe_cell

if TYPE_CHECKING:
    from proud.bench.scores import Cell
    from proud.report.tables import Line, ResultTable

NOTHING = "–"


@dataclass(frozen=True)
class PlainTable:
    """A table of text. `ours`: the highlighted rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    ours: frozenset[int] = frozenset()

    def csv(self) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            [safe_cell(cell) for cell in row] for row in (self.columns, *self.rows)
        )
        return out.getvalue()

    def latex(self) -> str:
        lines = [r"\begin{table}[t]", rf"\caption{{{tex(f'{self.title}. {self.caption}'.strip())}}}", r"\centering"]
        lines += [rf"\begin{{tabular}}{{{'l' * len(self.columns)}}}", r"\hline"]
        lines.append(" & ".join(map(tex, self.columns)) + r" \\ \hline")
        lines += [" & ".join(map(tex, row)) + r" \\" for row in self.rows]
        return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}", ""])


def number(value: float | None, signed: bool = False) -> str:
    if value is None:
        return NOTHING
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def cell_text(cell: Cell | None, plus_minus: str, signed: bool = False) -> str:
    if cell is None:
        return NOTHING
    return number(cell.mean, signed) + ("" if cell.spread is None else f" {plus_minus}{cell.spread:.1f}")


def average_text(line: Line, plus_minus: str) -> str:
    spread = line.summary.spread
    over_seeds = "" if spread is None or line.printed else f" {plus_minus}{spread:.1f}"
    return number(line.average, line.signed) + over_seeds + partial(line)


def partial(line: Line) -> str:
    """` (n/m)` if only n of m combinations are measured."""
    summary = line.summary
    return "" if summary.complete else f" ({len(summary.present)}/{len(summary.combos)})"


def partial_elsewhere(line: Line) -> str:
    """The same for the average without development cells."""
    summary = line.summary
    total = sum(combo not in summary.development for combo in summary.combos)
    return f" ({len(summary.elsewhere)}/{total})" if 0 < len(summary.elsewhere) < total else ""


# ---- Markdown


def markdown(table: ResultTable) -> str:
    heads = heads_of(table)
    lines = [f"### {plain_markdown(table.title)}", "", _row(heads), _row(["---"] + ["---:"] * (len(heads) - 1))]
    labels = ["**{}**" if table.compared and not line.published else "{}" for line in table.lines]
    lines += [_row(cells_of(table, line, label)) for line, label in zip(table.lines, labels, strict=True)]
    return "\n".join([*lines, "", *(f"- {plain_markdown(text)}" for text in table.footer), ""])


def heads_of(table: ResultTable) -> list[str]:
    heads = ["Method"]
    for labeled, test in table.combos:
        mark = " †" if (labeled, test) in table.development else ""
        heads.append(f"{table.short[labeled]}•/{table.short[test]}*{mark}")
    heads += ["Avg", "Std", *(["Avg −†"] if table.development else []), "Worst"]
    return [*heads, *(["Difference"] if table.compared else [])]


def cells_of(table: ResultTable, line: Line, label: str = "{}") -> list[str]:
    cells = [label.format(line.label)]
    cells += [cell_text(cell, "±", line.signed) for cell in line.summary.cells]
    cells += [average_text(line, "±"), number(line.std, line.signed)]
    if table.development:
        cells.append(number(line.summary.average_elsewhere, line.signed) + partial_elsewhere(line))
    worst = line.summary.worst
    place = "" if worst is None else f" {table.short[worst[0][0]]}•/{table.short[worst[0][1]]}*"
    cells.append(number(worst_of(line), line.signed) + place)
    return [*cells, *([number(line.difference, signed=True)] if table.compared else [])]


def worst_of(line: Line) -> float | None:
    return None if line.summary.worst is None else line.summary.worst[1]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain_markdown(cell) for cell in cells) + " |"


def plain_markdown(text: str) -> str:
    """Domain names must neither split a row nor become HTML; asterisks are intended."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


# ---- CSV


def csv_text(tables: Sequence[ResultTable]) -> str:
    """Full precision; each cell is followed by the standard deviation over seeds and the number of seeds."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    combos, development = tables[0].combos, tables[0].development
    heads = ["table", "source", "method"]
    for labeled, test in combos:
        heads += [f"{labeled}:{test}", f"{labeled}:{test} seed std", f"{labeled}:{test} seeds"]
    heads += ["avg", "avg seed std", "std", "avg without development cells", "worst", "worst cell", "difference"]
    heads += ["cells", "cells without development cells", "development cells"]
    writer.writerow([safe_cell(head) for head in heads])
    for table in tables:
        for line in table.lines:
            summary, worst = line.summary, line.summary.worst
            row: list[object] = [table.title, "published" if line.published else "ours", line.label]
            for cell in summary.cells:
                values = [None, None] if cell is None else [cell.mean, cell.spread]
                row += [*map(_rounded, values), (cell and len(cell.seeds)) or ""]
            row += map(_rounded, (line.average, summary.spread, line.std, summary.average_elsewhere))
            row += [_rounded(worst and worst[1]), "" if worst is None else ":".join(worst[0])]
            row += [_rounded(line.difference), len(summary.present), len(summary.elsewhere)]
            row.append(" ".join(":".join(combo) for combo in combos if combo in development))
            writer.writerow([safe_cell(value) for value in row])
    return out.getvalue()


def _rounded(value: float | None) -> float | str:
    return "" if value is None else round(value, 4)


# ---- LaTeX


def latex(table: ResultTable) -> str:
    """The layout of the paper: labeled domains above groups of test domains. Needs graphicx."""
    groups: dict[str, list[str]] = {}
    for labeled, test in table.combos:
        groups.setdefault(labeled, []).append(test)
    tail = ["Avg.", "Std.", *(["Avg.$-\\dagger$"] if table.development else []), "Worst"]
    tail += ["Diff."] if table.compared else []
    columns = "l|" + "|".join("c" * len(tests) for tests in groups.values()) + "|c" * len(tail)
    first = [""] + [
        rf"\multicolumn{{{len(tests)}}}{{c|}}{{{tex(table.short[labeled])}$^\bullet$}}"
        for labeled, tests in groups.items()
    ]
    second = ["Method"]
    for labeled, tests in groups.items():
        for test in tests:
            mark = r"\dagger" if (labeled, test) in table.development else ""
            second.append(f"{tex(table.short[test])}$^{{*{mark}}}$")
    lines = [r"\begin{table}[t]", rf"\caption{{{tex(table.title)}. {tex(' '.join(table.footer))}}}", r"\centering"]
    lines += [r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{{columns}}}", r"\hline"]
    lines += [" & ".join([*first, *[""] * len(tail)]) + r" \\", " & ".join([*second, *tail]) + r" \\ \hline"]
    for place, line in enumerate(table.lines):
        last = place + 1 == len(table.lines) or line.published != table.lines[place + 1].published
        lines.append(" & ".join(_latex_cells(table, line)) + r" \\" + (r" \hline" if last else ""))
    return "\n".join([*lines, r"\end{tabular}}", r"\end{table}", ""])


def _latex_cells(table: ResultTable, line: Line) -> list[str]:
    cells = [tex(line.label)] + [cell_text(cell, r"$\pm$", line.signed) for cell in line.summary.cells]
    cells += [average_text(line, r"$\pm$"), number(line.std, line.signed)]
    if table.development:
        cells.append(number(line.summary.average_elsewhere, line.signed) + partial_elsewhere(line))
    cells.append(number(worst_of(line), line.signed))
    cells += [number(line.difference, signed=True)] if table.compared else []
    return [cell.replace(NOTHING, "--") for cell in cells]


SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
SPECIAL |= {"•": r"$\bullet$", "†": r"$\dagger$", "±": r"$\pm$", "−": r"$-$", "“": "``", "”": "''", "–": "--"}
SPECIAL |= {"→": r"$\rightarrow$", "λ": r"$\lambda$", "ε": r"$\varepsilon$", "\n": " "}
SPECIAL |= {"✓": r"$\surd$", "✗": r"$\times$", "…": r"\ldots{}", "·": r"$\cdot$", "<": "$<$", ">": "$>$", "\u00a0": "~"}


def tex(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
