"""What a finished run says about itself: outputs, calibration, prototypes, and a verdict on every site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import normalize

from proud import ops
from proud.data.decode import evenly
from proud.training.evaluator import forward_all
from proud.files import replacing, write_json, write_tensors
from proud.trust.collapse import LOOKED_AT, learned_nothing, one_class
from proud.trust.diagnosis import diagnose, most_doubtful
from proud.trust.fitted import fit_trust, measure

if TYPE_CHECKING:
    from torch import Tensor

    from proud.training.loop import Loop

    Outputs = dict[str, tuple[Tensor, Tensor]]  # `val` and `test` -> logits and labels


def last_prototypes(loop: Loop) -> dict[str, Tensor]:
    """Of the trained network; all processes find them together."""
    loop.random.begin_epoch("end", 0)
    return loop.method.prototypes(loop.random)


def save_trust(
    folder: Path, loop: Loop, records: list[dict[str, Any]], prototypes: dict[str, Tensor], outputs: Outputs
) -> dict[str, Any] | None:
    """Writes all but the calibration, which belongs in model.json: None without validation images."""
    if prototypes:
        if loop.method.own_statistics:
            prototypes = as_deployed(loop, prototypes)
        with replacing(folder / "prototypes.safetensors") as part:
            write_tensors(part, prototypes, "proud-prototypes-1")
    sites = diagnose(records, _images_to_look_at(loop))
    if sites:
        write_json(folder / "diagnosis.json", [site.as_json() for site in sites])
    save_outputs(folder, outputs)
    if "val" not in outputs:
        return None
    trust = fit_trust(*outputs["val"])
    # measured on the unseen domain, never fitted there
    return trust.as_json() | ({"test": measure(trust, *outputs["test"])} if "test" in outputs else {})


def collapses(loop: Loop, outputs: Outputs) -> list[str]:
    """What is wrong with the trained network at first sight, in words; mostly nothing."""
    method, training = loop.method, loop.task.training
    context, net = method.context, method.network()
    found = [learned_nothing(*outputs["val"], training.labeled.name)] if "val" in outputs else []
    for domain in training.unlabeled:
        some = domain.images[evenly(len(domain.images), LOOKED_AT)]
        _, logits = forward_all(net, some, context.spec, context.device, context.precision)
        found.append(one_class(logits.cpu(), training.labeled.labels, training.classes, domain.name))
    return [text for text in found if text]


def as_deployed(loop: Loop, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same prototypes in the features of the saved network.

    DaPP with a domain's own batch statistics has features that no image has that comes alone. So the means under the
    last pseudo-labels are taken again, over the features that `proud predict` computes.
    """
    method, training = loop.method, loop.task.training
    context, pseudo, kept = method.context, method.pseudo_labels(), dict(found)
    centers, domains = [], []
    for name, images in (("", training.labeled.images), *((each.name, each.images) for each in training.unlabeled)):
        features, _ = forward_all(method.network(), images, context.spec, context.device, "fp32")
        unit = normalize(features, dim=1)
        centers.append(unit.mean(0) if method.centred else torch.zeros_like(unit[0]))
        labels = pseudo[name].labels if name else context.labels
        domains.append(ops.hard_prototypes(normalize(unit - centers[-1], dim=1), labels, context.classes))
        keys = (f"site/{name}", f"present/{name}") if name else ("labeled", "labeled_present")
        kept |= dict(zip(keys, domains[-1], strict=True))
        kept |= {f"center/{name}": centers[-1]} if name else {}
    return kept | {"merged": ops.merge_prototypes(domains), "center": torch.stack(centers).mean(0)}


def save_outputs(folder: Path, outputs: Outputs) -> None:
    """Logits and labels of source validation and test, for reports."""
    tensors: dict[str, Tensor] = {}
    for name, (logits, labels) in outputs.items():
        tensors |= {f"{name}/logits": logits, f"{name}/labels": labels}
    if tensors:
        with replacing(folder / "outputs.safetensors") as part:
            write_tensors(part, tensors, "proud-outputs-1")


def _images_to_look_at(loop: Loop) -> dict[str, list[dict[str, Any]]]:
    """Per site, the most doubtful images: path (row of an array), label, uncertainty."""
    classes, audits = loop.task.training.classes, loop.task.evaluation.audits
    known = {domain.name: domain.known for domain in loop.task.training.unlabeled}
    found = {}
    for name, pseudo in loop.method.pseudo_labels().items():
        audit = audits.get(name)
        found[name] = [
            {
                "path": audit.paths[row] if audit is not None else str(row),
                "label": classes[int(pseudo.labels[row])],
                "uncertainty": round(float(pseudo.uncertainty[row]), 4),
            }
            for row in most_doubtful(pseudo, known.get(name)).tolist()
        ]
    return found
