"""Runs that went wrong without an error: a network that learned nothing, or that calls all images of a site the same.

Needs labels of the labeled domain alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from proud.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

LOOKED_AT = 400  # images of a site that are enough to see it
NEARLY_ALL = 0.95
FEWEST = 20  # images below which a share says little


def learned_nothing(logits: Tensor, labels: Tensor, name: str) -> str:
    """A sentence if validation images are right no more often than by always naming one class, else ''."""
    count = len(labels)
    if count < FEWEST:
        return ""
    right = (logits.argmax(1) == labels).float().mean().item()
    best = labels.bincount().max().item() / count
    if best == 1 or right > best + 2 * math.sqrt(best * (1 - best) / count):
        return ""
    return (
        f"The network learned nothing: {100 * right:.1f} % of the validation images of {name} are right, and always "
        f"naming one class gives {100 * best:.1f} %. Try another learning rate or longer pretraining."
    )


def one_class(logits: Tensor, labeled: Tensor, classes: tuple[str, ...], name: str) -> str:
    """A sentence if nearly all images of a site get one class that is no such majority in the labeled domain, else ''.

    logits [N,K] of the site; labeled [M]: the labeled domain's class numbers.
    """
    if len(logits) < FEWEST:
        return ""
    shares = logits.argmax(1).bincount(minlength=len(classes)) / len(logits)
    share, largest = (value.item() for value in shares.max(0))
    usual = (labeled == largest).float().mean().item()
    if share < NEARLY_ALL or usual > 0.5:
        return ""
    return (
        f"{100 * share:.0f} % of the images of {name} are called {classes[int(largest)]}, which {100 * usual:.0f} % of "
        f"the labeled ones are: unless that is so, the network is of no use there."
    )


def evenly(count: int) -> Tensor:
    """Rows of at most LOOKED_AT of `count` images, spread over all of them."""
    return torch.arange(0, count, max(1, math.ceil(count / LOOKED_AT)))
