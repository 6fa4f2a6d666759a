"""Measuring a saved model on a labeled domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from proud.data.benchmarks import catalog_for
from proud.data.catalog import some
from proud.data.domain import LabeledDomain
from proud.data.roles import find_domain, sort_classes
from proud.data.store import bad_files_error, decode_all, stored_side
from proud.deploy.predict import Model, load_model
from proud.errors import UserError
from proud.trust.fitted import measure

if TYPE_CHECKING:
    from proud.cli import EvaluateArguments


def read_domain(model: Model, data: str, root: str, name: str, skip_bad: bool) -> LabeledDomain:
    """One domain's images with their labels, in the model's input format."""
    catalog = catalog_for(data, root or None)
    domain = find_domain(catalog, name)
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
    if not domain.entries:
        raise UserError(f"The domain {name!r} has no images.")
    sources = [catalog.source(domain, entry) for entry in domain.entries]
    images, kept, bad = decode_all(
        sources, stored_side(model.spec.size), skip_bad=True, progress=True, description=f"Reading {name}"
    )
    if bad and not skip_bad:
        raise bad_files_error(bad)
    labels = torch.tensor([numbers[str(domain.entries[place].label)] for place in kept])
    return LabeledDomain(name, images, labels, model.classes)


def evaluate_domain(arguments: EvaluateArguments) -> dict[str, Any]:
    model = load_model(arguments.run, arguments.device)
    data, root = arguments.data, arguments.root
    if not data:
        data, root = model.config.get("data", ""), root or model.config.get("root", "")
    if data in ("", "python") and not arguments.data:
        raise UserError("The run's data was handed over in Python: say where to find images now, with --data.")
    domain = read_domain(model, data, root, arguments.domain, arguments.skip_bad)
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
    return {"images": len(right), "accuracy": right.float().mean().item(), "per_class": per_class, "trust": trust} | {
        "trained_on": arguments.domain == model.config.get("labeled") and not arguments.data
    }
