"""Reading a model from an untrusted source: JSON and safetensors, checked before anything is built."""

from __future__ import annotations

import copyreg
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.files import MOST_JSON_BYTES, parse_tensors, read_regular
from proud.machine import choose_device
from proud.manifest import MANIFEST, Damaged, Files
from proud.model.format import (
    CARD,
    DESCRIPTION,
    MODEL_FOLDER,
    MODEL_FORMAT,
    PROTOTYPES,
    WEIGHTS,
    model_folder,
)
from proud.model.predict import Model
from proud.nets.models import ModelSpec, Net, build_empty, count_features
from proud.nets.resnet import blocks_of
from proud.stored import ModelRecord, Settings, SpecRecord
from proud.tensors import bytes_of, check_tensors, read_shapes
from proud.text import nfc, one_line
from proud.trust.fitted import Trust, read_trust
from proud.typed import parse_record

MOST_FEATURES = 1_000_000
MOST_PROTOTYPE_BYTES = 1_000_000_000
MOST_CARD_BYTES = 1_000_000
BROKEN = (OSError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)


def load_model(folder: Path | str, device: str = "auto") -> Model:
    """A saved model. Only JSON and safetensors are read, and nothing in them is ever executed.

    Args:
        folder: the folder of a finished run, its `model` folder, or one that `ProUD.save` wrote.
        device: where to compute: "auto" (CUDA if available), "cpu", "cuda" or "cuda:N".

    Returns:
        The model.

    Raises:
        UserError: there is no model, or its files are damaged; the message says which.

    Example:
        >>> proud.load("runs/x").predict("new_images")
        array(['five', 'five', 'one', 'one'], dtype='<U4')
    """
    folder = Path(folder)
    if folder.is_file():
        raise UserError(f"{folder} is a file: a model is a folder with {WEIGHTS} and {DESCRIPTION}.")
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    place = model_folder(folder)
    if not Files(place).has(DESCRIPTION):
        if Files(folder).has(f"{MODEL_FOLDER}/{DESCRIPTION}"):  # of a finished run
            raise Damaged(folder, f"{MODEL_FOLDER}/{DESCRIPTION}", "is missing")
        unfinished = (folder / "run.json").is_file()
        hint = "its training has not finished (continue with --resume)" if unfinished else "it is not a run's folder"
        raise UserError(f"{folder} has no {DESCRIPTION}: {hint}.")
    try:
        parts = read_model(place)
    except BROKEN as error:
        raise UserError(f"{place} does not hold a valid model: {one_line(error, 500)}") from error
    return Model(*parts[:4], choose_device(device), *parts[4:], card=read_card(place))


def from_files(files: dict[str, bytes], device: str, max_pixels: int) -> Model:
    """A model from the content of its files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        model = load_model(folder, device if device == "cpu" or torch.cuda.is_available() else "cpu")
    model.max_pixels = max_pixels
    return model


def as_files(model: Model) -> tuple[Callable[..., Model], tuple[dict[str, bytes], str, int]]:
    """For pickle: a model travels in its saved format, which does not depend on the code of the network."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        files = {path.name: path.read_bytes() for path in (Path(folder) / "model").iterdir()}
    return from_files, (files, str(model.device), model.max_pixels)


copyreg.pickle(Model, as_files)


Parts = tuple[Net, ModelSpec, tuple[str, ...], Settings, Trust | None, dict[str, Tensor] | None, tuple[str, ...]]


def read_model(folder: Path) -> Parts:
    """All parts of a `Model`, on the CPU."""
    files = Files(folder)
    about = parse_record(files.read(DESCRIPTION, MOST_JSON_BYTES), ModelRecord)
    if about["format"] == MODEL_FORMAT and files.stamps is None:
        raise ValueError(f"{MANIFEST} is missing, so that the other files cannot be checked")
    spec, classes = read_spec(about["spec"]), read_classes(about["classes"])
    if len(classes) != spec.classes:
        raise ValueError("the network has another number of classes")
    expected, measured = expected_tensors(spec, folder / WEIGHTS)
    tensors = parse_tensors(files.read(WEIGHTS, bytes_of(expected.values())))
    check_tensors(tensors, expected)
    width = expected["head.direction"].shape[1]
    net = build_empty(spec, width=width)
    if not measured and count_features(net.backbone, spec) != width:
        raise ValueError("head.direction has another width than the features")
    net.load_state_dict(tensors)
    trust, prototypes = read_trust(about.get("trust")), read_prototypes(files, spec.classes, width)
    return net, spec, classes, about.get("config", {}), trust, prototypes, tuple(about.get("warnings", []))


def read_spec(given: SpecRecord) -> ModelSpec:
    """Only networks that are built from their name alone: `hf-hub:…` and `local-dir:…` would read other files."""
    name, mean, std = given["name"], given["mean"], given["std"]
    if name != "digits" and not is_timm_model(name):
        raise ValueError(f"there is no network {name[:100]!r}")
    if given.get("own_share"):
        raise ValueError("its batch norm follows each image, which is no longer supported: train again")
    return ModelSpec(
        name,
        given["classes"],
        given["size"],
        (mean[0], mean[1], mean[2]),
        (std[0], std[1], std[2]),
        given.get("square", "middle"),
    )


def is_timm_model(name: str) -> bool:
    if set(name) & set(":/\\"):
        return False
    if blocks_of(name):
        return True
    import timm  # noqa: PLC0415

    return bool(timm.is_model(name))


def read_classes(given: list[str]) -> tuple[str, ...]:
    if len(set(given)) < len(given):
        raise ValueError("two classes have the same name")
    return tuple(map(nfc, given))


def expected_tensors(spec: ModelSpec, path: Path) -> tuple[dict[str, Tensor], bool]:
    """Names, shapes and types, without memory: an invented size costs nothing. And whether the width of the features
    was measured, or taken from the file."""
    try:
        with torch.device("meta"):
            return build_empty(spec).state_dict(), True
    except (NotImplementedError, RuntimeError, UserError):  # some networks compute when they are built
        width = read_shapes(path).get("head.direction", (0, 0))[-1]
        if not 0 < width <= MOST_FEATURES:
            raise ValueError("the tensor head.direction is missing or too large") from None
        with weights_on_meta():
            return build_empty(spec, width=width).state_dict(), False


@contextmanager
def weights_on_meta() -> Iterator[None]:
    """Modules that are built meanwhile have weights without memory, and can compute all the same."""
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        given = None if parameter is None else nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, given)

    nn.Module.register_parameter = without_memory  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def read_card(folder: Path) -> str:
    """README.md, which may have been edited; '' without one."""
    try:
        return read_regular(folder / CARD, MOST_CARD_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return ""


def read_prototypes(files: Files, classes: int, width: int) -> dict[str, Tensor] | None:
    """None for methods without prototypes."""
    if not files.has(PROTOTYPES):
        return None
    found = parse_tensors(files.read(PROTOTYPES, MOST_PROTOTYPE_BYTES))
    check_tensors(found, expected_prototypes(found, classes, width))
    if not found["tau"] > 0:
        raise ValueError("the temperature of the prototypes is not positive")
    return found


def expected_prototypes(names: Iterable[str], classes: int, width: int) -> dict[str, Tensor]:
    """Names, shapes and types of prototypes.safetensors, without memory: a site has all its tensors or none."""
    each, center = torch.empty(classes, width, device="meta"), torch.empty(width, device="meta")
    present = torch.empty(classes, dtype=torch.bool, device="meta")
    wanted = {"merged": each, "center": center, "tau": torch.empty(1, device="meta")}
    for name in names:
        _, slash, site = name.partition("/")
        if slash:
            wanted |= {f"site/{site}": each, f"present/{site}": present, f"center/{site}": center}
        elif name.startswith("labeled"):
            wanted |= {"labeled": each, "labeled_present": present}
    return wanted
