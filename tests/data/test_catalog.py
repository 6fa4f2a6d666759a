"""The types that say where images are."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain
from proud.data.types import UnlabeledDomain
from proud.errors import UserError


def test_domains_of_files_and_of_arrays() -> None:
    files = DomainFiles("north", (Entry("north/a.png", "cat", "train"), Entry("north/b.png", None)))
    assert files.ships_split and not files.in_memory and files.unlabeled_entries == ["north/b.png"]
    pixels = np.zeros((2, 4, 5, 3), np.uint8)
    arrays = array_domain("arrays", pixels, ["cat", None])
    assert arrays.in_memory and not arrays.ships_split and arrays.unlabeled_entries == ["1"]
    assert DomainFiles("ready", (), ready=UnlabeledDomain.__new__(UnlabeledDomain)).in_memory
    catalog = Catalog("site", Path("root"), {"north": files, "arrays": arrays})
    assert catalog.where == "root" and Catalog("embedded", None, {}).where == "embedded"
    assert catalog.sources(files) == [Path("root/north/a.png"), Path("root/north/b.png")]
    assert all(np.shares_memory(found, image) for found, image in zip(catalog.sources(arrays), pixels, strict=True))


@pytest.mark.parametrize(("name", "label"), [("caf\udce9", "cat"), ("north", "caf\udce9")])
def test_names_of_domains_and_classes_must_be_text(name: str, label: str) -> None:
    DomainFiles("north", (Entry("caf\udce9.png", "cat"),))  # a file name may be any bytes
    with pytest.raises(UserError, match="is not valid UTF-8, but it names a domain or a class"):
        DomainFiles(name, (Entry("a.png", label),))


def test_a_catalog_warns_once_about_each_thing() -> None:
    catalog = Catalog("site", None, {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text, *key in (("dark", "dark", "north"), ("dark", "dark", "south"), ("again", "dark", "north"), ("", "x")):
            catalog.warn_once(text, *key)
    assert [str(warning.message) for warning in caught] == ["dark", "dark"]
