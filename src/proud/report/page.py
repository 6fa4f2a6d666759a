"""`report.html` as a single file, with every figure and table beside it as PNG, PDF, LaTeX and CSV."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import proud
from proud.data.folder import REPORT_MARK
from proud.data.source import without_gc
from proud.errors import UserError
from proud.files import json_file, part_name, refuse_special
from proud.held import PART, HeldFolder
from proud.report.figures.pictures import picture_png
from proud.report.figures.style import DARK, LIGHT, Chart, Panel, chart_files, panel_png
from proud.report.formats import PlainTable
from proud.report.run_tables import audited_accuracy, images_of
from proud.report.sections import Block, Section, TableBlock, make_sections
from proud.report.sources import BenchSource, RunSource, read_sources
from proud.stored import ReportMark
from proud.trust.intervals import accuracy_interval
from proud.typed import read_record

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

SEPARATORS = re.compile(r"(?<=[_/.\-\s])")
MOST_LETTERS = 26  # of a word beside others
# SVG paths of the legend markers, 16 × 16
OUTLINES = {
    "o": "M8 2a6 6 0 1 0 .01 0z",
    "X": "M4 1l4 4 4-4 3 3-4 4 4 4-3 3-4-4-4 4-3-3 4-4-4-4z",
    "s": "M2.5 2.5h11v11h-11z",
    "^": "M8 1.5l6.5 12.5h-13z",
    "D": "M8 1l6 7-6 7-6-7z",
    "v": "M8 14.5L1.5 2h13z",
    "P": "M5.5 1h5v4.5H15v5h-4.5V15h-5v-4.5H1v-5h4.5z",
    "<": "M1.5 8L14 1.5v13z",
    ">": "M14.5 8L2 1.5v13z",
    "p": "M8 1l7 5.2L12.3 14.5H3.7L1 6.2z",
    "H": "M4 1.5h8L15.5 8 12 14.5H4L.5 8z",
    "*": "M8 .5l2.2 5 5.3.5-4 3.6 1.2 5.4L8 12.2 3.3 15l1.2-5.4-4-3.6 5.3-.5z",
    "-": "M0 7h16v2.4H0z",
    "--": "M0 7h6.5v2.4H0zM9.5 7H16v2.4H9.5z",
    ":": "M0 7h3v2.4H0zM4.5 7h2.8v2.4H4.5zM9 7h2.8v2.4H9zM13.2 7H16v2.4h-2.8z",
}


def write_report(
    paths: Sequence[Path],
    out: Path,
    *,
    overwrite: bool = False,
    more_results: Sequence[PlainTable] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """Read runs and benches, write the page and its files; returns the path of the page."""
    files = ReportFiles(out, overwrite)
    runs, benches = read_sources(paths)
    sections = make_sections(runs, benches, progress, more_results)
    progress("figures")
    context = {
        "title": title_of(runs, benches),
        "tiles": [tile(run) for run in runs],
        "sections": [section_view(section, files, progress) for section in sections],
        "sources": [str(path) for path in paths],
        "files": files.folder.name,
        "out": out.name,
        "version": proud.__version__,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    }
    files.write(template("report.html").render(context))
    return out


def template(name: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("proud.report"),
        autoescape=True,  # names of classes and domains are untrusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "longest_piece": longest_piece}
    return environment.get_template(name)


def breakable(text: str) -> Markup:
    """Names may continue on the next line after a separator, never within a word."""
    from markupsafe import Markup, escape  # noqa: PLC0415

    return Markup("<wbr>").join(escape(piece) for piece in SEPARATORS.split(str(text)) if piece)


def longest_piece(images: Iterable[Any]) -> int:
    """Letters of the longest word in the labels of images: how wide they must be at least."""
    pieces = (piece.strip() for item in images for piece in SEPARATORS.split(f"{item.label} "))
    return min(MOST_LETTERS, max(map(len, pieces), default=1)) + 2


class ReportFiles:
    """The folder beside the page. Only files of an earlier report are ever replaced."""

    def __init__(self, out: Path, overwrite: bool) -> None:
        self.out = out
        self.folder = out.with_name(f"{out.stem}_files")
        self.contents: dict[str, bytes] = {}
        self.earlier: list[str] = []
        if out.is_dir():
            raise UserError(f"--out {out} is a folder: give the file to write, e.g. --out {out / 'report.html'}.")
        if out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out {out}: the name must end in .html.")
        refuse_special(out)
        if out.exists() and not overwrite:
            raise UserError(f"{out} exists: choose another --out or add --overwrite.")
        if not self.folder.exists():
            return
        earlier = self._earlier()
        if earlier is None and (not self.folder.is_dir() or any(not PART.fullmatch(name) for name in self._names())):
            raise UserError(f"{self.folder} contains files that are not from a report: choose another --out.")
        if earlier is not None and not overwrite:
            raise UserError(f"{self.folder} contains an earlier report: choose another --out or add --overwrite.")
        self.earlier = earlier or []

    def _earlier(self) -> list[str] | None:
        try:
            return read_record(self.folder / REPORT_MARK, ReportMark)["files"]
        except (OSError, ValueError):
            return None

    def _names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    def add(self, name: str, content: bytes | str) -> dict[str, str]:
        """Queue a file for `write`; returns its link."""
        self.contents[name] = content.encode() if isinstance(content, str) else content
        return {"href": f"{quote(self.folder.name)}/{quote(name)}", "kind": name.rpartition(".")[2].upper()}

    def write(self, page: str) -> None:
        """Everything is on the disk before the first file of an earlier report is replaced. The list of files comes
        first, so that an interrupted report can be replaced."""
        listed = json_file({"files": [*self.contents, REPORT_MARK]})
        with HeldFolder(self.folder) as folder, HeldFolder(self.out.parent) as above:
            folder.remove_parts()
            new = [(folder, REPORT_MARK, listed), *((folder, *each) for each in self.contents.items())]
            new.append((above, self.out.name, page.encode()))
            parts = [part_name(name) for _, name, _ in new]
            try:
                for part, (place, name, content) in zip(parts, new, strict=True):
                    place.write_part(part, name, content)
            except BaseException:
                folder.remove_parts()
                raise
            for part, (place, name, _) in zip(parts, new, strict=True):
                place.rename_part(part, name)
            folder.remove(*(Path(name).name for name in self.earlier if name not in (*self.contents, REPORT_MARK)))


# ---- values for the template


def title_of(runs: Sequence[RunSource], benches: Sequence[BenchSource]) -> str:
    combos = list(dict.fromkeys(run.combination for run in runs))
    if len(combos) == 1:
        labeled, test = combos[0]
        return f"{labeled} labeled" + ("" if test == "none" else f", {test} unseen")
    return ", ".join(bench.name for bench in benches) or f"{len(runs)} runs"


def tile(run: RunSource) -> dict[str, Any]:
    """The headline accuracy of a run."""
    result: Mapping[str, Any] = run.result
    key = next((key for key in ("test_accuracy", "val_accuracy") if key in result), None)
    on = run.config.test if key == "test_accuracy" else f"validation of {run.config.labeled}"
    first, last = result.get("domains_first", {}), result.get("domains_last", {})
    sites = [
        (site, f"{100 * first[site]['accuracy']:.0f} → {audited_accuracy(run, site)}")
        for site in last
        if "accuracy" in last[site] and "accuracy" in first.get(site, {})
    ]
    shown = None if key is None else accuracy_interval(result[key], images_of(run, key.partition("_")[0]))
    digits = 1 if shown is None or shown.has_decimal else 0
    number = "" if key is None else f"{100 * result[key]:.{digits}f}"
    interval = ""
    if shown is not None:
        interval = f"{100 * shown.low:.{digits}f}–{100 * shown.high:.{digits}f} %, n = {shown.images}"
    view = {"name": run.name, "number": number, "on": on, "sites": sites, "labeled": run.config.labeled}
    view |= {"interval": interval}
    return view | {"warnings": result.get("warnings", [])}


def section_view(section: Section, files: ReportFiles, progress: Callable[[str], None]) -> dict[str, Any]:
    progress(section.title)
    blocks = []
    for block in section.blocks:
        with without_gc():  # figures are many small objects
            blocks.append(block_view(block, files))
    return {"id": section.id, "title": section.title, "lead": section.lead, "blocks": blocks}


def block_view(block: Block, files: ReportFiles) -> dict[str, Any]:
    if isinstance(block, TableBlock):
        links = [files.add(f"{block.name}.{kind}", text) for kind, text in block.files.items()]
        view = {"kind": block.kind, "table": block.table, "folded": block.folded, "links": links}
        return view | {"images": block.images, "picture": picture_uri}
    links = [files.add(f"{block.name}.{kind}", content) for kind, content in chart_files(block.chart).items()]
    if block.kind == "chart":
        return chart_view(block.chart) | {"kind": block.kind, "links": links}
    view = {"kind": block.kind, "title": block.chart.title, "links": links, "picture": picture_uri}
    return view | ({"pairs": block.pairs} if block.kind == "pairs" else {"domains": block.domains})


def chart_view(chart: Chart) -> dict[str, Any]:
    marks = [
        {"label": mark.label, "color": mark.color, "outline": OUTLINES.get(mark.shape or mark.line, OUTLINES["o"])}
        for mark in chart.marks
    ]
    panels = [panel_view(panel) for panel in chart.panels]
    columns = min(chart.columns, len(panels))
    return {"title": chart.title, "caption": chart.caption, "panels": panels, "marks": marks, "columns": columns}


def panel_view(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "light": data_uri(panel_png(panel, LIGHT)),
        "dark": data_uri(panel_png(panel, DARK)),
        "width": round(panel.width * 100),
        "height": round(panel.height * 100),
    }


def picture_uri(image: Any) -> str:
    return data_uri(picture_png(image))


def data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
