"""Progress of training without a terminal: one line per epoch, written at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console

from proud.printing import make_console
from proud.text import duration
from proud.training.loop import Progress
from proud.training.progress import MOST_SITES, TrainingBar

SECONDS_BETWEEN = 60.0  # lines within a long epoch


class Silent(AbstractContextManager["Silent"]):
    """Watches, and shows nothing."""

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, now: Progress) -> None:
        pass


class TrainingLines(AbstractContextManager["TrainingLines"]):
    """Elapsed time, stage and epoch, losses, accuracies, the certainty of each site's pseudo-labels, time left."""

    def __init__(self, title: str, console: Console | None = None, first_line: Callable[[], str] = lambda: "") -> None:
        self.title, self.console, self.first_line = title, console or make_console(), first_line
        self.begin = self.newest = time.monotonic()
        self.stage = ""

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, now: Progress) -> None:
        if not self.stage and (line := self.first_line()):
            self.console.print(line, soft_wrap=True)
        if now.estimate is not None:
            self.say(str(now.estimate))
        if now.stage != self.stage:
            self.stage = now.stage
            self.say(f"{self.title} {now.stage}: {_count(now.epochs, 'epoch')} of {_count(now.steps, 'step')}")
        where = f"{now.stage} {now.epoch}/{now.epochs}"
        if now.note:
            self.say(f"{where}  {now.note}")
        elif now.record is not None:
            self.say("  ".join([where, *numbers(now.record), *_left(now)]))
        elif now.step and time.monotonic() - self.newest >= SECONDS_BETWEEN:
            self.say("  ".join([where, f"step {now.step}/{now.steps}", *_left(now)]))

    def say(self, text: str) -> None:
        self.newest = time.monotonic()
        elapsed = round(self.newest - self.begin)
        clock = f"{elapsed // 3600}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
        self.console.print(f"{clock}  {text}", markup=False, highlight=False, soft_wrap=True)


def watching(
    title: str, verbose: bool | None, console: Console | None = None, first_line: Callable[[], str] = lambda: ""
) -> AbstractContextManager[Callable[[Progress], None]]:
    """Bars on a terminal; elsewhere lines if `verbose` is True, and nothing if it is None. False: nothing."""
    if verbose is False:
        return Silent()
    console = console or make_console()
    if console.is_terminal:
        return TrainingBar(title, console, first_line)
    return TrainingLines(title, console, first_line) if verbose else Silent()


def numbers(record: dict[str, Any]) -> list[str]:
    """Losses, accuracies and sites of one epoch."""
    losses = [f"{name} {value:.3f}" for name, value in record.get("losses", {}).items()]
    scores = [
        f"{name} {100 * record[key]:.1f} %"
        for name, key in (("val", "val_accuracy"), ("test", "test_accuracy"))
        if key in record
    ]
    sites = list(record.get("domains", {}).items())
    words = [f"{name} {certainty(site)}" for name, site in sites[:MOST_SITES] if certainty(site)]
    words += [f"and {len(sites) - MOST_SITES} more sites"] if len(sites) > MOST_SITES else []
    return ["  ".join(losses), *scores, *words]


def certainty(site: dict[str, Any]) -> str:
    """The share of certain pseudo-labels or, for methods that do not know it, their mean uncertainty."""
    if "certain" in site:
        return f"{100 * site['certain']:.0f} % certain"
    return f"uncertainty {site['uncertainty']:.2f}" if "uncertainty" in site else ""


def _left(now: Progress) -> list[str]:
    return [] if now.left is None or now.left < 0.5 else [f"{duration(now.left)} left"]


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
