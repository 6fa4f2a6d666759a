"""What ProUD shows and keeps of itself: prototypes beside the model, pairs for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.lazy import ops, torch

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.proud import ProUD
    from proud.randomness import Randomness


def saved_prototypes(method: ProUD) -> dict[str, Tensor]:
    """See `Method.prototypes`."""
    labeled, present = method.last_labeled
    found = {"merged": method.merged, "center": method.center_of(), "tau": method.merged.new_tensor([method.tau])}
    found |= {"labeled": labeled, "labeled_present": present}
    for t, (name, domain) in enumerate(method.pseudo_labels().items(), start=1):
        found |= {f"site/{name}": domain.prototypes, f"present/{name}": domain.present}
        found[f"center/{name}"] = method.center_of(t)
    return found


def shown_moment(method: ProUD, random: Randomness) -> dict[str, Tensor]:
    """Prototypes of all domains, and 32 training pairs as the main phase would mix them now."""
    shown: dict[str, Tensor] = {"merged": method.merged}
    for name, found in method.pseudo_labels().items():
        shown |= {f"prototypes/{name}": found.prototypes, f"present/{name}": found.present}
    random.rewind("snapshot")
    rows = (random.uniform("snapshot", 32) * len(method.context.unlabeled)).long()
    uniform = random.uniform("snapshot", 4, 32)
    labels, uncertainty = method.labels[rows], method.uncertainty[rows]
    partners = ops.sample_match(labels, method.index, uniform[0])
    size = method.context.size
    unlabeled = ops.center_crop(method.context.unlabeled.take(rows), size)
    labeled = ops.center_crop(method.context.labeled.take(partners), size)
    ratio = method.ratio(uncertainty, uniform[1])
    mixed = ops.ud_mix(labeled.float(), unlabeled.float(), ratio).round().to(torch.uint8)
    return shown | {
        "pairs/rows": rows,
        "pairs/partners": partners,
        "pairs/labels": labels,
        "pairs/uncertainty": uncertainty,
        "pairs/ratio": ratio,
        "pairs/labeled": labeled,
        "pairs/unlabeled": unlabeled,
        "pairs/mixed": mixed,
    }
