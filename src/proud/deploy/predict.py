"""Using a trained model: load it, and classify images of any kind."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proud.data.catalog import IMAGE_SUFFIXES
from proud.data.store import BadFile, bad_files_error, decode_all, stored_side
from proud.errors import UserError
from proud.evaluation import forward_all
from proud.models import ModelSpec, Net, build_net
from proud.training.files import read_json, replacing, write_json
from proud.training.run import MODEL_FORMAT


class Model:
    """A trained network with its classes and input format."""

    def __init__(self, net: Net, spec: ModelSpec, classes: tuple[str, ...], config: dict[str, Any], device: torch.device) -> None:
        self.net, self.spec, self.classes, self.config, self.device = net.to(device).eval(), spec, classes, config, device

    def logits(self, images: Tensor) -> Tensor:
        """Logits [N, K] of stored uint8 images [N, 3, S, S]."""
        return forward_all(self.net, images, self.spec, self.device, "fp32")[1].cpu()

    def save(self, folder: Path | str) -> None:
        from dataclasses import asdict

        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "model.safetensors") as part:
            save_file({k: v.cpu().contiguous() for k, v in self.net.state_dict().items()}, part, metadata={"format": MODEL_FORMAT})
        about = {"format": MODEL_FORMAT, "classes": list(self.classes), "spec": asdict(self.spec), "config": self.config}
        write_json(folder / "model.json", about)


def load_model(folder: Path | str, device: str = "auto") -> Model:
    """A model from a run's folder: `model.safetensors` and `model.json`; nothing in them is ever executed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from proud.training.run import choose_device

    folder = Path(folder)
    if not (folder / "model.json").is_file():
        hint = "its training has not finished (go on with --resume)" if (folder / "run.json").is_file() else "it is not a run's folder"
        raise UserError(f"{folder} holds no model.json: {hint}.")
    try:
        about = read_json(folder / "model.json")
        if about["format"] != MODEL_FORMAT:
            raise ValueError(f"format {about['format']!r}")
        given = about["spec"]
        spec = ModelSpec(
            name=str(given["name"]),
            classes=int(given["classes"]),
            size=int(given["size"]),
            mean=tuple(float(v) for v in given["mean"]),  # type: ignore[arg-type]
            std=tuple(float(v) for v in given["std"]),  # type: ignore[arg-type]
        )
        classes = tuple(str(name) for name in about["classes"])
        if len(classes) != spec.classes or not 0 < spec.size <= 4096 or spec.classes > 100_000:
            raise ValueError("classes or size out of range")
        tensors = load_file(folder / "model.safetensors")
        net = build_net(spec)
        net.load_state_dict(tensors)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder} does not hold a model of this program: {error}") from error
    return Model(net, spec, classes, about.get("config", {}), choose_device(device))


def find_images(where: Iterable[Path]) -> list[Path]:
    """Image files: those named, and those anywhere below the named folders."""
    found: list[Path] = []
    for path in where:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in IMAGE_SUFFIXES)
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder.")
    if not found:
        raise UserError(f"No images found in {', '.join(str(path) for path in where)}.")
    return found


def predict_files(
    model: Model, files: list[Path], *, skip_bad: bool = False, progress: bool = False, piece: int = 2048
) -> tuple[list[dict[str, Any]], list[BadFile]]:
    """One row per readable image: path, label, confidence."""
    rows: list[dict[str, Any]] = []
    bad: list[BadFile] = []
    for start in range(0, len(files), piece):
        part = files[start : start + piece]
        images, kept, unreadable = decode_all(
            part, stored_side(model.spec.size), skip_bad=True, progress=progress, description="Reading images"
        )
        bad += unreadable
        if not len(images):
            continue
        confidence, label = model.logits(images).softmax(1).max(1)
        for place, k, p in zip(kept, label.tolist(), confidence.tolist(), strict=True):
            rows.append({"path": str(part[place]), "label": model.classes[k], "confidence": round(p, 6)})
    if bad and not skip_bad:
        raise bad_files_error(bad)
    return rows, bad


def write_predictions(path: Path, rows: list[dict[str, Any]]) -> None:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({key: safe_cell(value) for key, value in row.items()} for row in rows)


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
