"""Runs that went wrong without an error: a network that learned nothing, or that calls all images of a site the same.

Needs labels of the labeled domain alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOOKED_AT = 400  # images of a site that are enough to see it
NEARLY_ALL = 0.95
USUAL = 0.7  # a class that so many labeled images have may well be nearly all of a site
FEWEST = 8  # images below which one answer for all says little
FEWEST_GUESSES = 50  # images below which good answers cannot be told from guesses


def learned_nothing(logits: Tensor, labels: Tensor, name: str) -> str:
    """A sentence if validation images are right no more often than by guessing, else ''.

    Looked at is the share that is right of each class, so that rare classes count: its mean is 1/K for whoever names
    one class only, and on average for whoever guesses, in any shares.
    """
    counts = labels.bincount(minlength=logits.shape[1])
    present, count = counts > 0, len(labels)
    named = logits.argmax(1)
    if int(present.sum()) < 2 or count < FEWEST:
        return ""
    right = labels[named == labels].bincount(minlength=len(counts)) / counts.clamp_min(1)
    share = named.bincount(minlength=len(counts)) / count
    mean, guessing = right[present].mean().item(), 1 / int(present.sum())
    error = ((share * (1 - share))[present] / counts[present]).sum().sqrt().item() * guessing
    constant = share.max().item() == 1
    if not constant and (count < FEWEST_GUESSES or mean > guessing + error):
        return ""
    return (
        f"The network learned nothing: of the validation images of {name}, {100 * mean:.1f} % of a class are right on "
        f"average, and guessing gives {100 * guessing:.1f} %. Try another learning rate or longer pretraining."
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
    if share < NEARLY_ALL or usual > USUAL:
        return ""
    return (
        f"{100 * share:.0f} % of the images of {name} are called {classes[int(largest)]}, which {100 * usual:.0f} % of "
        f"the labeled ones are: unless that is so, the network is of no use there."
    )
