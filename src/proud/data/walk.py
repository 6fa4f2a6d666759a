"""Which files below a folder are images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from proud.errors import UserError

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
MAX_BYTES = 1_000_000_000
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif"})
IMAGE_SUFFIXES |= {".ppm", ".pgm", ".pbm", ".pnm", ".dcm", ".dicom"}
DEEPEST = 100
MOST_LINKS = 1000  # to one folder
LONGEST_TRAIL = 4  # links on the way to one file


class Walk:
    """Visits visible files and folders; links are followed unless they loop or, without `follow_links`, leave the root.

    The number of visits by links is limited: links to links can form endlessly many paths.
    """

    def __init__(self, root: Path, follow_links: bool = False) -> None:
        self.root, self.follow_links = root, follow_links
        self.real_root = Path(os.path.realpath(root))
        self.ignored_links: list[str] = []
        self.led_to: dict[Path, int] = {}
        self.others: Counter[str] = Counter()  # suffixes of files that are no images

    def folders(self, folder: Path) -> list[Path]:
        return sorted(Path(entry.path) for entry in self._visible(folder) if is_dir(entry) and self._may_follow(entry))

    def images(self, folder: Path) -> Iterator[Path]:
        return map(Path, self.image_paths(str(folder)))

    def image_paths(self, folder: str) -> list[str]:
        """As text: there may be a million of them."""
        found: list[str] = []
        self._collect(folder, found, (), 0)
        return found

    def _collect(self, folder: str, found: list[str], trail: tuple[Path, ...], depth: int) -> None:
        """`trail`: the real folders from which links led here."""
        if depth > DEEPEST:
            raise UserError(f"The folders are nested too deeply (more than {DEEPEST}): {str(folder)[:200]}…")
        for entry in self._visible(folder):
            name = entry.name
            is_image = name[name.rfind(".") :].lower() in IMAGE_SUFFIXES
            if is_image and entry.is_file(follow_symlinks=False):
                found.append(entry.path)
            elif is_dir(entry):
                if self._may_follow(entry, trail) and not (entry.is_symlink() and self._too_many(entry, trail)):
                    here = (Path(os.path.realpath(folder)),) if entry.is_symlink() else ()
                    self._collect(entry.path, found, trail + here, depth + 1)
            elif is_image and self._may_follow(entry):
                found.append(entry.path)
            elif not is_image:
                self.others[Path(name).suffix.lower()] += 1

    def _too_many(self, entry: os.DirEntry[str], trail: tuple[Path, ...]) -> bool:
        target = Path(os.path.realpath(entry.path))
        self.led_to[target] = self.led_to.get(target, 0) + 1
        if self.led_to[target] <= MOST_LINKS and len(trail) < LONGEST_TRAIL:
            return False
        self.ignored_links.append(Path(entry.path).relative_to(self.root).as_posix())
        return True

    def _visible(self, folder: Path | str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [entry for entry in entries if entry.name[0] != "."]
        except OSError as error:
            raise UserError(f"Cannot read the folder {folder}: {error.strerror or error}") from error

    def _may_follow(self, entry: os.DirEntry[str], trail: tuple[Path, ...] = ()) -> bool:
        if not entry.is_symlink():
            return True
        link = Path(entry.path)
        target = Path(os.path.realpath(link))
        steps = (self.real_root, *trail, Path(os.path.realpath(link.parent)))
        loops = any(step.is_relative_to(target) for step in steps)
        if loops or not (self.follow_links or target.is_relative_to(self.real_root)):
            self.ignored_links.append(link.relative_to(self.root).as_posix())
            return False
        return True


def is_dir(entry: os.DirEntry[str]) -> bool:
    """A link to itself is not a folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False
