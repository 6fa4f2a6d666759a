"""Progress of training on a terminal, within 80 columns: bars, and below them the newest numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from proud.printing import make_console
from proud.training import loop

MOST_SITES = 8


class Bars(Progress):
    """Bars with a table below them."""

    below: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below is not None:
            yield self.below


class TrainingBar:
    """Watches every step and epoch: a bar per stage, then scores, losses, and a line per unlabeled domain."""

    def __init__(
        self,
        title: str,
        console: Console | None = None,
        first_line: Callable[[], str] = lambda: "",
    ) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bars = Bars(*columns, console=console or make_console())
        self.title, self.first_line = title, first_line
        self.stages: dict[str, TaskID] = {}

    def __enter__(self) -> TrainingBar:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, now: loop.Progress) -> None:
        if not self.stages and (line := self.first_line()):
            self.bars.console.print(line)
        if now.estimate is not None:
            self.bars.console.print(str(now.estimate), markup=False, highlight=False, soft_wrap=True)
        if now.stage not in self.stages:
            label = f"{escape(self.title)} {escape(now.stage)}"
            self.stages[now.stage] = self.bars.add_task(label, total=now.epochs * now.steps)
        self.bars.update(self.stages[now.stage], completed=(now.epoch - 1) * now.steps + now.step)
        if now.record:
            self.bars.below = numbers(now.record, now.epochs)
        elif now.note or isinstance(self.bars.below, Text):
            self.bars.below = Text(f"  {now.note}", style="dim") if now.note else None


def numbers(record: dict[str, Any], epochs: int) -> Table:
    """The newest record: one line of scores and losses, then one per site."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="ellipsis", no_wrap=True, max_width=18)
    table.add_column(overflow="ellipsis")
    scores = [
        f"{name} {100 * record[key]:.1f} %"
        for name, key in (("test", "test_accuracy"), ("val", "val_accuracy"))
        if key in record
    ]
    losses = [f"{escape(name)} {value:.3f}" for name, value in record.get("losses", {}).items()]
    table.add_row(f"  epoch {record['epoch']}/{epochs}", " · ".join([*scores, *losses]))
    sites = record.get("domains", {})
    for name, site in list(sites.items())[:MOST_SITES]:
        words = [f"pseudo-labels {100 * site['accuracy']:.1f} % right"] if "accuracy" in site else []
        words += [f"λ {site['lambda']:.3f}"] if "lambda" in site else []
        words += [f"uncertainty {site['uncertainty']:.2f}"] if "uncertainty" in site else []
        table.add_row(f"  {escape(name)}", " · ".join(words))
    if len(sites) > MOST_SITES:
        table.add_row("", f"and {len(sites) - MOST_SITES} more domains")
    return table
