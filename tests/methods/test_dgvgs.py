from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_context import accuracy, same_weights, toy_context, toy_method, train

from proud.methods.dgvgs import agr_rand, agr_sum, agreement
from proud.randomness import Randomness

GRADIENTS = torch.tensor([[1.0, -2.0, 3.0, 0.0, -1.0], [2.0, -1.0, -3.0, 1.0, -1.0], [0.5, -3.0, 1.0, 2.0, 1.0]])


def test_agreement_needs_every_sign() -> None:
    assert agreement(GRADIENTS).tolist() == [True, True, False, False, False]


def test_agr_sum_sums_what_agrees_and_zeroes_the_rest() -> None:
    assert agr_sum(GRADIENTS).tolist() == [3.5, -6.0, 0.0, 0.0, 0.0]


def test_agr_rand_draws_what_disagrees_at_the_scale_of_the_rest() -> None:
    other = torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]], [[1.0, 1.0]]])
    normal = torch.arange(1.0, 8.0)
    first, second = agr_rand([GRADIENTS, other], normal)
    scale = (3.5 + 6.0 + 3.0) / 3  # over both parameters
    np.testing.assert_allclose(first, [3.5, -6.0, 3 * scale, 4 * scale, 5 * scale], rtol=1e-6)
    np.testing.assert_allclose(second, [[3.0, 7 * scale]], rtol=1e-6)


def first_step(surgery: str, parts: int) -> tuple:
    method = toy_method("dgvgs", surgery=surgery, pseudo_domains=parts, momentum=0.0, lr=1.0)
    stage, random = method.stages()[0], Randomness(0, method.context.device)
    method.begin_epoch(stage, 0, random)
    rows, draws = {"labeled": torch.arange(12)}, random.draws(method.draws(stage))
    before = [p.detach().clone() for p in method.net.parameters()]
    expected = []
    for part in range(parts):
        size = 12 // parts
        pieces = slice(part * size, (part + 1) * size)
        loss = method.labeled_loss(rows["labeled"][pieces], {"augment": draws["augment"][pieces]}, noisemix=False)
        expected.append(torch.autograd.grad(loss / parts, list(method.net.parameters())))
    losses = method.step(stage, rows, draws)
    updates = [b - p.detach() for b, p in zip(before, method.net.parameters(), strict=True)]
    return updates, [torch.stack(found) for found in zip(*expected, strict=True)], losses, draws


def test_step_applies_the_agreed_gradient() -> None:
    updates, gradients, losses, _ = first_step("agr-sum", 3)
    assert torch.isfinite(losses["loss"])
    zeroed = 0
    for update, found in zip(updates, gradients, strict=True):
        agree = (found > 0).all(0) | (found < 0).all(0)
        torch.testing.assert_close(update, torch.where(agree, found.sum(0), torch.zeros(())), atol=1e-6, rtol=1e-4)
        zeroed += int((~agree).sum())
    assert zeroed > 0


def test_agr_rand_moves_the_disputed_components() -> None:
    updates, gradients, _, draws = first_step("agr-rand", 3)
    expected = agr_rand(gradients, draws["surgery"])
    for update, wanted in zip(updates, expected, strict=True):
        torch.testing.assert_close(update, wanted, atol=1e-6, rtol=1e-4)


def test_one_pseudo_domain_is_source_only_training() -> None:
    context = toy_context()
    surgery, erm = toy_method("dgvgs", context, pseudo_domains=1), toy_method("erm", context)
    train(surgery)
    train(erm)
    for a, b in zip(surgery.net.parameters(), erm.net.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("surgery", ["agr-sum", "agr-rand"])
def test_seeded_training_is_identical(surgery: str) -> None:
    one, two = toy_method("dgvgs", surgery=surgery), toy_method("dgvgs", surgery=surgery)
    history = train(one)
    train(two)
    assert all(torch.isfinite(record["loss"]) for record in history)
    assert same_weights(one, two)


def test_learns_the_toy() -> None:
    method = toy_method("dgvgs", toy_context(count=96), epochs=8, pretrain_epochs=8)
    train(method)
    assert accuracy(method) > 0.95
