"""Progress of a bench: a live table of combinations × methods, or lines where the output is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proud.bench.plan import DEVELOPMENT, Job, Key, Plan
from proud.bench.results import ResultRow
from proud.bench.scores import Summary, scores_of, summarize
from proud.errors import UserError
from proud.training.loop import Progress
from proud.trust.intervals import accuracy_interval


class BenchView:
    def __init__(self, plan: Plan, rows: Callable[[], list[ResultRow]], console: Console, quiet: bool = False) -> None:
        self.plan, self.rows, self.console, self.quiet = plan, rows, console, quiet
        self.shows_table = console.is_terminal and not quiet
        self.methods = list(dict.fromkeys(job.run.method for job in plan.jobs))
        self.combos = list(dict.fromkeys((job.run.labeled, job.run.test) for job in plan.jobs))
        self.seeds = len({job.run.seed for job in plan.jobs})
        self.done = rows()
        self.job: Job | None = None
        self.now: Progress | None = None
        self.held: dict[Key, str] = {}
        self.errors: dict[Key, str] = {}
        self.began = time.monotonic()
        self.live = Live(console=console, get_renderable=self.picture, refresh_per_second=2, transient=True)

    def __enter__(self) -> BenchView:
        if self.shows_table:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shows_table:
            self.live.stop()

    # ---- called by the worker

    def started(self, job: Job) -> None:
        self.job, self.now, self.held, self.began = job, None, {}, time.monotonic()
        self.done = self.rows()

    def stepped(self, job: Job, now: Progress) -> None:
        self.now = now

    def finished(self, job: Job, row: ResultRow) -> None:
        self.job, self.done = None, self.rows()
        wanted = {planned.key for planned in self.plan.jobs}
        count = sum((row["method"], row["labeled"], row["test"], row["seed"]) in wanted for row in self.done)
        accuracy = accuracy_interval(row["test_accuracy"], row["images"][row["test"]])
        self.say(f"{count}/{len(wanted)}  {title(job)}: {accuracy}, {row['seconds']:.0f} s")
        for text in row.get("warnings", []):
            self.say(f"  Warning: {text}")

    def failed(self, job: Job, error: UserError) -> None:
        self.job = None
        self.errors[job.key] = str(error)
        self.say(f"FAILED  {title(job)}: {error}")

    def waiting(self, jobs: dict[Key, str]) -> None:
        if jobs and not self.held:
            self.say(f"Waiting for {len(jobs)} runs of other workers ({', '.join(sorted(set(jobs.values())))})")
        self.held, self.done = jobs, self.rows()

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(escape(text), soft_wrap=True, highlight=False)

    # ---- the picture

    def picture(self) -> Group:
        table = Table(
            title=f"{escape(self.plan.bench)}, mean over seeds (runs done of {self.seeds})", title_justify="left"
        )
        table.add_column("labeled → test")
        for method in self.methods:
            table.add_column(escape(method), justify="right")
        development = DEVELOPMENT.get(self.plan.data, frozenset())
        summaries = {
            method: summarize(scores_of(self.done, method), self.combos, development) for method in self.methods
        }
        for place, (labeled, test) in enumerate(self.combos):
            mark = " †" if (labeled, test) in development else ""
            cells = (self.cell(summaries[method], place, (method, labeled, test)) for method in self.methods)
            table.add_row(f"{escape(labeled)} → {escape(test)}{mark}", *cells)
        table.add_section()
        averages = ((summaries[method].average, len(summaries[method].present)) for method in self.methods)
        table.add_row("Avg", *("–" if mean is None else f"{mean:.1f} ({count})" for mean, count in averages))
        return Group(table, Text(self.status()))

    def cell(self, summary: Summary, place: int, cell_of: tuple[str, str, str]) -> str:
        found = summary.cells[place]
        words = [] if found is None else [f"{found.mean:.1f} ({len(found.seeds)})"]
        if self.job is not None and self.job.key[:3] == cell_of:
            words.append(f"[bold]{self.share():.0%}[/bold]")
        if any(key[:3] == cell_of for key in self.held):
            words.append("[dim]elsewhere[/dim]")
        if any(key[:3] == cell_of for key in self.errors):
            words.append("[red]failed[/red]")
        return " ".join(words) or "[dim]·[/dim]"

    def share(self) -> float:
        """How much of the running stage is done."""
        now = self.now
        return 0.0 if now is None else ((now.epoch - 1) * now.steps + now.step) / (now.epochs * now.steps)

    def status(self) -> str:
        if self.job is None:
            return f"waiting for {len(self.held)} runs of other workers" if self.held else ""
        if self.now is None:
            return f"{title(self.job)}: reading images, building the network"
        now = self.now
        where = f"epoch {now.epoch} of {now.epochs}, " + (now.note or f"step {now.step} of {now.steps}")
        return f"{title(self.job)}: {now.stage}, {where}, {time.monotonic() - self.began:.0f} s"


def title(job: Job) -> str:
    return f"{job.run.method} {job.run.labeled} → {job.run.test}, seed {job.run.seed}"
