"""Failures without an error: a network at chance level, or one that predicts a single class for a whole site.

Only labels of the labeled domain are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOOKED_AT = 400  # images of a site that are checked
NEARLY_ALL = 0.95
USUAL = 0.7  # a class this frequent among the labels may dominate a site
FEWEST = 8  # with fewer images, a single predicted class is no evidence
FEWEST_GUESSES = 50  # with fewer images, accuracy cannot be distinguished from chance


def learned_nothing(logits: Tensor, labels: Tensor, name: str) -> str:
    """A warning if validation accuracy is at chance level, else ''.

    The accuracy is the mean over classes, so that rare classes count: it is 1/K for a constant prediction and, on
    average, for random guesses of any distribution.
    """
    counts = labels.bincount(minlength=logits.shape[1])
    present, count = counts > 0, len(labels)
    predicted = logits.argmax(1)
    if int(present.sum()) < 2 or count < FEWEST:
        return ""
    right = labels[predicted == labels].bincount(minlength=len(counts)) / counts.clamp_min(1)
    share = predicted.bincount(minlength=len(counts)) / count
    mean, chance = right[present].mean().item(), 1 / int(present.sum())
    error = ((share * (1 - share))[present] / counts[present]).sum().sqrt().item() * chance
    constant = share.max().item() == 1
    if not constant and (count < FEWEST_GUESSES or mean > chance + error):
        return ""
    return (
        f"The network learned nothing: its mean accuracy per class on the validation images of {name} is "
        f"{100 * mean:.1f} %, and chance is {100 * chance:.1f} %. Try another learning rate or longer pretraining."
    )


def one_class(logits: Tensor, labeled: Tensor, classes: tuple[str, ...], name: str) -> str:
    """A warning if nearly all images of a site get one class that does not dominate the labeled domain, else ''.

    logits [N,K] of the site; labeled [M]: class numbers of the labeled domain.
    """
    if len(logits) < FEWEST:
        return ""
    shares = logits.argmax(1).bincount(minlength=len(classes)) / len(logits)
    share, largest = (value.item() for value in shares.max(0))
    usual = (labeled == largest).float().mean().item()
    if share < NEARLY_ALL or usual > USUAL:
        return ""
    return (
        f"{100 * share:.0f} % of the images of {name} are classified as {classes[int(largest)]}, the class "
        f"of {100 * usual:.0f} % of the labeled images: unless this is correct, the network is useless on {name}."
    )
