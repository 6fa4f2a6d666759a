"""Measuring a saved model on a labeled domain."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from proud.data.benchmarks import catalog_for
from proud.data.catalog import some
from proud.data.domain import LabeledDomain
from proud.data.roles import sort_classes, with_images
from proud.data.store import BadFile, bad_files_error, decode_all, stored_side
from proud.deploy.predict import Model, load_model, none_readable
from proud.errors import UserError
from proud.trust.fitted import measure

if TYPE_CHECKING:
    from proud.cli import EvaluateArguments


def read_domain(model: Model, data: str, root: str, name: str, skip_bad: bool) -> tuple[LabeledDomain, list[BadFile]]:
    """One domain's images with their labels, in the model's input format; and the files that were left out."""
    catalog = catalog_for(data, root or None)
    domain = with_images(catalog, name)
    numbers = {label: k for k, label in enumerate(model.classes)}
    without = [entry.location for entry in domain.entries if entry.label is None]
    if without:
        raise UserError(
            f"{len(without)} images of {name!r} have no label, so nothing can be measured on them: {some(without)}. "
            "Class folders name the labels; `proud predict` needs none."
        )
    strange = sort_classes({entry.label for entry in domain.entries if entry.label and entry.label not in numbers})
    if strange:
        raise UserError(
            f"Images of {name!r} have labels that the model does not know: {some(strange)}. "
            f"It knows: {some(model.classes)}."
        )
    if name in catalog.notices:
        warnings.warn(catalog.notices[name], stacklevel=2)
    sources = [catalog.source(domain, entry) for entry in domain.entries]
    images, kept, bad = decode_all(
        sources, stored_side(model.spec.size), skip_bad=True, progress=True, description=f"Reading {name}"
    )
    if bad and not skip_bad:
        raise bad_files_error(bad)
    if not kept:
        raise none_readable(bad)
    labels = torch.tensor([numbers[str(domain.entries[place].label)] for place in kept])
    return LabeledDomain(name, images, labels, model.classes), bad


def is_own_data(config: dict[str, Any], data: str, root: str) -> bool:
    """Whether this is what the run was trained on, by whatever path it is named."""
    own = config.get("data", "")
    if "embedded" in (own, data) or own in ("", "python"):
        return own == data == "embedded"
    return os.path.realpath(root or data) == os.path.realpath(config.get("root") or own)


def evaluate_domain(arguments: EvaluateArguments) -> dict[str, Any]:
    model = load_model(arguments.run, arguments.device)
    data, root = arguments.data, arguments.root
    if not data:
        data, root = model.config.get("data", ""), root or model.config.get("root", "")
    if data in ("", "python") and not arguments.data:
        raise UserError("The run's data was handed over in Python: say where to find images now, with --data.")
    domain, bad = read_domain(model, data, root, arguments.domain, arguments.skip_bad)
    logits = model.logits(domain.images)
    right = logits.argmax(1) == domain.labels
    per_class = []
    for k, name in enumerate(model.classes):
        mine = domain.labels == k
        per_class.append((name, int(mine.sum()), int((mine & right).sum())))
    trust: dict[str, Any] | None = None
    if model.trust:
        found = measure(model.trust, logits, domain.labels, arguments.coverage, arguments.risk, arguments.sets)
        trust = found | {"temperature": model.trust.temperature}
    own = not arguments.data or is_own_data(model.config, data, root)
    return {"images": len(right), "accuracy": right.float().mean().item(), "per_class": per_class, "trust": trust} | {
        "trained_on": arguments.domain == model.config.get("labeled") and own,
        "left_out": len(bad),
    }
