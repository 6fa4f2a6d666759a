from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from ssl_toy import epoch, main_batch, make, same, toy_context, train

from proud.methods.mean_teacher import MeanTeacher, consistency
from proud.randomness import Randomness

AVERAGING = ("mean-teacher", "mixmatch", "fixmatch")


# ---- the moving average, which three methods share


@pytest.mark.parametrize("name", AVERAGING)
def test_the_average_follows_the_recurrence(name: str) -> None:
    method = make(name, ema_decay=0.6, ema_decay_rampup=0.6)
    pretrain, main = method.stage_list()
    epoch(method, pretrain, 0)
    assert same(method.average.net.state_dict(), method.net.state_dict())  # before the main stage it is the network
    expected = {key: value.detach().double().numpy().copy() for key, value in method.net.named_parameters()}
    stage, rows, draws = main_batch(method)
    assert stage == main
    for step in range(5):
        method.step(stage, rows, draws, method.losses)
        decay = min(1 - 1 / (step + 1), 0.6)  # 0, 1/2, then 0.6
        for key, value in method.net.state_dict().items():
            if key in expected:
                expected[key] = decay * expected[key] + (1 - decay) * value.double().numpy()
    for key, value in method.average.net.named_parameters():
        np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-6, err_msg=key)
    assert method.network() is method.average.net


def test_the_decay_counts_steps_across_epochs() -> None:
    method = make("fixmatch", ema_decay=0.999)
    main = method.stage_list()[1]
    epoch(method, main, 0)
    epoch(method, main, 1, steps=1)
    assert int(method.state_dict()["average.clock.steps"]) == main.steps + 1
    before, net = copy.deepcopy(method.average.net), method.net
    epoch(method, main, 1, steps=1)  # the epoch begins again: step number `main.steps` of the stage
    decay = 1 - 1 / (main.steps + 1)
    for old, new, current in zip(before.parameters(), method.average.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(new, decay * old + (1 - decay) * current)


def test_the_average_gets_no_gradient_and_no_optimizer() -> None:
    method = make("mean-teacher")
    train(method)
    assert all(not p.requires_grad and p.grad is None for p in method.average.net.parameters())
    trained = {id(p) for group in method.optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in method.net.parameters()}


@pytest.mark.parametrize("name", AVERAGING)
def test_batch_statistics_of_the_average(name: str) -> None:
    """Copied from the network; but a teacher, which runs forward itself, has its own in the main stage."""
    method = make(name, toy_context(labeled=12, unlabeled=(12,), model="test_resnet"), epochs=1)
    pretrain, main = method.stage_list()
    epoch(method, pretrain, 0)
    assert same(method.average.net.state_dict(), method.net.state_dict())
    epoch(method, main, 0)
    mine, net = dict(method.average.net.named_buffers()), dict(method.net.named_buffers())
    means = [key for key in net if key.endswith("running_mean")]
    equal = all(torch.equal(mine[key], net[key]) for key in means)
    assert means and equal == (name != "mean-teacher")
    losses = epoch(method, main, 0)
    assert all(torch.isfinite(loss["loss"]) for loss in losses)


# ---- Mean Teacher


def test_the_decay_is_lower_while_the_weight_rises() -> None:
    method = make("mean-teacher", rampup_epochs=3)
    assert [method.decay_limit(method.stage_list()[-1], number) for number in range(5)] == [
        0.99,
        0.99,
        0.99,
        0.999,
        0.999,
    ]


def test_consistency_is_the_mean_squared_difference_of_probabilities() -> None:
    g = torch.Generator().manual_seed(0)
    student, teacher = (
        torch.randn(2, 5, 4, generator=g).requires_grad_(),
        torch.randn(5, 4, generator=g).requires_grad_(),
    )
    total = 0.0
    for logits in student.detach().double().numpy():
        for s, t in zip(logits, teacher.detach().double().numpy(), strict=True):
            p, q = np.exp(s) / np.exp(s).sum(), np.exp(t) / np.exp(t).sum()
            total += sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) / 4 / 10
    loss = consistency(student, teacher)
    loss.backward()
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert student.grad is not None and teacher.grad is None


def test_the_weight_rises_as_in_the_paper() -> None:
    method = make("mean-teacher", consistency=10.0, rampup_epochs=2)
    assert isinstance(method, MeanTeacher)
    main, seen = method.stage_list()[1], []
    method.begin_epoch(main, 0, Randomness(0, method.context.device))
    for step in range(3 * main.steps):
        method.average.steps.fill_(step)
        seen.append(method.weight().item())
    expected = [10 * math.exp(-5 * (1 - min(step / (2 * main.steps), 1)) ** 2) for step in range(3 * main.steps)]
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    assert expected[0] == pytest.approx(10 * math.exp(-5)) and expected[-1] == 10


@pytest.mark.parametrize("noisemix", [False, True])
def test_the_loss_of_a_step(noisemix: bool) -> None:
    """Student and teacher see different views of labeled and unlabeled images; both count for consistency."""
    method = make("mean-teacher", noisemix=noisemix)
    assert isinstance(method, MeanTeacher)
    epoch(method, method.stage_list()[1], 0)  # so that teacher and student differ
    context, (stage, rows, draws) = method.context, main_batch(method)
    method.average.steps.fill_(3)
    found = method.losses(stage, rows, draws)
    images = torch.cat([context.labeled.take(rows["labeled"]), context.unlabeled.take(rows["unlabeled"])])
    x = method.views.simple(images, draws["augment"][0].flatten(0, 1))
    with torch.no_grad():
        views = [x, method.views.noise_copies(x, draws)] if noisemix else [x]
        student = [method.net(view)[1] for view in views]
        teacher = method.average.net(method.views.simple(images, draws["augment"][1].flatten(0, 1)))[1]
    labels = context.labels[rows["labeled"]]
    ce = torch.stack([torch.nn.functional.cross_entropy(logits[: len(labels)], labels) for logits in student]).mean()
    mse = torch.stack(
        [torch.nn.functional.mse_loss(logits.softmax(1), teacher.softmax(1)) for logits in student]
    ).mean()
    weight = method.config.consistency * math.exp(-5 * (1 - 3 / (5 * stage.steps)) ** 2)
    torch.testing.assert_close(found["ce"], ce)
    torch.testing.assert_close(found["consistency"], mse)
    torch.testing.assert_close(found["loss"], ce + weight * mse)
