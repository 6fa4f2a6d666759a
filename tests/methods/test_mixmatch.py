from __future__ import annotations

import numpy as np
import pytest
import torch
from ssl_toy import CLASSES, epoch, main_batch, make
from torch import Tensor

from proud.methods.mixmatch import MixMatch, larger_part, sharpen


def softmax(logits: Tensor) -> np.ndarray:
    e = np.exp(logits.detach().double().numpy())
    return e / e.sum(-1, keepdims=True)


def sharpened(p: np.ndarray) -> np.ndarray:
    """T = 0.5: squares, normalised."""
    return p**2 / (p**2).sum(-1, keepdims=True)


def test_sharpening() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(sharpen(probs, 0.5), sharpened(probs.numpy()), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(sharpen(probs, 1.0), probs, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(sharpen(probs[:1], 0.01), [[1, 0, 0]], atol=1e-6)


def test_each_image_stays_the_larger_part() -> None:
    assert larger_part(torch.tensor([0.1, 0.5, 0.75])).tolist() == pytest.approx([0.9, 0.5, 0.75])


def test_the_guess_is_the_sharpened_mean_over_the_views() -> None:
    method = make("mixmatch")
    assert isinstance(method, MixMatch)
    (_, rows, draws), context, batch = main_batch(method), method.context, method.config.batch_size
    with torch.no_grad():
        x, targets = method.guessed(rows, draws)
        views = [
            method.views.simple(context.unlabeled.take(rows["unlabeled"]), draws["augment"][1 + k]) for k in range(2)
        ]
        guess = sharpened(sum(softmax(method.net(view)[1]) for view in views) / 2)
    assert x.shape[0] == targets.shape[0] == 3 * batch
    torch.testing.assert_close(x[batch:], torch.cat(views))
    np.testing.assert_array_equal(targets[:batch], np.eye(CLASSES)[context.labels[rows["labeled"]]])
    for k in (1, 2):
        np.testing.assert_allclose(targets[k * batch : (k + 1) * batch], guess, rtol=1e-4)


@pytest.mark.parametrize("noisemix", [False, True])
def test_the_loss_of_a_step(noisemix: bool) -> None:
    """Everything after the guess, sample by sample in float64."""
    method = make("mixmatch", noisemix=noisemix, rampup_steps=20)
    assert isinstance(method, MixMatch)
    epoch(method, method.stage_list()[1], 0)
    stage, rows, draws = main_batch(method)
    method.average.steps.fill_(5)
    found = method.losses(stage, rows, draws)
    with torch.no_grad():
        x, targets = method.guessed(rows, draws)
    total, batch = len(x), method.config.batch_size
    assert total == (6 if noisemix else 3) * batch
    order, ratio = draws["shuffle"].tolist(), draws["ratio"].flatten().double().numpy()
    assert sorted(order) == list(range(total))
    ce, l2 = [], []
    for i in range(total):
        part = max(ratio[i], 1 - ratio[i])
        image = part * x[i].double() + (1 - part) * x[order[i]].double()
        target = part * targets[i].double().numpy() + (1 - part) * targets[order[i]].double().numpy()
        p = softmax(method.net(image.float()[None])[1])[0]
        if (i // batch) % 3 == 0:
            ce.append(-(target * np.log(p)).sum())
        else:
            l2.append(((p - target) ** 2).sum() / CLASSES)
    assert found["ce"].item() == pytest.approx(np.mean(ce), rel=1e-4)
    assert found["l2"].item() == pytest.approx(np.mean(l2), rel=1e-4)
    weight = 75 * 5 / 20
    assert found["loss"].item() == pytest.approx(np.mean(ce) + weight * np.mean(l2), rel=1e-4)


def test_the_weight_rises_linearly_and_stops() -> None:
    method = make("mixmatch")
    assert isinstance(method, MixMatch)
    for step, expected in ((0, 0.0), (8192, 0.5), (16384, 1.0), (99999, 1.0)):
        method.average.steps.fill_(step)
        assert method.average.ramp(method.rampup_steps).item() == pytest.approx(expected)


def test_the_guess_gets_no_gradient() -> None:
    method = make("mixmatch")
    stage, rows, draws = main_batch(method)
    asked = []
    method.net.register_forward_hook(lambda module, inputs, output: asked.append(output[1].requires_grad))
    method.losses(stage, rows, draws)
    assert asked == [False, True]  # the guess, and the mixed images
