"""Files: atomic writes, bounded reads of untrusted content, and the three formats JSON, CSV and safetensors."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from proud.errors import UserError
from proud.printing import DataOutput
from proud.text import one_line, safe_cell, valid_utf8

if TYPE_CHECKING:
    from torch import Tensor

MOST_JSON_BYTES = 64_000_000
MOST_LINES_BYTES = 1_000_000_000
MOST_TENSOR_BYTES = 64_000_000_000
MOST_HEADER_BYTES = 10_000_000


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the yielded path; it replaces `path` atomically once it is synced to disk."""
    with user_errors(path):
        refuse_special(path)
        make_folder(path.parent)
        part = path.parent / part_name(path.name)
        # created here, so that the user's umask decides who may read it
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        try:
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(path.parent)


def user_cache() -> Path:
    """Where things are kept that can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proud"


def part_name(name: str) -> str:
    """Of a file that is being written: no user has such a file, so that those of killed processes may be removed."""
    return f".{name}.{secrets.token_hex(4)}.proud-part"


def make_folder(folder: Path) -> None:
    """With its parents; each new entry is synced."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """A file survives a power loss only if its folder entry is synced too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def user_errors(path: Path) -> Iterator[None]:
    """A full disk or a missing permission is a UserError, not a traceback."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Cannot write {path}: {error.strerror or error}. What was written before is intact."
        ) from error


def refuse_special(path: Path) -> None:
    """A device or a pipe would be replaced by a file, /dev/null for example. Links count as what they lead to."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise UserError(f"{path} is {what}, not a file: choose another --out.")


def check_writable(path: Path) -> None:
    """Before long work: can its result be written there?"""
    with user_errors(path):
        refuse_special(path)
        probe(path.parent)


def check_output(path: Path, overwrite: bool) -> None:
    """Before long work: refuse to overwrite a file silently, or to write where it is impossible."""
    if is_stdout(path):
        raise UserError("--out - (stdout) is for predict, evaluate and label-next: name a file.")
    check_writable(path)
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists: choose another --out or add --overwrite.")


def probe(folder: Path) -> None:
    """Make the folder if missing. Raises an OSError if nothing can be written there."""
    make_folder(folder)
    trace = folder / part_name("writable")
    trace.touch(exist_ok=False)
    trace.unlink()


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as part:
        part.write_bytes(json_file(value))


def json_file(value: Any) -> bytes:
    """The content of a JSON file that people may read."""
    return json_bytes(value, indent=1) + b"\n"


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """UTF-8. File names that are not valid text are escaped, and read back unchanged."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def open_plain(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes. OSError for pipes, devices and larger files: none may block us."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a NUL byte
        raise OSError(str(error)) from error
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    if about.st_size > most:
        os.close(handle)
        raise OSError(f"{about.st_size:,} bytes exceed the limit of {most:,}")
    return os.fdopen(handle, "rb")


def open_own(path: Path, more: int = 0) -> int:
    """A handle for reading and writing a file of ours, made if missing. OSError for links, pipes and devices: what
    they lead to is not ours."""
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, how | more, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, "not a regular file")
    return handle


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of bounded size."""
    with open_plain(path, most) as file:
        return file.read()


def write_tensors(part: Path, tensors: dict[str, Tensor], format_name: str) -> None:
    """Safetensors; tensors of any device."""
    part.write_bytes(tensor_bytes(tensors, format_name))


def tensor_bytes(tensors: dict[str, Tensor], format_name: str) -> bytes:
    """A safetensors file."""
    from safetensors.torch import save  # noqa: PLC0415

    plain = {valid_utf8(key): value.detach().cpu().contiguous() for key, value in tensors.items()}
    return save(plain, metadata={"format": format_name})


def read_tensors(path: Path, most: int = MOST_TENSOR_BYTES) -> dict[str, Tensor]:
    """OSError if it cannot be read, ValueError if it is not a safetensors file. Nothing in it is executed."""
    return parse_tensors(read_regular(path, most))


def parse_tensors(content: bytes) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415

    try:
        return load(content)
    except (SafetensorError, KeyError, RuntimeError, TypeError, OverflowError) as error:
        raise ValueError(f"not a safetensors file ({one_line(error, 200)})") from error


def write_table(path: Path, columns: list[str], rows: Iterable[list[Any]]) -> None:
    """A CSV file that is safe to open in a spreadsheet; the file - is stdout."""
    if is_stdout(path):
        _write_cells(DataOutput(), columns, rows)
        return
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        _write_cells(file, columns, rows)


def table_bytes(columns: list[str], rows: Iterable[list[Any]]) -> bytes:
    """The same, as bytes."""
    file = io.StringIO(newline="")
    _write_cells(file, columns, rows)
    return file.getvalue().encode()


def _write_cells(file: TextIO | DataOutput, columns: list[str], rows: Iterable[list[Any]]) -> None:
    writer = csv.writer(file)
    writer.writerow([safe_cell(column) for column in columns])
    writer.writerows([safe_cell(cell) for cell in row] for row in rows)


def is_stdout(path: Path | str) -> bool:
    return str(path) == "-"


def refuse_stdout(path: Path | str, what: str) -> None:
    if is_stdout(path):
        raise UserError(f"--out -: {what} is several files, which cannot be written to stdout.")
