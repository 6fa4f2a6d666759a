"""Slow twins of `proud.ops`: float64 NumPy, one loop per index, written from the paper's formulas and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
GREY = (0.299, 0.587, 0.114)
ROUNDING = 1e-14  # scores this close tie, and the lowest class wins


# prototypes -----------------------------------------------------------------------------------------------------------
def soft_prototypes(features: Array, probs: Array) -> Array:
    out = np.zeros((probs.shape[1], features.shape[1]))
    for k in range(probs.shape[1]):
        total = sum(float(p[k]) for p in probs)
        for feature, p in zip(features, probs, strict=True):
            if total > 0:
                out[k] += p[k] * feature / total
    return out


def cosine_distance(features: Array, prototypes: Array) -> Array:
    out = np.ones((len(features), len(prototypes)))
    for i, feature in enumerate(features):
        for k, prototype in enumerate(prototypes):
            length = math.sqrt(sum(v * v for v in feature)) * math.sqrt(sum(v * v for v in prototype))
            if length > 0:
                out[i, k] = 1 - sum(a * b for a, b in zip(feature, prototype, strict=True)) / length
    return out


def nearest_prototype(features: Array, prototypes: Array, present: Sequence[bool] | Bools) -> Ints:
    distances = cosine_distance(features, prototypes)
    allowed = [k for k in range(len(prototypes)) if present[k]]
    labels = [next(k for k in allowed if row[k] <= min(row[allowed]) + ROUNDING) for row in distances]
    return np.array(labels, dtype=np.int64)


def hard_prototypes(features: Array, labels: Ints, num_classes: int) -> tuple[Array, Bools]:
    out, present = np.zeros((num_classes, features.shape[1])), np.zeros(num_classes, dtype=bool)
    for k in range(num_classes):
        members = [feature for feature, label in zip(features, labels, strict=True) if label == k]
        if members:
            out[k], present[k] = sum(members) / len(members), True
    return out, present


def softmax(logits: Sequence[float] | Array, present: Sequence[bool] | Bools) -> Array:
    top = max(v for v, here in zip(logits, present, strict=True) if here)
    weights = [math.exp(v - top) if here else 0.0 for v, here in zip(logits, present, strict=True)]
    return np.array(weights) / sum(weights)


def entropy(probs: Array) -> float:
    return -sum(p * math.log(p) for p in probs if p > 0)


def uncertainty(distances: Array, tau: float, present: Sequence[bool] | Bools) -> Array:
    return np.array([entropy(softmax(-row / tau, present)) for row in distances])


def vote(distances: Array, present: Sequence[bool] | Bools) -> Ints:
    labels = []
    for i in range(distances.shape[1]):
        total = np.sum([softmax(-view[i], present) for view in distances], axis=0)
        labels.append(next(k for k in range(len(total)) if total[k] >= max(total) - ROUNDING))
    return np.array(labels, dtype=np.int64)


def dapp(features: Array, probs: Array, tau: float) -> tuple[Ints, Array, Array, Bools]:
    """Labels, uncertainty, prototypes, present."""
    views, classes = len(features), probs.shape[2]
    rows = np.concatenate(list(features))
    soft = soft_prototypes(rows, np.concatenate(list(probs)))
    first = vote(np.stack([cosine_distance(view, soft) for view in features]), [True] * classes)
    hard, present = hard_prototypes(rows, np.concatenate([first] * views), classes)
    distances = np.stack([cosine_distance(view, hard) for view in features])
    entropies = []
    for i in range(features.shape[1]):
        mean = np.mean([softmax(-distances[r, i] / tau, present) for r in range(views)], axis=0)
        entropies.append(entropy(mean))
    return vote(distances, present), np.array(entropies), hard, present


def consensus(
    distances: Array, opinion: Array, tau: float, present: Sequence[bool] | Bools, share: float
) -> tuple[Ints, Array, Array]:
    views, images, _ = distances.shape
    answers = np.array([[softmax(-distances[r, n] / tau, present) for n in range(images)] for r in range(views)])
    mean = np.array([(1 - share) * answers[:, n].mean(0) + share * opinion[n] for n in range(images)])
    labels = mean.argmax(1)
    alone = (answers.argmax(2) == labels).mean(0)
    return labels, np.array([entropy(row) for row in mean]), alone


def anchored_prototypes(sums: Array, counts: Array, anchors: Array, strength: float) -> Array:
    out = np.zeros_like(sums)
    for k in range(len(sums)):
        for vector, weight in ((sums[k], counts[k]), (anchors[k], strength)):
            length = math.sqrt(sum(v * v for v in vector))
            if length > 0:
                out[k] += weight * vector / length
    return out


def surest(scores: Array, share: float) -> list[bool]:
    out = [False] * len(scores)
    every = np.ones(scores.shape[1], dtype=bool)
    for k in range(scores.shape[1]):
        mine = [i for i in range(len(scores)) if max(range(scores.shape[1]), key=lambda c: scores[i, c]) == k]
        mine.sort(key=lambda i: entropy(softmax(scores[i], every)))
        for i in mine[: math.ceil(share * len(mine))]:
            out[i] = True
    return out


def t3a(features: Array, logits: Array, weight: Array, kept: int) -> Array:
    """Iwasawa and Matsuo 2021, Algorithm 1, with the supports of the whole site."""
    unit = [feature / math.sqrt(sum(v * v for v in feature)) for feature in features]
    out = np.zeros(logits.shape)
    every = np.ones(logits.shape[1], dtype=bool)
    for k in range(logits.shape[1]):
        mine = [i for i in range(len(unit)) if max(range(logits.shape[1]), key=lambda c: logits[i, c]) == k]
        mine.sort(key=lambda i: entropy(softmax(logits[i], every)))
        centroid = weight[k] / math.sqrt(sum(v * v for v in weight[k])) + sum(unit[i] for i in mine[:kept])
        out[:, k] = [1 - d for d in cosine_distance(np.array(unit), centroid[None])[:, 0]]
    return out


def merge_prototypes(domains: Sequence[tuple[Array, Bools]]) -> Array:
    out = np.zeros_like(domains[0][0])
    for k in range(len(out)):
        having = [prototypes[k] for prototypes, present in domains if present[k]]
        if having:
            out[k] = sum(having) / len(having)
    return out


# losses ---------------------------------------------------------------------------------------------------------------
def prototype_merging_loss(
    features: Array, labels: Ints, prototypes: Array, weights: Sequence[float] | Array, tau: float = 1.0
) -> float:
    total = 0.0
    for row, label, weight in zip(cosine_distance(features, prototypes), labels, weights, strict=True):
        total += weight * -math.log(math.exp(-row[label] / tau) / sum(math.exp(-d / tau) for d in row))
    return total / sum(weights)


def log_class_mix(labels: Ints, classes: int, least: float = 0.1) -> list[float]:
    share = [sum(int(label == k) for label in labels) / len(labels) for k in range(classes)]
    return [math.log(max(value, least / classes)) for value in share]


def soft_cross_entropy(logits: Array, targets: Array) -> float:
    total = 0.0
    for row, target in zip(logits, targets, strict=True):
        probs = softmax(row, [True] * len(row))
        total -= sum(t * math.log(p) for t, p in zip(target, probs, strict=True))
    return total / len(logits)


def mixup_cross_entropy(logits: Array, labels_a: Ints, labels_b: Ints, ratio: Sequence[float] | Array) -> float:
    targets = np.zeros_like(logits)
    for i, (a, b) in enumerate(zip(labels_a, labels_b, strict=True)):
        targets[i, a] += ratio[i]
        targets[i, b] += 1 - ratio[i]
    return soft_cross_entropy(logits, targets)


# mixing ---------------------------------------------------------------------------------------------------------------
def certainty_ratio(uncertainty: Array, tau: float) -> Array:
    return np.array([math.exp(-e / tau) / (1 + math.exp(-e / tau)) for e in uncertainty])


def mixing_ratio(uncertainty: Array, uniform: Array, tau: float, threshold: float) -> Array:
    ratios = certainty_ratio(uncertainty, tau)
    return np.array([u if r > threshold else r for r, u in zip(ratios, uniform, strict=True)])


def ud_mix(x_labeled: Array, x_unlabeled: Array, ratio: Array) -> Array:
    return np.stack([r * u + (1 - r) * l for l, u, r in zip(x_labeled, x_unlabeled, ratio, strict=True)])


def sample_match(labels: Ints, domain_labels: Ints, uniform: Array) -> Ints:
    out = []
    for label, u in zip(labels, uniform, strict=True):
        rows = [row for row, other in enumerate(domain_labels) if other == label]
        out.append(rows[min(int(u * len(rows)), len(rows) - 1)])
    return np.array(out, dtype=np.int64)


def mixup(features: Array, partner: Ints, ratio: Sequence[float] | Array) -> Array:
    return np.stack([ratio[i] * features[i] + (1 - ratio[i]) * features[j] for i, j in enumerate(partner)])


def beta_quantile(uniform: Array, a: float) -> Array:
    return np.array([float(betaincinv(a, a, u)) for u in uniform])


# noisemix -------------------------------------------------------------------------------------------------------------
def noise_mix_draw(
    sample: Array, layer: Array, invert_p: float, max_kernel: int, max_dilation: int, low: float, high: float
) -> dict[str, list[float]]:
    """All fields but `weights` and `noise`, which are the inputs rescaled and untouched."""
    return {
        "invert_first": [u < invert_p for u in sample[0]],
        "invert_last": [u < invert_p for u in sample[1]],
        "kernel_size": [min(1 + math.floor(u * max_kernel), max_kernel) for u, _, _ in layer],
        "dilation": [min(1 + math.floor(u * max_dilation), max_dilation) for _, u, _ in layer],
        "ratio": [low + (high - low) * u for _, _, u in layer],
    }


def dilated_convolution(image: Array, weights: Array, dilation: int) -> Array:
    """Padding 'same' of one image. [C,H,W], [C,C,k,k] -> [C,H,W]."""
    channels, height, width = image.shape
    k = weights.shape[-1]
    before = dilation * (k - 1) // 2
    out = np.zeros_like(image)
    for o, y, x in np.ndindex(channels, height, width):
        for i, v, u in np.ndindex(channels, k, k):
            row, column = y + v * dilation - before, x + u * dilation - before
            if 0 <= row < height and 0 <= column < width:
                out[o, y, x] += weights[o, i, v, u] * image[i, row, column]
    return out


def noise_mix(x: Array, draw: Mapping[str, Array], mean: Sequence[float], std: Sequence[float], sigma: float) -> Array:
    """Algorithm 1; `draw` has the fields of NoiseMixDraw, sigma is the noise's standard deviation."""
    m, s = np.array(mean)[:, None, None], np.array(std)[:, None, None]
    out = np.zeros_like(x)
    for n in range(len(x)):
        image = x[n]
        if draw["invert_first"][n]:
            image = ((1 - (image * s + m)) - m) / s
        for p in range(len(draw["ratio"])):
            k, d, ratio = int(draw["kernel_size"][p]), int(draw["dilation"][p]), draw["ratio"][p]
            noisy = image + sigma * draw["noise"][p][n]
            mapped = np.tanh(dilated_convolution(noisy, draw["weights"][p][:, :, :k, :k] / math.sqrt(3 * k * k), d))
            mapped = mapped - mapped.mean()
            spread = math.sqrt((mapped**2).mean())
            image = ratio * (mapped / spread if spread > 1e-5 else 0 * mapped) + (1 - ratio) * noisy
        image = (1 / (1 + np.exp(-image)) - m) / s
        if draw["invert_last"][n]:
            image = ((1 - (image * s + m)) - m) / s
        out[n] = image
    return out


# augment --------------------------------------------------------------------------------------------------------------
def augment_draw(
    uniform: Array, margin: int, translate_p: float, flip_p: float, jitter: Sequence[float], gray_p: float
) -> dict[str, list[float]]:
    names = ("top", "left", "flip", "brightness", "contrast", "saturation", "hue", "gray")
    out: dict[str, list[float]] = {name: [] for name in names}
    for row in uniform:
        for name, u in (("top", row[1]), ("left", row[2])):
            drawn = min(math.floor(u * (margin + 1)), margin)
            out[name].append(drawn if row[0] < translate_p else margin // 2)
        out["flip"].append(row[3] < flip_p)
        for name, u, reach in zip(names[3:6], row[4:7], jitter, strict=False):
            out[name].append((1 - reach) + 2 * reach * u)
        out["hue"].append(-jitter[3] + 2 * jitter[3] * row[7])
        out["gray"].append(row[8] < gray_p)
    return out


def crop(image: Array, top: int, left: int, size: int) -> Array:
    out = np.zeros((len(image), size, size))
    for c, i, j in np.ndindex(out.shape):
        out[c, i, j] = image[c, top + i, left + j]
    return out


def flip(image: Array) -> Array:
    out = np.zeros_like(image)
    for c, i, j in np.ndindex(image.shape):
        out[c, i, j] = image[c, i, image.shape[2] - 1 - j]
    return out


def quarter_turns(image: Array, turns: int) -> Array:
    """Counterclockwise."""
    for _ in range(turns):
        out = np.zeros_like(image)
        for c, i, j in np.ndindex(image.shape):
            out[c, i, j] = image[c, j, image.shape[1] - 1 - i]
        image = out
    return image


def grey(pixel: Array) -> float:
    return sum(w * v for w, v in zip(GREY, pixel, strict=True))


def grayscale(image: Array) -> Array:
    out = np.zeros_like(image)
    for i, j in np.ndindex(image.shape[1:]):
        out[:, i, j] = grey(image[:, i, j])
    return out


def color_jitter(image: Array, brightness: float, contrast: float, saturation: float, hue: float) -> Array:
    """Step by step and pixel by pixel; a positive hue turns red towards yellow."""
    i_axis, q_axis = (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135)
    image = brightness * image
    mean_grey = float(np.mean([grey(image[:, i, j]) for i, j in np.ndindex(image.shape[1:])]))
    image = contrast * image + (1 - contrast) * mean_grey
    out, angle = np.zeros_like(image), 2 * math.pi * hue
    for i, j in np.ndindex(image.shape[1:]):
        pixel = image[:, i, j]
        pixel = saturation * pixel + (1 - saturation) * grey(pixel)
        y, in_phase, quadrature = np.array([GREY, i_axis, q_axis]) @ pixel
        turned = complex(in_phase, quadrature) * complex(math.cos(angle), -math.sin(angle))
        pixel = np.linalg.solve(np.array([GREY, i_axis, q_axis]), np.array([y, turned.real, turned.imag]))
        out[:, i, j] = [min(max(v, 0.0), 1.0) for v in pixel]
    return out


def normalize(image: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    return np.stack([(channel - m) / s for channel, m, s in zip(image, mean, std, strict=True)])


def augment(
    images: NDArray[np.uint8], draw: Mapping[str, Array], size: int, mean: Sequence[float], std: Sequence[float]
) -> Array:
    out = []
    for n, image in enumerate(images):
        one = {name: values[n] for name, values in draw.items()}
        x = crop(image / 255, int(one["top"]), int(one["left"]), size)
        x = flip(x) if one["flip"] else x
        x = color_jitter(x, one["brightness"], one["contrast"], one["saturation"], one["hue"])
        x = grayscale(x) if one["gray"] else x
        out.append(normalize(x, mean, std))
    return np.stack(out)
