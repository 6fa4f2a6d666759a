"""Where data sets come from: the embedded one, a folder, a CSV file, or a public benchmark in its own layout."""

from __future__ import annotations

from pathlib import Path

from proud.data.catalog import Catalog, scan_csv, scan_folder
from proud.data.embedded import embedded_catalog


def catalog_for(name_or_path: str | Path, root: Path | str | None = None) -> Catalog:
    if str(name_or_path) == "embedded":
        return embedded_catalog()
    path = Path(name_or_path)
    return scan_csv(path) if path.suffix.lower() == ".csv" else scan_folder(path)
