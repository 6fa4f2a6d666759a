"""From results to numbers: cells, averages, and what the paper's reviewers asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev

from proud.bench.plan import Combo
from proud.bench.results import Row


@dataclass(frozen=True)
class Cell:
    """Accuracy in percent, mean over seeds. `spread`: standard deviation over them (ddof 1), None for one seed."""

    mean: float
    spread: float | None = None
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Summary:
    """A method's row of the table: one cell per combination, None where nothing is measured yet."""

    combos: tuple[Combo, ...]
    cells: tuple[Cell | None, ...]
    development: frozenset[Combo] = frozenset()

    @property
    def present(self) -> dict[Combo, float]:
        return {combo: cell.mean for combo, cell in zip(self.combos, self.cells, strict=True) if cell is not None}

    @property
    def complete(self) -> bool:
        return all(cell is not None for cell in self.cells)

    @property
    def average(self) -> float | None:
        return fmean(self.present.values()) if self.present else None

    @property
    def std(self) -> float | None:
        """Over combinations, of the population (ddof 0), as in the paper."""
        return pstdev(self.present.values()) if self.present else None

    @property
    def average_elsewhere(self) -> float | None:
        """Without the development cells."""
        values = [value for combo, value in self.present.items() if combo not in self.development]
        return fmean(values) if values else None

    @property
    def worst(self) -> tuple[Combo, float] | None:
        return min(self.present.items(), key=lambda item: item[1]) if self.present else None

    def average_over(self, combos: Iterable[Combo]) -> float | None:
        """None unless all of them are there."""
        wanted = list(combos)
        if not wanted or any(combo not in self.present for combo in wanted):
            return None
        return fmean(self.present[combo] for combo in wanted)


def summarize(
    rows: Iterable[Row], method: str, combos: Sequence[Combo], development: frozenset[Combo] = frozenset()
) -> Summary:
    """A run's score is its mean over the last five epochs; a cell's is the mean over seeds."""
    found: dict[Combo, dict[int, float]] = {}
    for row in rows:
        if row["method"] == method:
            found.setdefault((row["labeled"], row["test"]), {})[row["seed"]] = 100 * row["test_accuracy"]
    cells: list[Cell | None] = []
    for combo in combos:
        values = found.get(combo)
        if not values:
            cells.append(None)
            continue
        spread = stdev(values.values()) if len(values) > 1 else None
        cells.append(Cell(fmean(values.values()), spread, tuple(sorted(values))))
    return Summary(tuple(combos), tuple(cells), development)
