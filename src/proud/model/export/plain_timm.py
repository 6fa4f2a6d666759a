"""The format for timm: a folder with config.json and model.safetensors, as timm writes it for a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.files import read_tensors, replacing, write_json, write_tensors
from proud.model.export.deployed import Squared, plain_head
from proud.model.export.parity import Answers, Program
from proud.model.predict import Model
from proud.ops import evaluation_view
from proud.stored import TimmRecord
from proud.typed import as_record, read_record

CONFIG, TENSORS = "config.json", "model.safetensors"
CROPS = {"middle": "center", "pad": "border", "stretch": "squash"}  # in timm's words


def write_timm(model: Model, about: dict[str, Any], folder: Path) -> None:
    """The softmax of the network's logits is the calibrated probability: they are divided by the temperature."""
    refuse_other_networks(model)
    config = timm_config(model, about)
    wanted = create(as_record(config, TimmRecord)).state_dict()
    head, classifier = plain_head(model.net), config["pretrained_cfg"]["classifier"]
    parts = {"weight": head.weight, "bias": head.bias}
    tensors = dict(model.net.backbone.state_dict())
    tensors |= {f"{classifier}.{name}": part.detach() / about["temperature"] for name, part in parts.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != {n: t.shape for n, t in wanted.items()}:
        raise no_equivalent(model, "its last layer is not one linear layer there")
    with replacing(folder / TENSORS) as part:
        write_tensors(part, tensors, "pt")
    write_json(folder / CONFIG, config)


def refuse_other_networks(model: Model) -> None:
    if model.spec.name == "digits":
        raise no_equivalent(model, "it is not a network of timm")


def no_equivalent(model: Model, why: str) -> UserError:
    return UserError(
        f"The network {model.spec.name} cannot be a plain timm network: {why}. Export it with --format onnx or torch."
    )


def timm_config(model: Model, about: dict[str, Any]) -> dict[str, Any]:
    import timm  # noqa: PLC0415

    spec, known = model.spec, timm.get_pretrained_cfg(model.spec.name)
    classifier = known.classifier if known else None
    if not isinstance(classifier, str):
        raise no_equivalent(model, "its last layer is not one linear layer there")
    return {
        "architecture": spec.name.partition(".")[0],
        "num_classes": spec.classes,
        "model_args": {"img_size": spec.size} if known.fixed_input_size else {},
        "pretrained_cfg": {
            "input_size": [3, spec.size, spec.size],
            "interpolation": "bilinear",
            "crop_pct": spec.size / about["resized_to"],
            "crop_mode": CROPS[spec.square],
            "mean": about["mean"],
            "std": about["std"],
            "num_classes": spec.classes,
            "classifier": classifier,
        },
        "label_names": about["classes"],
        "proud": about,
    }


def create(config: TimmRecord) -> nn.Module:
    import timm  # noqa: PLC0415

    network: nn.Module = timm.create_model(
        config["architecture"], num_classes=config["num_classes"], **config["model_args"]
    )
    return network.eval()


def read_timm(folder: Path, model: Model) -> Program:
    network = create(read_record(folder / CONFIG, TimmRecord))
    network.load_state_dict(read_tensors(folder / TENSORS))
    spec, squared = model.spec, Squared(model.spec.size, model.pixels.side, model.spec.square)

    @torch.no_grad()
    def program(images: np.ndarray) -> Answers:
        x = evaluation_view(squared(torch.from_numpy(images)), spec.size, spec.mean, spec.std)
        logits: Tensor = network(x)
        return {"probabilities": logits.double().softmax(1)}

    return program
