"""The four result tables of the paper: 12 accuracies per row, then the printed average and standard deviation.

Main tables: PACS, Digits-DG and Office-Home, eight methods each (all rows but ProUD's are from the EID paper).
Ablation table: PACS, ProUD without UDMix and without PML, with the printed differences.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedRow:
    method: str
    cells: tuple[float, ...]
    average: float
    std: float


@dataclass(frozen=True)
class PublishedTable:
    """`domains`: our domain name → abbreviation in the paper, in the order of the columns."""

    title: str
    domains: dict[str, str]
    rows: tuple[PublishedRow, ...]
    ablation: tuple[PublishedRow, ...] = ()

    @property
    def combos(self) -> list[tuple[str, str]]:
        """(labeled, test) of every column."""
        return [(labeled, test) for labeled in self.domains for test in self.domains if labeled != test]

    def row(self, method: str) -> PublishedRow | None:
        return next((row for row in (*self.rows, *self.ablation) if row.method == method), None)


def _rows(text: str) -> tuple[PublishedRow, ...]:
    """One row per line: `name | 12 cells | average std`."""
    rows = []
    for line in text.strip().splitlines():
        name, cells, summary = (part.strip() for part in line.split("|"))
        average, std = map(float, summary.split())
        rows.append(PublishedRow(name, tuple(map(float, cells.split())), average, std))
    return tuple(rows)


PACS = PublishedTable(
    "PACS",
    {"photo": "P", "art_painting": "A", "cartoon": "C", "sketch": "S"},
    _rows("""
        MeanTeacher | 54.7 36.3 33.1 91.9 65.6 38.1 80.3 60.6 58.6 38.1 33.4 54.7 | 53.8 18.3
        MixMatch    | 35.7 16.2 24.5 87.3 62.7 47.6 43.1 47.9 50.7 26.1 46.9 52.2 | 45.1 18.0
        FixMatch    | 66.8 34.9 25.9 96.6 72.9 67.1 91.7 76.5 69.5 36.3 35.2 56.0 | 60.8 22.3
        RSC         | 66.6 27.6 38.6 93.7 68.0 65.7 83.5 69.2 76.6 47.5 43.0 65.2 | 62.1 18.5
        L2D         | 65.2 30.7 35.4 96.1 65.7 58.0 87.3 73.5 67.9 48.2 45.9 61.8 | 61.3 18.6
        DGvGS       | 54.2 16.6 28.5 93.8 54.7 39.7 80.3 59.5 56.7 14.3 16.2 17.2 | 44.3 25.5
        EID         | 75.5 71.0 64.0 94.9 71.8 67.2 84.6 77.4 72.2 67.2 66.9 72.8 | 73.8 8.3
        ProUD       | 73.8 63.6 74.1 91.1 75.4 76.6 86.9 78.9 78.1 63.0 68.9 70.4 | 75.1 8.0
    """),
    _rows("""
        w/o UDMix       | 68.9 53.3 63.3 90.9 72.3 72.8 82.0 79.1 76.7 51.4 60.2 70.0 | 70.1 11.1
        w/o UDMix Diff. | -4.9 -10.2 -11.4 -0.4 -3.2 -3.3 -5.0 0.0 -1.1 -11.3 -9.3 +0.1 | -5.0 +3.1
        w/o PML         | 70.5 59.6 62.5 91.5 73.3 74.0 87.1 78.9 79.0 62.4 68.6 70.2 | 73.1 9.3
        w/o PML Diff.   | -3.3 -3.9 -12.2 +0.2 -2.2 -2.1 +0.1 -0.2 +1.2 -0.3 -0.9 +0.3 | -2.0 +1.3
    """),
)

DIGITS_DG = PublishedTable(
    "Digits-DG",
    {"mnist": "Mn", "mnist_m": "Mm", "svhn": "Sv", "syn": "Sy"},
    _rows("""
        MeanTeacher | 23.9 13.8 26.4 82.1 19.3 32.4 43.6 17.5 59.2 56.3 22.2 38.4 | 36.3 19.8
        MixMatch    | 33.0 18.1 30.3 93.6 26.7 45.4 59.3 27.9 76.7 67.7 36.9 51.5 | 47.3 22.1
        FixMatch    | 29.9 10.6 23.9 90.8 32.5 48.2 57.5 40.0 70.9 74.0 51.9 61.3 | 49.3 22.2
        RSC         | 42.8 19.3 45.0 93.6 11.7 12.0 70.5 46.1 95.5 81.4 42.4 78.8 | 53.3 29.0
        L2D         | 57.2 28.2 53.1 97.1 12.5 25.1 72.4 52.8 94.2 80.2 45.7 80.0 | 58.2 26.2
        DGvGS       | 13.3 12.2 19.5 88.9 11.2 16.5 57.7 24.2 88.5 68.4 25.9 67.1 | 41.1 29.3
        EID         | 51.6 37.3 53.3 97.1 58.6 69.1 87.7 60.9 87.5 92.4 64.2 70.9 | 69.2 17.8
        ProUD       | 70.3 57.8 65.8 97.6 63.4 70.5 80.7 61.5 83.4 92.2 65.5 74.4 | 73.6 12.0
    """),
)

OFFICE_HOME = PublishedTable(
    "Office-Home",
    {"art": "Ar", "clipart": "Cl", "product": "Pr", "real_world": "Rw"},
    _rows("""
        MeanTeacher | 35.1 50.5 60.8 39.1 51.4 54.0 35.8 34.5 62.0 54.4 43.4 72.2 | 49.4 11.6
        MixMatch    | 40.0 51.8 62.4 43.2 57.6 58.9 42.0 38.5 63.6 55.5 43.7 72.4 | 52.5 10.5
        FixMatch    | 41.4 55.3 64.4 44.4 57.8 57.5 44.0 42.2 65.8 57.2 45.0 73.7 | 54.1 10.2
        RSC         | 39.1 49.8 61.1 36.9 53.0 53.7 35.9 38.8 61.2 53.3 45.6 72.2 | 50.1 10.8
        L2D         | 39.6 44.8 57.5 42.2 52.6 55.7 38.5 43.0 62.3 55.0 48.3 69.3 | 50.7 9.2
        DGvGS       | 33.4 42.9 55.4 32.6 45.0 47.0 29.8 33.2 55.0 50.8 37.9 68.0 | 44.3 11.1
        EID         | 48.3 59.1 66.5 47.5 60.4 61.3 46.1 47.3 66.0 53.3 48.8 69.0 | 56.1 8.2
        ProUD       | 48.5 57.4 65.0 46.0 57.7 59.9 47.0 49.4 65.3 55.1 52.5 71.9 | 56.3 7.8
    """),
)

PUBLISHED = {"pacs": PACS, "digits-dg": DIGITS_DG, "office-home": OFFICE_HOME}

PUBLISHED_METHODS = {
    "proud": "ProUD",
    "proud-plus": "ProUD",
    "proud-no-udmix": "w/o UDMix",
    "proud-no-pml": "w/o PML",
    "mean-teacher": "MeanTeacher",
    "mixmatch": "MixMatch",
    "fixmatch": "FixMatch",
    "rsc": "RSC",
    "l2d": "L2D",
    "dgvgs": "DGvGS",
    "eid": "EID",
}
"""Our method → the published row it is compared with."""
