"""ProUD's own steps against the slow oracle, and what proud-plus changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import oracle
from proud import ops
from proud.methods import METHODS, method_class, method_config
from proud.methods.context import make_context
from proud.methods.passes import Passes
from proud.methods.proud import ProUD
from proud.nets.batch_norm import evaluating
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.loop import mixing_signals
from proud.training.snapshot import pair_tensors
from toy import SIDE, toy_task

TASK = toy_task()


def build(name: str, model: str = "digits", **settings: Any) -> tuple[Any, Randomness]:
    """A method at the start of its main phase, on the toy task."""
    spec = model_spec(model, len(TASK.training.classes), SIDE)
    context = make_context(TASK.training, spec, torch.device("cpu"), weights="none", seed=1, precision="fp32")
    method = method_class(name)(method_config(name, batch_size=8, flip=False, **settings), context)
    random = Randomness(1, context.device)
    stage = method.stage_list()[-1]
    random.begin_epoch(stage.name, 0)
    method.begin_epoch(stage, 0, random)
    return method, random


def unit_features(method: Any, random: Randomness, domain: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All views of the labeled domain (0) or of an unlabeled one, chunk by chunk: the reference for what training
    streams or keeps. The first images fill up the last chunk where batch statistics are computed."""
    context, passes = method.context, method.passes
    pool, start, purpose = context.labeled, 0, "dapp-labeled"
    if domain:
        pool, start, purpose = context.unlabeled, context.unlabeled.starts[domain - 1], f"dapp-{domain - 1}"
    order, most = rows_of(method, random, domain), passes.chunk_size
    random.rewind(purpose)
    found = []
    for rows in order.split(most):
        filled = torch.cat([rows, order[: most - len(rows)]]) if passes.batch_statistics else rows
        uniform = random.uniform(purpose, method.config.views, most, 9)[:, : len(filled)]
        images = pool.take(start + filled).repeat(method.config.views, 1, 1, 1)
        with torch.no_grad(), evaluating(passes.net, passes.batch_statistics):
            features, logits = passes.net(method.views.simple(images, uniform.flatten(0, 1)))
        unit = torch.nn.functional.normalize(features, dim=1)
        found.append([part.unflatten(0, uniform.shape[:2])[:, : len(rows)] for part in (unit, logits.softmax(1))])
    features, probs = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    return features, probs


def rows_of(method: Any, random: Randomness, domain: int) -> torch.Tensor:
    """A domain's images in the order in which they pass through the network."""
    return torch.cat((method.passes.unlabeled(domain - 1, random) if domain else method.passes.labeled(random)).rows)


def dapp(features: torch.Tensor, probs: torch.Tensor, tau: float) -> ops.PseudoLabels:
    return ops.dapp(lambda: [(features, probs)], tau)


@pytest.mark.parametrize("keep", [True, False])
def test_pseudo_labels_are_those_of_the_reference(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not keep:
        monkeypatch.setattr("proud.methods.passes.KEPT_BYTES", 0)
    method, random = build("proud")
    context, about = method.context, method.describe()
    labeled, _ = unit_features(method, random, 0)
    merged = [ops.hard_prototypes(labeled.flatten(0, 1), context.labels.repeat(len(labeled)), context.classes)]
    torch.testing.assert_close(about.prototypes.labeled, merged[0][0])
    for t, name in enumerate(context.unlabeled_names):
        found = about.pseudo_labels[name]
        wanted = dapp(*unit_features(method, random, t + 1), method.config.tau_uncertainty)
        assert torch.equal(found.labels, wanted.labels)
        torch.testing.assert_close(found.uncertainty, wanted.uncertainty)
        torch.testing.assert_close(found.prototypes, wanted.prototypes)
        merged.append((wanted.prototypes, wanted.present))
    torch.testing.assert_close(about.prototypes.merged, ops.merge_prototypes(merged), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("udmix", [True, False])
@pytest.mark.parametrize("across", [True, False])
def test_domains_are_mixed_as_in_equations_6_and_7(udmix: bool, across: bool) -> None:
    method, random = build("proud", udmix=udmix)
    stage = method.stage_list()[-1]
    draws = random.draws(method.draws(stage)) | {"pairing": torch.tensor([0.2 if across else 0.9])}
    rows = torch.arange(8)
    method.uncertainty[rows] = torch.linspace(0, 2, 8)  # on both sides of the threshold
    originals, copies = method.matched_views(rows, method.labels[rows], draws)
    mixed = method.domain_mix(rows, originals, copies, draws)
    x, n, u = originals.double().numpy(), copies.double().numpy(), draws["ratio"].double().numpy()
    pairs = [(x[:8], n[8:] if across else x[8:]), (n[:8], x[8:] if across else n[8:])]
    for half, (labeled, unlabeled) in enumerate(pairs):
        for i in range(8):
            certain = 1 / (1 + np.exp(float(method.uncertainty[i]) / 0.5))
            ratio = u[half, i] if not udmix or certain > 0.35 else certain
            wanted = ratio * unlabeled[i] + (1 - ratio) * labeled[i]
            np.testing.assert_allclose(mixed[8 * half + i].numpy(), wanted, atol=1e-5)


def test_partners_have_the_pseudo_label(monkeypatch: pytest.MonkeyPatch) -> None:
    method, random = build("proud")
    taken: list[torch.Tensor] = []
    take = method.context.labeled.take
    monkeypatch.setattr(method.context.labeled, "take", lambda rows: taken.append(rows) or take(rows))
    rows = torch.arange(8)
    method.matched_views(rows, method.labels[rows], random.draws(method.draws(method.stage_list()[-1])))
    assert torch.equal(method.context.labels[taken[0]], method.labels[rows])


def test_the_loss_is_cross_entropy_plus_alpha_times_merging() -> None:
    method, random = build("proud", alpha=0.7)
    stage = method.stage_list()[-1]
    losses = method.losses(stage, {"unlabeled": torch.arange(8)}, random.draws(method.draws(stage)))
    torch.testing.assert_close(losses["loss"], losses["ce"] + 0.7 * losses["pml"])


def test_the_merging_loss_is_that_of_labeled_and_unlabeled_images_before_mixing() -> None:
    method, random = build("proud")
    stage, rows = method.stage_list()[-1], torch.arange(8)
    draws, labels = random.draws(method.draws(stage)), method.labels[rows]
    originals, _ = method.matched_views(rows, labels, draws)
    wanted = ops.prototype_merging_loss(method.net.features(originals), labels.repeat(2), method.merged)
    torch.testing.assert_close(method.losses(stage, {"unlabeled": rows}, draws)["pml"], wanted)


# ---- proud-plus


@pytest.mark.parametrize("classifier", [0.0, 0.5])
def test_plus_centres_every_domain_and_asks_the_classifier_too(classifier: float) -> None:
    method, random = build("proud-plus", classifier=classifier)
    for t in range(len(method.context.unlabeled_names)):
        features, probs = unit_features(method, random, t + 1)
        rows = features.flatten(0, 1).double().numpy()
        mean = rows.mean(0)
        np.testing.assert_allclose(method.centers[1 + t].numpy(), mean, atol=1e-6)
        unit = torch.nn.functional.normalize(torch.from_numpy(rows - mean).view(features.shape), dim=-1)
        tau = method.config.tau_uncertainty
        first = dapp(unit, probs.double(), tau)
        distances = np.stack([oracle.cosine_distance(view.numpy(), first.prototypes.numpy()) for view in unit])
        opinion = classified(method, t)
        labels, uncertainty, _ = oracle.consensus(distances, opinion, tau, first.present.numpy(), classifier)
        labels = labels if classifier else first.labels.numpy()  # prototypes alone vote as in the paper
        found = method.describe().pseudo_labels[method.context.unlabeled_names[t]]
        assert (found.labels.numpy() == labels).mean() > 0.97  # ties may fall either way in float32
        np.testing.assert_allclose(found.uncertainty.numpy(), uncertainty, atol=2e-3)


def classified(method: Any, t: int) -> np.ndarray:
    """The classifier's probabilities of an unlabeled domain, with running statistics."""
    pool = method.context.unlabeled
    images = pool.take(torch.arange(pool.starts[t], pool.starts[t] + pool.sizes[t]))
    net = method.network()
    training = net.training
    with torch.no_grad():
        _, logits = net.eval()(method.views.evaluation(images))
    net.train(training)
    return logits.softmax(1).double().numpy()


def test_plus_asks_the_classifier_once_its_statistics_are_not_those_of_the_labeled_domain_alone() -> None:
    for network, heard in (("digits", [True, True]), ("test_resnet", [False, True])):
        method, random = build("proud-plus", network)
        asked: list[str] = []
        ask = method.passes.classified
        method.passes.classified = lambda domain, ask=ask, asked=asked: asked.append("") or ask(domain)
        for epoch, wanted in enumerate(heard):
            random.begin_epoch("main", epoch)
            method.begin_epoch(method.stage_list()[1], epoch, random)
            assert len(asked) == wanted * len(method.context.unlabeled_names)
            asked.clear()


def test_plus_weights_the_merging_loss_by_certainty() -> None:
    method, _ = build("proud-plus", center=False, labeled_weight=0.5, pml_tau=0.2, class_mix="labeled")
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(8, method.net.num_features, generator=generator).abs()
    labels, rows = torch.tensor([0, 1, 2, 3]), torch.arange(4)
    method.uncertainty[rows] = torch.tensor([0.0, 0.1, 1.0, 3.0])
    terms = method.unmixed_terms(features, labels, rows)
    distances = oracle.cosine_distance(features.double().numpy(), method.merged.double().numpy()) / 0.2
    weights = [1.0] * 4 + [2 / (1 + np.exp(e / 0.5)) for e in (0.0, 0.1, 1.0, 3.0)]
    losses = [float(distances[i, labels[i % 4]] + np.log(np.exp(-distances[i]).sum())) for i in range(8)]
    assert float(terms["pml"][1]) == pytest.approx(np.average(losses, weights=weights), rel=1e-4)
    assert terms["labeled"][0] == 0.5
    logits = method.net.head(features[:4]).detach()
    assert terms["labeled"][1].item() == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5
    )


def test_plus_with_an_even_class_mix_compensates_for_frequent_classes() -> None:
    method, _ = build("proud-plus", class_mix="even")
    labels, classes = method.context.labels, method.context.classes
    logits = torch.randn(5, classes)
    found = torch.cat([found.labels for found in method.describe().pseudo_labels.values()])
    torch.testing.assert_close(method.adjusted(logits), logits + ops.log_class_mix(found, classes))
    assert torch.equal(method.prior, torch.full_like(method.prior, 1 / classes))
    fresh = method_class("proud-plus")(method.config, method.context)
    torch.testing.assert_close(fresh.adjusted(logits), logits + ops.log_class_mix(labels, classes))
    plain, _ = build("proud-plus", class_mix="labeled")
    assert plain.adjusted(logits) is logits
    torch.testing.assert_close(plain.prior, torch.bincount(labels, minlength=classes) / len(labels))


def test_plus_every_cross_entropy_sees_the_class_mix() -> None:
    method, random = build("proud-plus", class_mix="even")
    for stage in method.stage_list():
        rows = {name: torch.arange(8) for name in stage.pools}
        draws = random.draws(method.draws(stage))
        before = method.losses(stage, rows, draws)
        method.log_prior.copy_(method.log_prior.flip(0) * 3)
        after = method.losses(stage, rows, draws)
        for name in before.keys() & {"ce", "labeled", "loss"}:
            assert before[name].item() != after[name].item(), name


def test_plus_without_merging_still_learns_unmixed_labeled_images() -> None:
    method, random = build("proud-plus", pml=False, labeled_weight=2.0, certain_weight=0.0)
    stage = method.stage_list()[-1]
    losses = method.losses(stage, {"unlabeled": torch.arange(8)}, random.draws(method.draws(stage)))
    torch.testing.assert_close(losses["loss"], losses["ce"] + 2 * losses["labeled"])
    assert "pml" not in losses
    method, random = build("proud-plus", pml=False, labeled_weight=0.0, certain_weight=0.0)
    losses = method.losses(stage, {"unlabeled": torch.arange(8)}, random.draws(method.draws(stage)))
    assert losses.keys() == {"loss", "ce"}


def test_records_have_the_ratio_that_is_used() -> None:
    class Fixed(ProUD):
        def ratio(self, uncertainty: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
            return torch.full_like(uniform, 0.3)

    method, _ = build("proud")
    uncertainty = torch.tensor([0.0, 0.3094, 0.3096, 2.0])  # on both sides of λ* = 0.35
    expected = [0.5, 0.5, 1 / (1 + np.exp(0.6192)), 1 / (1 + np.exp(4))]
    found = mixing_signals(method.describe(), uncertainty)
    assert found["lambda"].item() == pytest.approx(np.mean(expected))
    assert found["certain"].item() == 0.5
    method.__class__ = Fixed
    assert mixing_signals(method.describe(), uncertainty)["lambda"].item() == pytest.approx(0.3)


def test_pairs_are_shown_as_they_are_mixed() -> None:
    for udmix in (True, False):
        method, random = build("proud", udmix=udmix)
        about = method.describe()
        doubtful = {
            name: replace(found, uncertainty=torch.full_like(found.uncertainty, 2.0))
            for name, found in about.pseudo_labels.items()
        }
        shown = pair_tensors(method, replace(about, pseudo_labels=doubtful), TASK, random)["method/pairs/ratio"]
        if udmix:
            assert shown.tolist() == pytest.approx([1 / (1 + np.exp(4))] * len(shown))
        else:
            assert len(shown.unique()) == len(shown) > 1


def test_plus_pseudo_labels_with_the_averaged_network() -> None:
    method, _ = build("proud-plus")
    assert method.passes.net is method.network() is method.average.net
    main = method.stage_list()[-1]
    assert method.average.most_decay.item() == pytest.approx(1 - 1 / (10 * main.steps)) and main.epochs >= 40
    short, _ = build("proud-plus", epochs=8)
    assert short.average.most_decay.item() == pytest.approx(1 - 1 / (2 * main.steps))


def test_plus_averages_batch_statistics_like_weights() -> None:
    method, random = build("proud-plus", "test_resnet", epochs=8)
    stage = method.stage_list()[-1]
    nets = (method.net, method.average.net)
    layer, mean = (next(m for m in net.modules() if hasattr(m, "running_mean")) for net in nets)
    expected = layer.running_mean.double()
    rows = {"unlabeled": torch.arange(8)}
    for step in range(4):
        method.step(stage, rows, random.draws(method.draws(stage)), method.losses)
        decay = min(1 - 1 / (step + 1), method.average.most_decay.item())
        expected = decay * expected + (1 - decay) * layer.running_mean.double()
    torch.testing.assert_close(mean.running_mean.double(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(mean.running_mean, layer.running_mean, rtol=1e-3)


def test_plus_warps_what_it_learns_from_but_not_what_it_labels() -> None:
    method, _ = build("proud-plus", warp=1.0, outline=0.0)
    images = method.context.unlabeled.take(torch.arange(8))
    uniform = torch.rand(8, method.views.uniforms, generator=torch.Generator().manual_seed(0))
    plain, warped = method.views.simple(images, uniform[:, :9]), method.views.training(images, uniform)
    assert not torch.allclose(plain, warped)
    torch.testing.assert_close(warped, ops.random_warp(plain, uniform[:, 9:15], 1.0))
    uniform[:, 9:15] = 0.5  # no rotation, zoom, shear or shift
    torch.testing.assert_close(method.views.training(images, uniform), plain, atol=1e-5, rtol=1e-5)


def test_plus_outlines_a_share_of_what_it_learns_from_but_nothing_of_what_it_labels() -> None:
    method, _ = build("proud-plus", warp=0.0, outline=0.5)
    images, context = method.context.unlabeled.take(torch.arange(8)), method.context
    uniform = torch.rand(8, method.views.uniforms, generator=torch.Generator().manual_seed(0))
    plain, seen = method.views.simple(images, uniform[:, :9]), method.views.training(images, uniform)
    drawn = uniform[:, -2] < 0.5
    assert 0 < drawn.sum() < 8 and torch.equal(seen[~drawn], plain[~drawn])
    expected = ops.random_outline(plain, uniform[:, -2:], 0.5, context.mean, context.std)
    torch.testing.assert_close(seen, expected)
    assert not torch.allclose(seen[drawn], plain[drawn])


def test_loaded_optimizer_state_has_the_memory_layout_of_its_parameters() -> None:
    """Fused steps on CUDA, where networks are channels-last, refuse anything else."""

    def channels_last() -> Any:
        method, random = build("proud")
        method.net.to(memory_format=torch.channels_last)
        return method, random

    method, random = channels_last()
    stage = method.stage_list()[-1]
    method.step(stage, {"unlabeled": torch.arange(8)}, random.draws(method.draws(stage)), method.losses)
    fresh, _ = channels_last()
    fresh.load_state_dict({name: value.contiguous() for name, value in method.state_dict().items()})
    for parameter, fields in fresh.optimizer.state.items():
        assert fields["momentum_buffer"].stride() == parameter.stride()
    for name, value in method.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


@pytest.mark.parametrize("name", METHODS)
def test_momentum_is_there_before_the_first_step(name: str) -> None:
    """Fused steps on CUDA refuse weights of which only some have it, as those that join in a later stage would."""
    method, _ = build(name)
    for optimizer in method.optimizers().values():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                momentum = optimizer.state[parameter].get("momentum_buffer")
                assert not group["momentum"] or (momentum is not None and momentum.stride() == parameter.stride())


def test_a_domain_s_own_statistics_depend_neither_on_the_device_nor_on_the_order_of_images() -> None:
    method, random = build("proud", "test_resnet")
    assert method.passes.batch_statistics and method.passes.chunk_size == 32
    size = method.context.unlabeled.sizes[0]
    pieces = method.passes.unlabeled(0, random).rows
    assert len(pieces) > 1 and torch.cat(pieces).sort().values.equal(torch.arange(size))
    assert all(rows.min() < size / 4 and rows.max() > 3 * size / 4 for rows in pieces[:-1])
    elsewhere = replace(method.context, device=torch.device("meta"))
    assert Passes(method.net, elsewhere, method.views, 3, 8).chunk_size == 32
    assert build("proud", "digits")[0].passes.chunk_size == 256  # no batch norm: as many as fit


def test_pseudo_labels_stand_in_the_rows_of_their_images() -> None:
    method, random = build("proud", "test_resnet")
    for t, name in enumerate(method.context.unlabeled_names):
        start, size = method.context.unlabeled.starts[t], method.context.unlabeled.sizes[t]
        wanted = dapp(*unit_features(method, random, t + 1), method.config.tau_uncertainty)
        found, order = method.describe().pseudo_labels[name], rows_of(method, random, t + 1)
        assert not order.equal(torch.arange(size))
        assert torch.equal(found.labels[order], wanted.labels)
        assert torch.equal(method.labels[start : start + size][order], wanted.labels)
        torch.testing.assert_close(found.uncertainty[order], wanted.uncertainty)


@pytest.mark.parametrize(
    ("class_mix", "counts", "warnings"), [("even", (9, 1), 1), ("even", (7, 3), 0), ("labeled", (9, 1), 0)]
)
def test_plus_warns_that_it_assumes_a_uniform_prior(class_mix: str, counts: tuple[int, int], warnings: int) -> None:
    method, _ = build("proud-plus", class_mix=class_mix)
    labels = torch.arange(2).repeat_interleave(torch.tensor(counts))
    method.context = replace(method.context, classes=2, labels=labels)
    method.prior = ops.expected_mix(labels, 2, class_mix == "even")
    found = method.describe().warnings
    assert len(found) == warnings
    assert all("90 %" in text and "--class-mix labeled" in text for text in found)


def test_certain_unlabeled_images_are_learned_as_they_are() -> None:
    method, random = build("proud-plus", certain_weight=0.7)
    stage, rows = method.stage_list()[-1], torch.arange(8)
    method.uncertainty[rows] = torch.linspace(0, 2, 8)
    draws, labels = random.draws(method.draws(stage)), method.labels[rows]
    originals, _ = method.matched_views(rows, labels, draws)
    images = method.unmixed(originals, rows, draws)
    assert torch.equal(images[:8], originals[:8]) and not torch.equal(images[8:], originals[8:])  # strongly augmented
    with torch.no_grad():
        logits = method.adjusted(method.net.head(method.net.features(images)[8:])).double().numpy()
    wanted = 0.0
    for i in range(8):
        certainty = 2 / (1 + np.exp(float(method.uncertainty[i]) / method.config.tau_ratio))
        wanted += certainty * (np.log(np.exp(logits[i]).sum()) - logits[i, labels[i]]) / 8
    losses = method.losses(stage, {"unlabeled": rows}, draws)
    np.testing.assert_allclose(losses["certain"].item(), wanted, rtol=1e-4)
    parts = losses["ce"] + losses["pml"] + losses["labeled"] + 0.7 * losses["certain"]
    torch.testing.assert_close(losses["loss"], parts)
    assert "certain" not in build("proud-plus", certain_weight=0.0)[0].losses(stage, {"unlabeled": rows}, draws)
