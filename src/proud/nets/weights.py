"""Initial weights from a file: safetensors, or what `torch.save` wrote. Nothing in the file is executed."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.text import one_line

PICKLED = (".pth", ".pt", ".bin", ".ckpt", ".tar")
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")  # training scripts save more than the weights
PREFIXES = ("module.", "_orig_mod.")  # of DataParallel and of compiled networks


def load_backbone(backbone: nn.Module, path: Path) -> None:
    """Load weights with the network's own names (timm's or torchvision's); a final `fc.*` is ignored."""
    if not path.is_file():
        raise UserError(f"--weights {path}: no such file.")
    found = read_pickled(path) if path.suffix.lower() in PICKLED else read_safetensors(path)
    wanted = backbone.state_dict()
    missing = [key for key in wanted if key not in found and not key.endswith("num_batches_tracked")]
    wrong = [key for key in wanted if key in found and found[key].shape != wanted[key].shape]
    if missing or wrong:
        raise UserError(
            f"--weights {path} does not fit the model: {len(missing)} tensors missing (e.g. {missing[:3]}), "
            f"{len(wrong)} of another shape (e.g. {wrong[:3]})."
        )
    broken = [key for key in wanted if key in found and not found[key].float().isfinite().all()]
    if broken:
        raise UserError(f"--weights {path} has infinite or NaN values (e.g. in {broken[0]}).")
    backbone.load_state_dict({key: found[key].float() for key in wanted if key in found}, strict=False)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"--weights {path}: not a readable safetensors file ({error}).") from error


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, which may lie below one name; anything but tensors and plain values is refused."""
    refuse_packed(path)
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"--weights {path} holds more than tensors and plain values, which could run code when loaded. Save the "
            "state dict alone: torch.save(net.state_dict(), FILE)."
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, EOFError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"--weights {path}: not a readable file of torch.save ({one_line(error, 200)}).") from error
    while isinstance(found, dict) and (inner := next((name for name in WRAPPERS if is_state(found, name)), "")):
        found = found[inner]
    if not isinstance(found, dict) or not any(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"--weights {path} holds no state dict: save one with torch.save(net.state_dict(), FILE).")
    return {without_prefixes(str(key)): value for key, value in found.items() if isinstance(value, Tensor)}


def refuse_packed(path: Path) -> None:
    """A small packed file could unpack to any size; `torch.save` packs nothing."""
    try:
        with ZipFile(path) as archive:
            packed = any(part.compress_type != ZIP_STORED for part in archive.infolist())
    except (OSError, BadZipFile):  # older files are no archives
        return
    if packed:
        raise UserError(f"--weights {path} is compressed: save it with torch.save(net.state_dict(), FILE).")


def is_state(found: dict[Any, Any], name: str) -> bool:
    return isinstance(found.get(name), dict)


def without_prefixes(key: str) -> str:
    while prefix := next((prefix for prefix in PREFIXES if key.startswith(prefix)), ""):
        key = key.removeprefix(prefix)
    return key
