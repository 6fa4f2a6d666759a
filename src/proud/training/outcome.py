"""What a finished run leaves besides its network: outputs, calibration, prototypes, warnings and a verdict per site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from proud import ops
from proud.data.checks import evenly
from proud.data.types import Task
from proud.files import json_file, table_bytes, tensor_bytes
from proud.methods.description import Description
from proud.model.format import FOUND_SITES
from proud.nets.forward import forward_all
from proud.stored import EpochRecord, LookAt
from proud.training.folds import FOLDS
from proud.training.snapshot import thumbnails
from proud.trust.collapse import LOOKED_AT, learned_nothing, missing_classes
from proud.trust.diagnosis import diagnose, most_doubtful
from proud.trust.fitted import fit_trust, measure

if TYPE_CHECKING:
    from proud.held import HeldFolder
    from proud.training.loop import Loop

Outputs = dict[str, tuple[Tensor, Tensor]]  # `val`, `test` and `folds` -> logits and labels


def final_description(loop: Loop) -> Description:
    """Of the trained network; all processes compute it together."""
    loop.random.begin_epoch("end", 0)
    return loop.method.describe(loop.random)


def save_outcome(
    folder: HeldFolder, loop: Loop, about: Description, records: list[EpochRecord], outputs: Outputs
) -> dict[str, Tensor]:
    """Writes the verdicts, the site of every image of a pool, and the outputs; returns the prototypes."""
    rows = rows_to_look_at(loop, about)
    sites = diagnose(records, images_to_look_at(loop, about, rows), loop.method.context.start is not None)
    if sites:
        folder.write("diagnosis.json", json_file([site.as_json() for site in sites]))
    if in_pool := found_sites(loop.task):
        folder.write(FOUND_SITES, table_bytes(["content", "site"], in_pool))
    tensors: dict[str, Tensor] = {}
    for name, (logits, labels) in outputs.items():
        tensors |= {f"{name}/logits": logits, f"{name}/labels": labels}
    for domain in loop.task.training.unlabeled:
        if rows.get(domain.name):
            tensors[f"look_at/{domain.name}/images"] = thumbnails(domain.images[rows[domain.name]])
    if tensors:
        folder.write("outputs.safetensors", tensor_bytes(tensors, "proud-outputs-1"))
    return saved_prototypes(loop, about)


def calibration(outputs: Outputs, folds: int = 0) -> dict[str, Any] | None:
    """Fitted on validation images, or on all labeled ones out of their folds; measured on the unseen domain, never
    fitted there. None without either."""
    if not {"val", FOLDS} & set(outputs):
        return None
    trust = fit_trust(*outputs[FOLDS if FOLDS in outputs else "val"], folds)
    return trust.as_json() | ({"test": measure(trust, *outputs["test"])} if "test" in outputs else {})


def collapses(loop: Loop, outputs: Outputs) -> list[str]:
    """Warnings about a network that learned nothing, or that hardly predicts some classes at a site, seen or unseen."""
    training, context, net = loop.task.training, loop.method.context, loop.method.network()
    found = [learned_nothing(*outputs["val"], training.labeled.name)] if "val" in outputs else []
    sites = {}
    for domain in training.unlabeled:
        some = domain.images[evenly(len(domain.images), LOOKED_AT)]
        sites[domain.name] = forward_all(net, some, context.spec, context.device, context.precision)[1]
    test = loop.task.evaluation.test
    if test is not None and "test" in outputs:
        sites[test.name] = outputs["test"][0]
    for name, logits in sites.items():
        found.append(missing_classes(logits.cpu(), training.labeled.labels, training.classes, name))
    return [text for text in found if text]


def rows_to_look_at(loop: Loop, about: Description) -> dict[str, list[int]]:
    """Per site, the most uncertain images."""
    known = {domain.name: domain.known for domain in loop.task.training.unlabeled}
    return {name: most_doubtful(pseudo, known.get(name)).tolist() for name, pseudo in about.pseudo_labels.items()}


def images_to_look_at(loop: Loop, about: Description, rows: dict[str, list[int]]) -> dict[str, list[LookAt]]:
    """Per site, the path (row of an array), label and uncertainty of these images."""
    classes, audits = loop.task.training.classes, loop.task.evaluation.audits
    found: dict[str, list[LookAt]] = {}
    for name, pseudo in about.pseudo_labels.items():
        audit = audits.get(name)
        found[name] = [
            {
                "path": audit.paths[row] if audit is not None else str(row),
                "label": classes[int(pseudo.labels[row])],
                "uncertainty": round(float(pseudo.uncertainty[row]), 4),
            }
            for row in rows[name]
        ]
    return found


def found_sites(task: Task) -> list[list[str]]:
    """Content and site of every image of a pool."""
    about = task.report["domains"]
    sites = [domain for domain in task.training.unlabeled if about[domain.name].get("found")]
    return [[content, site.name] for site in sites for content in site.ids]


# ---- prototypes.safetensors


def saved_prototypes(loop: Loop, about: Description) -> dict[str, Tensor]:
    """`merged` [K,d], and `site/NAME` [K,d] with `present/NAME` [K] of each domain; `center` and those of each domain
    [d] are subtracted from unit features before angles are measured; `tau` [1] is the uncertainty's temperature.

    Empty without prototypes. DaPP with a domain's own batch statistics has features that a single image cannot have:
    then the means under the last pseudo-labels are computed again, over the features that `proud predict` computes.
    """
    found = about.prototypes
    if found is None:
        return {}
    saved = {"tau": found.merged.new_tensor([found.tau])}
    if found.batch_statistics:
        return saved | _as_deployed(loop, about)
    centers = torch.zeros(1 + len(about.pseudo_labels), found.merged.shape[1], device=found.merged.device)
    centers = centers if found.centers is None else found.centers
    saved |= {"merged": found.merged, "center": centers.mean(0)}
    saved |= {"labeled": found.labeled, "labeled_present": found.present}
    for t, (name, domain) in enumerate(about.pseudo_labels.items(), start=1):
        saved |= {f"site/{name}": domain.prototypes, f"present/{name}": domain.present, f"center/{name}": centers[t]}
    return saved


def _as_deployed(loop: Loop, about: Description) -> dict[str, Tensor]:
    method, training = loop.method, loop.task.training
    context = method.context
    saved: dict[str, Tensor] = {}
    centred = about.prototypes is not None and about.prototypes.centers is not None
    centers, domains = [], []
    for name, images in (("", training.labeled.images), *((each.name, each.images) for each in training.unlabeled)):
        features, _ = forward_all(method.network(), images, context.spec, context.device, "fp32")
        unit = normalize(features, dim=1)
        centers.append(unit.mean(0) if centred else torch.zeros_like(unit[0]))
        labels = about.pseudo_labels[name].labels if name else context.labels
        domains.append(ops.hard_prototypes(normalize(unit - centers[-1], dim=1), labels, context.classes))
        keys = (f"site/{name}", f"present/{name}") if name else ("labeled", "labeled_present")
        saved |= dict(zip(keys, domains[-1], strict=True))
        saved |= {f"center/{name}": centers[-1]} if name else {}
    return saved | {"merged": ops.merge_prototypes(domains), "center": torch.stack(centers).mean(0)}
