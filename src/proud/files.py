"""Files that are either wholly there or not at all, and files that are not trusted until they have been looked at."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.plain_files import open_plain

if TYPE_CHECKING:
    from torch import Tensor

MOST_JSON_BYTES = 64_000_000
MOST_TENSOR_BYTES = 64_000_000_000
MOST_HEADER_BYTES = 10_000_000


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the yielded path; it becomes `path` in one step once it is safely on disk."""
    with telling_why(path):
        make_folder(path.parent)
        part = path.parent / f".{path.name}.{secrets.token_hex(4)}.part"
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


def make_folder(folder: Path) -> None:
    """With its parents, each entered safely in the one above."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """A file's name is safe only when its folder is on disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(folder: Path) -> None:
    """What killed processes left half-written."""
    with telling_why(folder):
        for path in folder.glob(".*.part"):
            path.unlink(missing_ok=True)


@contextmanager
def telling_why(path: Path) -> Iterator[None]:
    """A full disk or a missing permission is the user's to mend: no traceback."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Cannot write {path}: {error.strerror or error}. What was written before is intact."
        ) from error


def check_writable(path: Path) -> None:
    """Before long work: can its result be written there?"""
    with telling_why(path):
        probe(path.parent)


def probe(folder: Path) -> None:
    """Make the folder if need be; an OSError where nothing can be written."""
    make_folder(folder)
    trace = folder / ".writable"
    trace.touch()
    trace.unlink(missing_ok=True)  # another process may look at the same time


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as part:
        part.write_bytes(json_bytes(value, indent=1) + b"\n")


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """UTF-8; names that are no valid text (file names may be any bytes) are escaped, and read back as they were."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def read_regular(path: Path, most: int) -> bytes:
    """A plain file's content, if it is of a sensible size."""
    with open_plain(path, most) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """OSError where it cannot be read, ValueError where it is not the JSON that we write."""
    return parse_json(read_regular(path, MOST_JSON_BYTES))


def parse_json(content: bytes) -> Any:
    try:
        return json.loads(content.decode(), object_pairs_hook=_without_repeats)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its JSON states a name twice")
    return found


def write_tensors(part: Path, tensors: dict[str, Tensor], format_name: str) -> None:
    """Safetensors; tensors of any device."""
    from safetensors.torch import save

    plain = {text_of(key): value.detach().cpu().contiguous() for key, value in tensors.items()}
    # not its save_file, which writes to a file of another name first: a kill would leave that behind
    part.write_bytes(save(plain, metadata={"format": format_name}))


def read_tensors(path: Path, most: int = MOST_TENSOR_BYTES) -> dict[str, Tensor]:
    """OSError where it cannot be read, ValueError where it is not a safetensors file. Nothing in it is executed."""
    return parse_tensors(read_regular(path, most))


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """What a file of such tensors takes at most, their names included."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + MOST_HEADER_BYTES


def parse_tensors(content: bytes) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content)
    except (SafetensorError, KeyError, RuntimeError, TypeError, OverflowError) as error:
        raise ValueError(f"not a safetensors file ({_short(error)})") from error


def check_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """ValueError unless the names, shapes and types are those wanted and every number is finite."""
    lacking = [name for name in wanted if name not in found]
    strange = [name for name in found if name not in wanted]
    if lacking or strange:
        raise ValueError(f"tensors are missing ({lacking[:3]}) or not ours ({_short(strange[:3])})")
    for name, tensor in wanted.items():
        given = found[name]
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            shapes = f"{list(given.shape)} {given.dtype}, not {list(tensor.shape)} {tensor.dtype}"
            raise ValueError(f"the tensor {name} is {shapes}")
        if given.is_floating_point() and not given.isfinite().all():
            raise ValueError(f"the tensor {name} holds numbers that are infinite or not a number")


def text_of(name: str) -> str:
    """A file name of any bytes as text that every program can read."""
    return name.encode("utf-8", "backslashreplace").decode()


def _short(what: object) -> str:
    text = " ".join(str(what).split())
    return text if len(text) < 200 else text[:200] + "…"
