"""What a later report shows of a run, in a few megabytes: features, prototypes, pseudo-labels, mixed pairs, and the
images with the most and the least certain pseudo-labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from proud import ops
from proud.data.types import UNKNOWN, LabeledDomain, Task, UnlabeledDomain
from proud.files import tensor_bytes
from proud.methods.base import Method
from proud.methods.description import Description
from proud.nets.forward import forward_all
from proud.randomness import Randomness

MOMENTS = ("first", "middle", "last")
MOST_ROWS = 500
FEATURE_BYTES = 5_000_000  # for all domains and moments together
PAIRS = 32
THUMBNAIL = 64
STATISTICS_BATCH = 128
GALLERY_BYTES = 1_000_000  # for all domains together
MOST_SHOWN = 8  # most certain and least certain images of a domain


def moment_of(epoch: int, epochs: int) -> str | None:
    """Which snapshot, if any, belongs to this epoch of the last stage (counted from 0)."""
    if epoch == epochs - 1:
        return "last"
    return {0: "first", epochs // 2: "middle"}.get(epoch)


def snapshot(moment: str, method: Method, about: Description, task: Task, random: Randomness) -> bytes:
    """A safetensors file."""
    tensors = domain_tensors(method, about, task)
    tensors |= pseudo_label_tensors(about, tensors)
    with torch.no_grad():
        tensors |= prototype_tensors(about)
        tensors |= pair_tensors(method, about, task, random)
    if moment == MOMENTS[-1]:
        tensors |= gallery_tensors(method, about, task, tensors)
    for key, value in tensors.items():
        small = thumbnails(value) if value.ndim == 4 else value
        tensors[key] = small.half() if small.dtype == torch.float32 and small.ndim > 1 else small
    return tensor_bytes(tensors, "proud-snapshot-1")


def thumbnails(images: Tensor) -> Tensor:
    if images.shape[-1] <= THUMBNAIL:
        return images
    small = interpolate(images.float(), size=(THUMBNAIL, THUMBNAIL), mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)


# ---- features


def domain_tensors(method: Method, about: Description, task: Task) -> dict[str, Tensor]:
    """Features, logits and labels of some images of every domain.

    Features of training domains use their own batch statistics if the prototypes, shown among them, do.
    """
    net, context = method.network(), method.context
    domains: list[tuple[str, LabeledDomain | UnlabeledDomain]] = [("labeled", task.training.labeled)]
    domains += [(f"unlabeled/{domain.name}", domain) for domain in task.training.unlabeled]
    if task.evaluation.test is not None:
        domains.append(("test", task.evaluation.test))
    own = about.prototypes is not None and about.prototypes.batch_statistics
    tensors: dict[str, Tensor] = {}
    for key, domain in domains:
        rows = shown_rows(len(domain.images), net.num_features, len(domains))
        batch = STATISTICS_BATCH if own and key != "test" and len(rows) > 1 else 0
        features, logits = forward_all(
            net, domain.images[rows], context.spec, context.device, context.precision, batch_statistics=batch
        )
        tensors |= {f"{key}/rows": rows, f"{key}/features": features.half(), f"{key}/logits": logits.half()}
        if isinstance(domain, LabeledDomain):
            tensors[f"{key}/labels"] = domain.labels[rows]
        elif domain.name in task.evaluation.audits:
            tensors[f"{key}/truth"] = task.evaluation.audits[domain.name].labels[rows]
    return tensors


def shown_rows(population: int, features: int, domains: int) -> Tensor:
    most = min(MOST_ROWS, FEATURE_BYTES // (len(MOMENTS) * domains * features * 2))
    return torch.linspace(0, population - 1, min(population, most)).long()


def pseudo_label_tensors(about: Description, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, pseudo in about.pseudo_labels.items():
        key = f"unlabeled/{name}"
        rows = tensors[f"{key}/rows"].to(pseudo.labels.device)
        found |= {f"{key}/pseudo": pseudo.labels[rows], f"{key}/uncertainty": pseudo.uncertainty[rows]}
        if about.certainty is not None:
            found[f"{key}/ratio"] = about.certainty(pseudo.uncertainty[rows])
    return found


def prototype_tensors(about: Description) -> dict[str, Tensor]:
    if about.prototypes is None:
        return {}
    found = {"method/merged": about.prototypes.merged}
    for name, pseudo in about.pseudo_labels.items():
        found |= {f"method/prototypes/{name}": pseudo.prototypes, f"method/present/{name}": pseudo.present}
    return found


# ---- mixed pairs


def pair_tensors(method: Method, about: Description, task: Task, random: Randomness) -> dict[str, Tensor]:
    """32 training pairs as the main phase would mix them now, for methods that mix by uncertainty."""
    if about.ratio is None or not about.pseudo_labels:
        return {}
    context = method.context
    random.rewind("snapshot")
    rows = (random.uniform("snapshot", PAIRS) * len(context.unlabeled)).long()
    uniform = random.uniform("snapshot", 4, PAIRS)
    labels, uncertainty = (
        torch.cat([getattr(about.pseudo_labels[name], part) for name in context.unlabeled_names])[rows]
        for part in ("labels", "uncertainty")
    )
    partners = ops.sample_match(labels, ops.class_index(context.labels, context.classes), uniform[0])
    unlabeled = ops.center_crop(context.unlabeled.take(rows), context.size)
    labeled = ops.center_crop(context.labeled.take(partners), context.size)
    ratio = about.ratio(uncertainty, uniform[1])
    found = {"rows": rows, "partners": partners, "labels": labels, "uncertainty": uncertainty, "ratio": ratio}
    found |= {"labeled": labeled, "unlabeled": unlabeled}
    found["mixed"] = ops.ud_mix(labeled.float(), unlabeled.float(), ratio).round().to(torch.uint8)
    starts = torch.tensor(context.unlabeled.starts)
    found["domain"] = torch.searchsorted(starts, rows.cpu(), right=True) - 1
    every = [truth_of(task, f"unlabeled/{each.name}", len(each)) for each in task.training.unlabeled]
    found["truth"] = torch.cat(every)[rows.cpu()]
    return {f"method/pairs/{key}": value for key, value in found.items()}


def truth_of(task: Task, key: str, count: int) -> Tensor:
    if key == "test" and task.evaluation.test is not None:
        return task.evaluation.test.labels
    audit = task.evaluation.audits.get(key.partition("/")[2])
    return torch.full((count,), UNKNOWN) if audit is None else audit.labels


# ---- the most and the least certain images


def gallery_tensors(method: Method, about: Description, task: Task, shown: dict[str, Tensor]) -> dict[str, Tensor]:
    """`certain/KEY/…`: images from the least to the most uncertain, label, uncertainty and true class (-1: unknown).

    Pseudo-labeled domains are ranked by ε over all images, others by 1 - confidence over the rows in `shown`.
    """
    domains = [(f"unlabeled/{domain.name}", domain.images) for domain in task.training.unlabeled]
    if task.evaluation.test is not None:
        domains.append(("test", task.evaluation.test.images))
    most = max(1, min(MOST_SHOWN, GALLERY_BYTES // (len(domains) * 2 * 3 * THUMBNAIL**2))) if domains else 0
    found: dict[str, Tensor] = {}
    for key, images in domains:
        rows, labels, doubt = ranking(about, key, shown)
        order = doubt.argsort(stable=True)
        count = min(most, (len(order) + 1) // 2)
        chosen = torch.cat([order[:count], order[max(count, len(order) - count) :]])
        rows = rows[chosen]
        found[f"certain/{key}/images"] = ops.center_crop(images[rows], method.context.size)
        found |= {f"certain/{key}/labels": labels[chosen], f"certain/{key}/uncertainty": doubt[chosen]}
        found[f"certain/{key}/truth"] = truth_of(task, key, len(images))[rows]
    return found


def ranking(about: Description, key: str, shown: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels and uncertainties to choose from."""
    pseudo = about.pseudo_labels.get(key.partition("/")[2])
    if pseudo is not None:
        return torch.arange(len(pseudo.labels)), pseudo.labels.cpu(), pseudo.uncertainty.float().cpu()
    confidence, labels = shown[f"{key}/logits"].float().softmax(1).max(1)
    return shown[f"{key}/rows"].cpu(), labels.cpu(), 1 - confidence.cpu()
