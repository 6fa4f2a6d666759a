"""From results to numbers: cells, averages, and what the paper's reviewers asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev

from proud.bench.plan import Combo
from proud.bench.results import ResultRow


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
    spread: float | None = None
    """standard deviation (ddof 1) over seeds of the average over combinations; None unless all cells have all seeds"""

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
        """Over combinations, of the population (ddof 0), as in the paper; of one there is none."""
        return pstdev(self.present.values()) if len(self.present) > 1 else None

    @property
    def average_elsewhere(self) -> float | None:
        """Without the development cells."""
        return fmean(self.elsewhere) if self.elsewhere else None

    @property
    def elsewhere(self) -> list[float]:
        return [value for combo, value in self.present.items() if combo not in self.development]

    @property
    def worst(self) -> tuple[Combo, float] | None:
        return min(self.present.items(), key=lambda item: item[1]) if self.present else None

    def average_over(self, combos: Iterable[Combo]) -> float | None:
        """None unless all of them are there."""
        wanted = list(combos)
        if not wanted or any(combo not in self.present for combo in wanted):
            return None
        return fmean(self.present[combo] for combo in wanted)


Scores = dict[Combo, dict[int, float]]
"""Accuracy in percent by combination and seed."""


def scores_of(
    rows: Iterable[ResultRow],
    method: str,
    score: Callable[[ResultRow], float | None] = lambda row: row["test_accuracy"],
) -> Scores:
    """A run's score is its mean over the last five epochs. Runs without one are left out."""
    found: Scores = {}
    for row in rows:
        if row["method"] == method and (value := score(row)) is not None:
            found.setdefault((row["labeled"], row["test"]), {})[row["seed"]] = 100 * value
    return found


def balanced_accuracy(row: ResultRow) -> float | None:
    """The mean recall of the classes that have test images."""
    recalls = [recall for recall in row.get("test_recall", []) if recall is not None]
    return fmean(recalls) if recalls else None


def paired(first: Scores, second: Scores) -> tuple[Scores, Scores, Scores]:
    """Both, where combination and seed have both, and the first minus the second there."""
    seeds = {combo: sorted(first[combo].keys() & second[combo].keys()) for combo in first.keys() & second.keys()}
    same = {combo: each for combo, each in seeds.items() if each}
    a, b = ({combo: {seed: of[combo][seed] for seed in each} for combo, each in same.items()} for of in (first, second))
    return a, b, {combo: {seed: a[combo][seed] - b[combo][seed] for seed in each} for combo, each in same.items()}


def summarize(scores: Scores, combos: Sequence[Combo], development: frozenset[Combo] = frozenset()) -> Summary:
    """A cell is the mean over seeds."""
    cells: list[Cell | None] = []
    for combo in combos:
        values = scores.get(combo)
        if not values:
            cells.append(None)
            continue
        spread = stdev(values.values()) if len(values) > 1 else None
        cells.append(Cell(fmean(values.values()), spread, tuple(sorted(values))))
    seeds = {cell.seeds if cell else () for cell in cells}
    common = seeds.pop() if len(seeds) == 1 else ()
    averages = [fmean(scores[combo][seed] for combo in combos) for seed in common]
    return Summary(tuple(combos), tuple(cells), development, stdev(averages) if len(averages) > 1 else None)
