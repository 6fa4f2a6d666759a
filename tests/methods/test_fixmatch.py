from __future__ import annotations

import math

import pytest
import torch
from ssl_toy import epoch, main_batch, make, toy_context

from proud import ops
from proud.methods.fixmatch import FixMatch, masked_cross_entropy, pseudo_label
from proud.ops.randaugment import rand_augment


def test_only_confident_predictions_become_labels() -> None:
    probs = torch.tensor([[0.96, 0.03, 0.01], [0.94, 0.05, 0.01], [0.01, 0.02, 0.97]], requires_grad=True)
    label, mask = pseudo_label(probs.log(), 0.95)
    assert label.tolist() == [0, 0, 2] and mask.tolist() == [1, 0, 1]
    assert not mask.requires_grad
    assert pseudo_label(torch.zeros(1, 2), 0.5)[1].item() == 1  # exactly the threshold counts


def test_masked_cross_entropy_divides_by_all_images() -> None:
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    labels, mask = torch.tensor([1, 3, 0]), torch.tensor([1.0, 0.0, 1.0])
    total = 0.0
    for view in logits.tolist():
        for n in (0, 2):
            total += math.log(sum(math.exp(v) for v in view[n])) - view[n][labels[n]]
    assert masked_cross_entropy(logits, labels, mask).item() == pytest.approx(total / 6, rel=1e-5)
    assert masked_cross_entropy(logits, labels, 0 * mask).item() == 0


@pytest.mark.parametrize("noisemix", [False, True])
def test_the_loss_of_a_step(noisemix: bool) -> None:
    method = make("fixmatch", noisemix=noisemix, confidence=0.6)
    assert isinstance(method, FixMatch)
    epoch(method, method.stage_list()[1], 0)
    (stage, rows, draws), context = main_batch(method), method.context
    found = method.losses(stage, rows, draws)
    labels, images = context.labels[rows["labeled"]], context.unlabeled.take(rows["unlabeled"])
    with torch.no_grad():
        labeled = method.views.simple(context.labeled.take(rows["labeled"]), draws["augment"][0])
        weak, strong = (method.views.shifted(images, uniform) for uniform in draws["augment"][1:])
        weak, strong = (
            ops.normalize(x, context.mean, context.std) for x in (weak, rand_augment(strong, draws["strong"]))
        )
        supervised, strongs = [labeled], [strong]
        if noisemix:
            copies = method.views.noise_copies(torch.cat([labeled, weak]), draws)
            supervised.append(copies[: len(labeled)])
            strongs.append(copies[len(labeled) :])
        q = method.net(weak)[1].softmax(1)
        used, unlabeled = 0, 0.0
        for n in range(len(q)):
            if q[n].max() >= 0.6:
                used += 1
                unlabeled -= sum(float(method.net(x[n : n + 1])[1].log_softmax(1)[0, q[n].argmax()]) for x in strongs)
        unlabeled /= len(q) * len(strongs)
        ce = sum(torch.nn.functional.cross_entropy(method.net(x)[1], labels) for x in supervised) / len(supervised)
    assert 0 < used < len(q) and found["used"].item() == pytest.approx(used / len(q))
    assert found["ce"].item() == pytest.approx(float(ce), rel=1e-4)
    assert found["unlabeled"].item() == pytest.approx(unlabeled, rel=1e-4)
    assert found["loss"].item() == pytest.approx(float(ce) + unlabeled, rel=1e-4)


def test_the_weak_view_gets_no_gradient() -> None:
    method = make("fixmatch", confidence=0.0)
    stage, rows, draws = main_batch(method)
    kept = []

    def keep(module: torch.nn.Module, inputs: object, output: tuple[torch.Tensor, torch.Tensor]) -> None:
        output[1].retain_grad()
        kept.append(output[1])

    method.net.register_forward_hook(keep)
    method.losses(stage, rows, draws)["loss"].backward()
    labeled, weak, strong = kept[0].grad.chunk(3)
    assert weak.abs().sum() == 0 and labeled.abs().sum() > 0 and strong.abs().sum() > 0
    assert len(kept) == 1  # one forward pass, one set of batch statistics


def test_nothing_confident_leaves_cross_entropy_alone() -> None:
    method = make("fixmatch", confidence=1.1)
    found = method.losses(*main_batch(method))
    assert found["used"] == 0 and torch.equal(found["loss"], found["ce"])


@pytest.mark.parametrize("flip", [False, True])
def test_the_weak_view_is_a_translation_and_perhaps_a_flip(flip: bool) -> None:
    method = make("fixmatch", toy_context(unlabeled=(8,)), flip=flip)
    assert isinstance(method, FixMatch)
    images = method.context.unlabeled.take(torch.arange(8))
    uniform = torch.rand(8, 9, generator=torch.Generator().manual_seed(0))
    got = method.views.shifted(images, uniform)
    draw = ops.augment_draw(uniform, 2, flip_p=0.5 if flip else 0.0)
    assert bool(draw.flip.any()) == flip
    for n in range(8):
        top, left = int(draw.top[n]), int(draw.left[n])
        window = images[n, :, top : top + 16, left : left + 16].float() / 255
        torch.testing.assert_close(got[n], window.flip(-1) if draw.flip[n] else window)
