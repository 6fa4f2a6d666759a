"""The formats that hold a whole program: ONNX and torch.export."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proud.errors import UserError
from proud.model.export.about import as_text
from proud.model.export.deployed import Deployed
from proud.model.export.parity import Answers, Program
from proud.text import one_line

ABOUT_FILE = "about.json"  # inside a torch.export file
ANY_IMAGES = ({axis: torch.export.Dim(name, min=1) for axis, name in enumerate(("images", "height", "width"))},)


def traced(deployed: Deployed) -> torch.export.ExportedProgram:
    """The module as a graph for any number and size of images."""
    side = deployed.squared.side
    example = torch.zeros((2, side + 1, side + 2, 3), dtype=torch.uint8)
    try:
        with torch.no_grad(), silent():
            return torch.export.export(deployed.eval().requires_grad_(False), (example,), dynamic_shapes=ANY_IMAGES)
    except Exception as error:  # of every kind, from a network that computes what a graph cannot hold
        raise not_expressible(deployed, error) from error


def write_torch(deployed: Deployed, about: dict[str, Any], path: Path) -> None:
    """torch.export.load(path).module() maps images to a tuple of the outputs in about.json."""
    more = json.dumps(about | {"outputs": list(deployed.names)})
    with path.open("wb") as file:
        torch.export.save(traced(deployed), file, extra_files={ABOUT_FILE: more})


def read_torch(path: Path, deployed: Deployed) -> Program:
    with path.open("rb") as file:
        module = torch.export.load(file).module()

    @torch.no_grad()
    def program(images: np.ndarray) -> Answers:
        return named(deployed, module(torch.from_numpy(images)))

    return program


def write_onnx(deployed: Deployed, about: dict[str, Any], path: Path) -> None:
    """One file: input `images`, outputs as named, the rest in its metadata."""
    onnx = needed("onnx")
    needed("onnxscript")
    graph = traced(deployed)
    try:
        with silent():
            made: Any = torch.onnx.export(
                graph,
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=list(deployed.names),
                dynamic_shapes=ANY_IMAGES,  # for the names of the axes
            )
        model = made.model_proto
        onnx.helper.set_model_props(model, as_text(about))
        content = model.SerializeToString()  # of at most 2 GB
    except Exception as error:
        raise not_expressible(deployed, error) from error
    path.write_bytes(content)


def read_onnx(path: Path, deployed: Deployed) -> Program:
    runtime = needed("onnxruntime")
    session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda images: named(deployed, session.run(None, {"images": images}))


def named(deployed: Deployed, outputs: Any) -> Answers:
    found: dict[str, Tensor] = {name: torch.as_tensor(o) for name, o in zip(deployed.names, outputs, strict=True)}
    return found


def needed(module: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"--format onnx needs the package {module}: pip install 'proud[export]'") from error


def not_expressible(deployed: Deployed, error: Exception) -> UserError:
    return UserError(f"{deployed.spec.name} cannot be exported in this format ({one_line(error)}).")


@contextmanager
def silent() -> Iterator[None]:
    """The exporters of torch report their progress and their own deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
