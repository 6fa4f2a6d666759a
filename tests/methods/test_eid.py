from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from toy_context import same_weights, toy_context, toy_method, train

from proud import ops
from proud.methods.coteaching import clean_first, information_maximization, remember_count, smallest
from proud.methods.eid import phase_of
from proud.methods.mcd import discrepancy, update
from proud.methods.mixstyle import LAYERS, MixStyle, mix_style
from proud.nets.models import Net, build_net, model_spec
from proud.randomness import Randomness


def test_cleaning_keeps_exactly_the_smallest_losses() -> None:
    losses = torch.tensor([0.5, 0.1, 0.9, 0.1, 0.3])
    assert smallest(losses, torch.tensor(3)).tolist() == [False, True, False, True, True]
    assert not smallest(losses, torch.tensor(0)).any()
    assert smallest(losses, torch.tensor(5)).all()


def test_the_forget_rate_ramps_up() -> None:
    # 15 epochs: from 0 to 0.5 over ten of them
    kept = [remember_count(100, 0.5, epoch, 15) for epoch in range(15)]
    assert kept[0] == 100 and kept[9:] == [50] * 6
    assert kept[:10] == [int(100 * (1 - 0.5 * epoch / 9)) for epoch in range(10)]
    assert remember_count(100, 0.5, 0, 1) == 100


def test_clean_samples_are_those_both_networks_agree_on_most_surely() -> None:
    first = torch.tensor([[4.0, 0], [0, 1], [3, 0], [0, 2], [9, 0], [0, 6]])
    second = torch.tensor([[2.0, 0], [0, 1], [3, 0], [0, 5], [0, 9], [0, 6]])  # they disagree on the fifth
    order, labels, count = clean_first(first, second, 0.4)
    assert labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert count == 2  # 0.4 of five
    surprise = [
        sum(math.log1p(math.exp(-abs(float(a - b)))) for a, b in (f, s)) for f, s in zip(first, second, strict=True)
    ]
    agreed = [0, 1, 2, 3, 5]
    assert order.tolist() == [*sorted(agreed, key=lambda n: surprise[n]), 4]
    # a small loss does not make up for disagreeing: the second row's is the larger one
    first, second = torch.tensor([[0.1, 0], [0, -3.0]]), torch.tensor([[0, 0.1], [-1.0, -1.5]])
    order, _, count = clean_first(first, second, 1.0)
    assert order.tolist() == [1, 0] and count == 1


def test_information_maximization_by_hand() -> None:
    probs = np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])
    mean = probs.mean(0)
    expected = -(probs * np.log(probs)).sum(1).mean() + (mean * np.log(mean)).sum()
    assert information_maximization(torch.tensor(probs).log()).item() == pytest.approx(expected)
    certain = torch.tensor([[1e4, 0.0, 0.0]], requires_grad=True)
    information_maximization(certain).backward()
    assert certain.grad is not None and certain.grad.isfinite().all()


def test_discrepancy_by_hand() -> None:
    assert discrepancy(
        torch.tensor([[0.2, 0.8], [1.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    ).item() == pytest.approx(0.65)


def test_mix_style_blends_statistics_and_keeps_content() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, 5, 5, generator=generator) * 3 + 1
    x[2, 1] *= 0.01  # nearly silent: it grows twofold at most
    ratio, partner = torch.tensor([0.25, 1.0, 0.5]), torch.tensor([1, 2, 0])
    mixed = mix_style(x, ratio, partner, torch.tensor([True])).numpy()
    data = x.numpy()
    mean, std = data.mean((2, 3)), np.sqrt(data.var((2, 3)) + 1e-6)
    for n, (share, other) in enumerate(zip(ratio.tolist(), partner.tolist(), strict=True)):
        for c in range(2):
            new_mean = share * mean[n, c] + (1 - share) * mean[other, c]
            new_std = share * std[n, c] + (1 - share) * std[other, c]
            expected = (data[n, c] - mean[n, c]) * min(new_std / std[n, c], 2) + new_mean
            np.testing.assert_allclose(mixed[n, c], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(mix_style(x, ratio, partner, torch.tensor([False])), x)


@pytest.mark.parametrize("name", ["digits", "resnet18.tv_in1k"])
def test_mix_style_acts_only_while_it_has_a_draw(name: str) -> None:
    plain, mixed = (build_net(model_spec(name, 3, 64), seed=1).eval() for _ in range(2))
    style = MixStyle(mixed)
    count = 20  # more than the digits net takes at once where nothing mixes images
    x = torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(plain(x)[1], mixed(x)[1], rtol=1e-4, atol=1e-5)
        partners = torch.arange(count).flip(0).repeat(LAYERS, 1)
        style.draw = (torch.full((LAYERS, count), 0.5), partners, torch.ones(LAYERS) > 0)
        assert not torch.allclose(plain(x)[1], mixed(x)[1], rtol=1e-4, atol=1e-5)


def test_update_touches_its_own_parameters_only() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    first, second = torch.optim.SGD([a], lr=0.5), torch.optim.SGD([b], lr=0.5)
    update((a * b).sum(), first)
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [1.0, 1.0] and b.grad is None
    update((a * b).sum(), first, second)
    assert a.tolist() == [0.0, 0.0] and b.tolist() == [0.75, 0.75]


def test_adaptation_plays_the_minimax_game() -> None:
    """Step B raises the classifiers' disagreement on the target, step C lowers it by the features alone."""
    method = toy_method("eid", momentum=0.0, lr=0.05)
    adapter = method.adapters[0]
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))

    def heads() -> list:
        return [p.detach().clone() for module in (adapter.net.head, adapter.second) for p in module.parameters()]

    before = adapter.disagreement(adapter.features(x)).item()
    frozen = adapter.features(x).detach()
    update(-adapter.disagreement(frozen), adapter.heads_optimizer)
    raised = adapter.disagreement(adapter.features(x)).item()
    assert raised > before
    kept = heads()
    update(adapter.disagreement(adapter.features(x)), adapter.features_optimizer)
    assert adapter.disagreement(adapter.features(x)).item() < raised
    assert all(torch.equal(a, b) for a, b in zip(kept, heads(), strict=True))


def test_an_adaptation_step_is_that_of_the_paper() -> None:
    """A, B and four times C, written out with plain gradients on copies of the networks."""
    method = toy_method("eid", momentum=0.0, lr=0.004, weight_decay=0.0)
    adapter, generator = method.adapters[0], torch.Generator().manual_seed(0)
    x, x_target = (torch.randn(6, 3, 16, 16, generator=generator) for _ in range(2))
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    features, first, second = (
        copy.deepcopy(module) for module in (adapter.net.backbone, adapter.net.head, adapter.second)
    )

    def source() -> torch.Tensor:
        z = features(x)
        return sum(torch.nn.functional.cross_entropy(head(z), labels) for head in (first, second))

    def apart() -> torch.Tensor:
        z = features(x_target)
        return (first(z).softmax(1) - second(z).softmax(1)).abs().mean()

    def descend(loss: torch.Tensor, *modules: torch.nn.Module) -> None:
        parameters = [p for module in modules for p in module.parameters()]
        with torch.no_grad():
            for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p -= 0.004 * gradient

    learned = source().item()
    descend(source(), features, first, second)
    descend(source() - apart(), first, second)
    for _ in range(4):
        last = apart().item()
        descend(apart(), features)
    found = adapter.step(x, lambda logits: torch.nn.functional.cross_entropy(logits, labels), x_target, 4)
    assert found["loss"].item() == pytest.approx(learned, rel=1e-5)
    assert found["discrepancy"].item() == pytest.approx(last, rel=1e-4)
    for mine, theirs in ((adapter.net.backbone, features), (adapter.net.head, first), (adapter.second, second)):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_each_domain_is_labeled_by_its_own_model_and_cleaned_by_both_networks() -> None:
    method = toy_method("eid", epochs=3, pretrain_epochs=6)
    train(method, until=("adapt-2-2", 0))
    context, kept = method.context, method.kept

    def logits(net: Net, t: int) -> torch.Tensor:
        rows = torch.arange(context.unlabeled.sizes[t]) + context.unlabeled.starts[t]
        x = ops.evaluation_view(context.unlabeled.take(rows), context.size, context.mean, context.std)
        with torch.no_grad():
            return net(x)[1]

    for t in range(2):
        rows = context.unlabeled.rows_of(t)
        order, labels, count = clean_first(logits(method.net, t), logits(method.second, t), 0.4)
        assert kept.clean_count[t] == count and labels[order[:count]].unique().numel() > 1
        assert torch.equal(kept.clean_rows[rows][:count], rows.start + order[:count])
        assert torch.equal(kept.clean_labels[rows][:count], labels[order[:count]])
    method.begin_epoch(method.stage_list()[-1], 0, Randomness(0, context.device))
    for t, adapter in enumerate(method.adapters):
        assert torch.equal(kept.labels[context.unlabeled.rows_of(t)], logits(adapter.net, t).argmax(1))


@pytest.mark.parametrize("domains", [1, 2, 5])
def test_rounds_share_the_main_phase(domains: int) -> None:
    context = toy_context(domains)
    method = toy_method("eid", context, epochs=19, pretrain_epochs=2)
    pretraining, *stages = method.stage_list()
    assert (pretraining.name, pretraining.epochs, pretraining.pools) == ("pretrain", 2, {"labeled": 48})
    assert len({stage.name for stage in stages}) == len(stages) == 3 * (domains + 1)
    rounds = [[s for s in stages if phase_of(s).round == number] for number in (1, 2, 3)]
    assert sum(round_[0].epochs + round_[-1].epochs for round_ in rounds) == 19
    for round_ in rounds:
        assert [phase_of(s).domain for s in round_] == [*range(domains), None]
        assert [s.pools["domain"] for s in round_[:-1]] == context.unlabeled.sizes


def test_all_networks_start_from_source_only_training() -> None:
    """The first network's pretraining is that of `erm`; a second classifier learns on its features."""
    method, erm = toy_method("eid", pretrain_epochs=3), toy_method("erm", pretrain_epochs=3)
    history = train(method, until=("pretrain", 2))
    train(erm, until=("pretrain", 2))
    for a, b in zip(method.net.parameters(), erm.net.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert history[-1]["second"] < history[0]["second"]
    assert not method.describe().pseudo_labels
    stages = method.stage_list()
    for stage in stages[1:3]:
        method.begin_epoch(stage, 0, Randomness(0, method.context.device))
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    features, logits = method.net(x)
    for adapter in method.adapters:
        assert torch.equal(adapter.net(x)[1], logits)
        assert torch.equal(adapter.second(features), method.second.head(features))
    assert torch.equal(method.second(x)[0], features)
    assert not torch.allclose(method.second(x)[1], logits)


def test_the_intermediate_domain_is_the_labeled_one_and_the_clean_samples() -> None:
    method = toy_method("eid")
    context, kept = method.context, method.kept
    start = context.unlabeled.starts[1]
    kept.clean_rows[start : start + 2] = torch.tensor([start + 7, start + 3])
    kept.clean_labels[start : start + 2] = torch.tensor([2, 1])
    kept.clean_count[1] = 2
    uniform = (torch.arange(50) + 0.5) / 50  # every one of 48 + 2 once
    images, labels = method.intermediate(1, uniform)
    assert torch.equal(images[:48], context.labeled.take(torch.arange(48)))
    assert torch.equal(images[48:], context.unlabeled.take(torch.tensor([start + 7, start + 3])))
    assert torch.equal(labels, torch.cat([context.labels, torch.tensor([2, 1])]))
    assert torch.equal(method.intermediate(0, uniform)[1], context.labels[(uniform * 48).long()])


def test_each_network_learns_what_the_other_finds_easy() -> None:
    method = toy_method("eid", epochs=3, pretrain_epochs=0, mixstyle_p=0.0)
    stage = method.stage_list()[-1]
    random = Randomness(0, method.context.device)
    method.begin_epoch(stage, 0, random)
    method.remembered.fill_(5)
    rows, draws = {"labeled": torch.arange(12), "unlabeled": torch.arange(20, 32)}, random.draws(method.draws(stage))
    found = method.losses(stage, rows, draws)
    context = method.context
    views = [
        method.views.simple(pool.take(rows[name]), draws["augment"][i])
        for i, (name, pool) in enumerate([("labeled", context.labeled), ("unlabeled", context.unlabeled)])
    ]
    labels = method.kept.labels[rows["unlabeled"]]
    logits = [net(views[1])[1] for net in (method.net, method.second)]
    losses = [torch.nn.functional.cross_entropy(l, labels, reduction="none").detach().numpy() for l in logits]
    expected = losses[0][np.argsort(losses[1])[:5]].mean() + losses[1][np.argsort(losses[0])[:5]].mean()
    assert found["pseudo"].item() == pytest.approx(expected, rel=1e-5)
    true = sum(
        torch.nn.functional.cross_entropy(n(views[0])[1], context.labels[:12]) for n in (method.net, method.second)
    )
    torch.testing.assert_close(found["true"], true)
    infomax = sum(information_maximization(predicted) for predicted in logits)
    torch.testing.assert_close(found["loss"], true + float(expected) + infomax)


def test_later_rounds_learn_more_slowly() -> None:
    method = toy_method("eid", epochs=3, pretrain_epochs=0, lr=0.09)
    rates = []
    for stage in method.stage_list():
        method.set_learning_rate(stage, 0)
        rates.append(method.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates[::3], [0.09, 0.09, 0.0225, 0.01])  # pretraining, and the three `teach`


def test_resumes_identically_in_every_kind_of_stage() -> None:
    """One run is trained without a stop, the other is moved to a new object after each of these epochs."""
    whole, part = toy_method("eid", toy_context(count=24), epochs=5), toy_method("eid", toy_context(count=24), epochs=5)
    history = train(whole)
    assert all(torch.isfinite(value) for record in history for name, value in record.items() if name != "stage")
    before = None
    for at in (("pretrain", 0), ("adapt-1-1", 0), ("adapt-2-1", 0), ("teach-2", 0), ("adapt-3-2", 0), None):
        train(part, after=before, until=at)
        resumed = toy_method("eid", toy_context(count=24), epochs=5)
        resumed.load_state_dict({name: value.clone() for name, value in part.state_dict().items()})
        part, before = resumed, at
    assert same_weights(whole, part)
    labels = part.describe().pseudo_labels
    for name, found in whole.describe().pseudo_labels.items():
        assert torch.equal(found.labels, labels[name].labels)
