from __future__ import annotations

import torch
from toy_context import toy_context, toy_method, train

from proud.methods.dgvgs import agr_sum
from proud.randomness import Randomness

GRADIENTS = torch.tensor([[1.0, -2.0, 3.0, 0.0, -1.0], [2.0, -1.0, -3.0, 1.0, -1.0], [0.5, -3.0, 1.0, 2.0, 1.0]])


def test_agr_sum_sums_where_all_signs_agree_and_is_zero_elsewhere() -> None:
    assert agr_sum(GRADIENTS).tolist() == [3.5, -6.0, 0.0, 0.0, 0.0]


def test_a_step_applies_the_agreed_gradient() -> None:
    parts = 3
    method = toy_method("dgvgs", pseudo_domains=parts, momentum=0.0, lr=1.0)
    stage, random = method.stage_list()[0], Randomness(0, method.context.device)
    method.begin_epoch(stage, 0, random)
    rows, draws = {"labeled": torch.arange(12)}, random.draws(method.draws(stage))
    before = [p.detach().clone() for p in method.net.parameters()]
    gradients = []
    for part in range(parts):
        size = 12 // parts
        pieces = slice(part * size, (part + 1) * size)
        loss = method.labeled_loss(rows["labeled"][pieces], {"augment": draws["augment"][pieces]}, noisemix=False)
        gradients.append(torch.autograd.grad(loss / parts, list(method.net.parameters())))
    losses = method.step(stage, rows, draws, method.losses)
    assert torch.isfinite(losses["loss"])
    zeroed = 0
    for old, new, *found in zip(before, method.net.parameters(), *gradients, strict=True):
        update, found = old - new.detach(), torch.stack(found)
        agree = (found > 0).all(0) | (found < 0).all(0)
        torch.testing.assert_close(update, torch.where(agree, found.sum(0), torch.zeros(())), atol=1e-6, rtol=1e-4)
        zeroed += int((~agree).sum())
    assert zeroed > 0


def test_one_pseudo_domain_is_source_only_training() -> None:
    context = toy_context()
    surgery, erm = toy_method("dgvgs", context, pseudo_domains=1), toy_method("erm", context)
    train(surgery)
    train(erm)
    for a, b in zip(surgery.net.parameters(), erm.net.parameters(), strict=True):
        torch.testing.assert_close(a, b)
