"""Failures without an error: a network at chance level, or one that never predicts some classes at a site.

Only labels of the labeled domain are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.text import some

if TYPE_CHECKING:
    from torch import Tensor

LOOKED_AT = 400  # images of a site that are checked
NEARLY_ALL = 0.95
USUAL = 0.7  # a class this frequent among the labels may dominate a site
FEWEST = 8  # with fewer images, a single predicted class is no evidence
COMMON = 0.02  # share of the labels from which a class is expected at every site
STARVED = 0.1  # of the expected number of predictions
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


def missing_classes(logits: Tensor, labeled: Tensor, classes: tuple[str, ...], name: str) -> str:
    """A warning if a site's predictions lack classes that the labels have, else ''. Needs no label of the site.

    logits [N,K] of the site; labeled [M]: class numbers of the labeled domain.
    """
    about = (logits, labeled, classes, name)
    return one_class(*about) or starved_classes(*about)


def starved_classes(logits: Tensor, labeled: Tensor, classes: tuple[str, ...], name: str) -> str:
    """A warning about classes that are common among the labels and nearly absent from a site's predictions, else ''.

    A site may truly lack a class, so only classes are named of which at least FEWEST images are expected and at most
    a tenth of these are predicted. logits [N,K] of the site; labeled [M]: class numbers of the labeled domain.
    """
    shares = labeled.bincount(minlength=len(classes)) / len(labeled)
    predicted = logits.argmax(1).bincount(minlength=len(classes))
    expected = shares * len(logits)
    starved = (shares >= COMMON) & (expected >= FEWEST) & (predicted <= STARVED * expected)
    names = [
        f"{classes[k]} ({int(predicted[k])} of {len(logits)} images, {100 * shares[k].item():.0f} % of the labels)"
        for k in starved.nonzero().flatten().tolist()
    ]
    if not names:
        return ""
    return (
        f"Almost no image of {name} is classified as {some(names)}. Unless that is correct, the model misses "
        "these classes there."
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
