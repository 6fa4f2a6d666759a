"""Files that are either wholly there or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the yielded path; it becomes `path` in one step once it is safely on disk."""
    with telling_why(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.chmod(0o644)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def telling_why(path: Path) -> Iterator[None]:
    """A full disk or a missing permission is the user's to mend: no traceback."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Cannot write {path}: {error.strerror or error}. What was written before is intact."
        ) from error


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_tensors(part: Path, tensors: dict[str, Tensor], format_name: str) -> None:
    """Safetensors; tensors of any device."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    try:
        save_file(plain, part, metadata={"format": format_name})
    except SafetensorError as error:
        raise OSError(str(error)) from error
