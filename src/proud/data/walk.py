"""Which files below a folder are images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from proud.errors import UserError

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})


class Walk:
    """Visits visible files and folders; links are followed only if they stay below the root and do not loop."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real_root = root.resolve()
        self.ignored_links: list[str] = []

    def folders(self, folder: Path) -> list[Path]:
        return sorted(Path(entry.path) for entry in self._visible(folder) if entry.is_dir() and self._may_follow(entry))

    def images(self, folder: Path, trail: tuple[Path, ...] = ()) -> Iterator[Path]:
        """`trail`: the real folders from which links led here."""
        for entry in self._visible(folder):
            if entry.is_dir():
                if self._may_follow(entry, trail):
                    here = (Path(os.path.realpath(folder)),) if entry.is_symlink() else ()
                    yield from self.images(Path(entry.path), trail + here)
            elif Path(entry.name).suffix.lower() in IMAGE_SUFFIXES and self._may_follow(entry):
                yield Path(entry.path)

    def _visible(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            raise UserError(f"Cannot read the folder {folder}: {error.strerror or error}") from error

    def _may_follow(self, entry: os.DirEntry[str], trail: tuple[Path, ...] = ()) -> bool:
        if not entry.is_symlink():
            return True
        link = Path(entry.path)
        target = Path(os.path.realpath(link))
        loops = any(step.is_relative_to(target) for step in (*trail, Path(os.path.realpath(link.parent))))
        if loops or not target.is_relative_to(self.real_root):
            self.ignored_links.append(link.relative_to(self.root).as_posix())
            return False
        return True
