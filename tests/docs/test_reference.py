"""What the generated reference needs: a docstring, an explanation and an example where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from proud import ops, stored


@pytest.fixture(autouse=True)
def extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")


def test_the_public_api_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    from _extension.python_api import undocumented

    assert list(undocumented()) == []
    monkeypatch.setattr(ops.uncertainty, "__doc__", None)
    assert list(undocumented()) == ["proud.ops.uncertainty has no docstring"]


def test_every_field_of_every_file_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from _extension import files

    assert files.unexplained() == []
    found = files.records()
    declared = {name for name, value in vars(stored).items() if hasattr(value, "__required_keys__")}
    assert set(found) == declared
    for name, record in found.items():
        own = {field for field, _, _ in record.fields}
        assert own <= set(getattr(stored, name).__annotations__)
    monkeypatch.setattr(files, "comment", lambda line: "")
    assert "proud.stored.ManifestRecord: files is not explained" in files.unexplained()


def test_all_parts_are_used() -> None:
    from _extension.generated import MARK, PARTS

    pages = (Path(__file__).parents[2] / "docs").rglob("*.md")
    assert {name for page in pages for name in MARK.findall(page.read_text(encoding="utf-8"))} == set(PARTS)
