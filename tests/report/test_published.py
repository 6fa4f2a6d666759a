"""The transcribed tables agree with themselves: printed averages and standard deviations follow from the cells."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from proud.report.published import PUBLISHED, PublishedRow

ROUNDING = 0.06
MAIN = [(name, row) for name, table in PUBLISHED.items() for row in table.rows]
ABLATION = [("pacs", row) for row in PUBLISHED["pacs"].ablation]
VALUES = [pair for pair in MAIN + ABLATION if not pair[1].method.endswith("Diff.")]


@pytest.mark.parametrize(("name", "row"), VALUES, ids=lambda part: getattr(part, "method", part))
def test_printed_summary_follows_from_the_cells(name: str, row: PublishedRow) -> None:
    # no row of the four tables is an exception
    assert len(row.cells) == 12
    assert fmean(row.cells) == pytest.approx(row.average, abs=ROUNDING)
    assert pstdev(row.cells) == pytest.approx(row.std, abs=ROUNDING)


def test_every_main_table_has_the_eight_methods() -> None:
    methods = ["MeanTeacher", "MixMatch", "FixMatch", "RSC", "L2D", "DGvGS", "EID", "ProUD"]
    for table in PUBLISHED.values():
        assert [row.method for row in table.rows] == methods
        assert len(table.combos) == 12


@pytest.mark.parametrize("part", ["w/o UDMix", "w/o PML"])
def test_printed_differences_are_0_6_off_at_most(part: str) -> None:
    """The paper's own: its "Diff." cells do not follow from its cells exactly, only their means do."""
    table = PUBLISHED["pacs"]
    full, without, printed = table.row("ProUD"), table.row(part), table.row(f"{part} Diff.")
    assert full and without and printed
    gaps = [abs(b - a - d) for a, b, d in zip(full.cells, without.cells, printed.cells, strict=True)]
    assert 0.5 < max(gaps) < 0.65
    assert fmean(printed.cells) == pytest.approx(printed.average, abs=ROUNDING)
    assert without.average - full.average == pytest.approx(printed.average, abs=ROUNDING)
    assert without.std - full.std == pytest.approx(printed.std, abs=ROUNDING)


def test_columns_are_in_the_papers_order() -> None:
    table = PUBLISHED["digits-dg"]
    heads = [f"{table.domains[labeled]}:{table.domains[test]}" for labeled, test in table.combos]
    assert heads[:4] == ["Mn:Mm", "Mn:Sv", "Mn:Sy", "Mm:Mn"]
    proud = table.row("ProUD")
    assert proud and dict(zip(heads, proud.cells, strict=True))["Sv:Mn"] == 80.7
