"""CSV files that list images, or labels for a few of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import three_sites, write_image

from proud.data.csv_table import LabelRow, read_labels, scan_csv
from proud.errors import UserError


@pytest.fixture(scope="module")
def with_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites, and links out of the folder."""
    base = tmp_path_factory.mktemp("tables")
    root = three_sites(base / "root", 1)
    (root / "escape.png").symlink_to(write_image(base / "outside.png", 1))
    (root / "sub").symlink_to(base)
    return root


def table(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_csv(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    path = table(
        tmp_path,
        "\ufeffPath, domain ,label,extra\n"
        "south/cat/000.png,b,,1\n"
        f"{tmp_path}/south/cat/001.png,b\n"
        "central/dog/000.png,a, dog ,2\n"
        "central/cat/000.png,a,cat,2\n",
    )
    catalog = scan_csv(path)
    assert list(catalog.domains) == ["a", "b"]
    assert [(entry.location, entry.label) for entry in catalog.domains["a"].entries] == [
        ("central/cat/000.png", "cat"),
        ("central/dog/000.png", "dog"),
    ]
    assert [entry.label for entry in catalog.domains["b"].entries] == [None, None]
    assert all(catalog.source(domain, e).is_file() for domain in catalog.domains.values() for e in domain.entries)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_are_known_by_the_column_names(separator: str, tmp_path: Path) -> None:
    three_sites(tmp_path, 1)
    lines = ["path,domain,label", 'central/cat/000.png,a,"cat, grey"', "central/dog/000.png,a,dog"]
    text = "\n".join([lines[0].replace(",", separator), *(line.replace(",", separator, 2) for line in lines[1:])])
    entries = scan_csv(table(tmp_path, text)).domains["a"].entries
    assert [entry.label for entry in entries] == ["cat, grey", "dog"]


def test_csv_split_column(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    head = "path,domain,label,split\ncentral/cat/000.png,a,cat,train\n"
    rows = scan_csv(table(tmp_path, head + "central/cat/001.png,a,cat,val\n")).domains["a"].entries
    assert [entry.split for entry in rows] == ["train", "val"]
    with pytest.raises(UserError, match="neither 'train' nor 'val'"):
        scan_csv(table(tmp_path, head + "central/cat/001.png,a,cat,tset\n"))
    with pytest.raises(UserError, match="some rows state a split"):
        scan_csv(table(tmp_path, head + "central/cat/001.png,a,cat,\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the columns path, domain, label"),
        ("path,domain\nx.png,a\n", "lacks the column label"),
        ("path domain label\nx.png a cat\n", "separated by commas or semicolons"),
        ("path,domain,label\n", "no rows"),
        ("path,domain,label\n,a,cat\n", "line 2: no path"),
        ("path,domain,label\ncentral/cat/000.png,,cat\n", "line 2: no domain"),
        ("path,domain,label\ncentral/cat/000.png,a,cat\ncentral/cat/000.png,b,cat\n", "line 3: .* listed before"),
        ("path,domain,label\ncentral/cat/000.png,a,cat\n./central//cat/000.png,b,cat\n", "line 3: .* listed before"),
        ("path,domain,label\nnorth/../central/cat/000.png,a,cat\ncentral/cat/000.png,a,cat\n", "before, in line 2"),
        ("path,domain,label\n../outside.png,a,cat\n", "outside the table's folder"),
        ("path,domain,label\ncentral/../../outside.png,a,cat\n", "outside the table's folder"),
        ("path,domain,label\n/etc/hostname,a,cat\n", "outside the table's folder"),
        ("path,domain,label\nescape.png,a,cat\n", "outside the table's folder"),
        ("path,domain,label\nsub/outside.png,a,cat\n", "outside the table's folder"),
        ("path,domain,label\n..,a,cat\n", "no file"),
    ],
)
def test_csv_problems_are_named(with_links: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        scan_csv(table(with_links, text))


def test_csv_many_missing_files_give_one_error_with_the_count(tmp_path: Path) -> None:
    rows = "".join(f"gone{number}.png,a,cat\n" for number in range(30))
    with pytest.raises(UserError) as caught:
        scan_csv(table(tmp_path, "path,domain,label\n" + rows))
    text = str(caught.value)
    assert "30 problems" in text and "gone0.png" in text and "gone9.png" not in text and "and 25 more" in text


def test_csv_missing_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        scan_csv(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"path,domain,label\n\xff\xfe\x00,a,b\n")
    with pytest.raises(UserError, match="UTF-8"):
        scan_csv(tmp_path / "binary.csv")


def test_labels_are_the_rows_that_are_filled_in(tmp_path: Path) -> None:
    text = "path,domain,label,guess,uncertainty,content\na.png,north, cat ,dog,0.5,12ab\nb.png,north,,cat,0.1,34cd\n"
    assert read_labels(table(tmp_path, text)) == [LabelRow(2, "a.png", "north", "cat", "12ab", "dog", "0.5")]
    short = table(tmp_path, "path,domain,label\n'=a.png,north,'-1\n")  # as written for spreadsheets
    assert read_labels(short) == [LabelRow(2, "=a.png", "north", "-1", "")]
    with pytest.raises(UserError, match="No label is filled in"):
        read_labels(table(tmp_path, "path,domain,label\na.png,north,\n"))
