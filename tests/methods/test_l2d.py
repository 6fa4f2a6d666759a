from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toy_context import toy_method

from proud.methods.l2d import L2D
from proud.methods.style import (
    StyleGenerator,
    class_mmd,
    log_likelihood,
    mutual_information_bound,
    supervised_contrast,
)
from proud.randomness import Randomness


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def convolve(image: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """[3,S,S] by loops, no padding."""
    k = weight.shape[-1]
    side = image.shape[-1] - k + 1
    out = np.zeros((3, side, side))
    for o in range(3):
        for y in range(side):
            for x in range(side):
                out[o, y, x] = bias[o] + (weight[o] * image[:, y : y + k, x : x + k]).sum()
    return out


def spread(image: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The transposed convolution by loops; its weight is [in, out, k, k]."""
    k, side = weight.shape[-1], image.shape[-1]
    out = np.zeros((3, side + k - 1, side + k - 1)) + bias[:, None, None]
    for i in range(3):
        for y in range(side):
            for x in range(side):
                out[:, y : y + k, x : x + k] += weight[i] * image[i, y, x]
    return out


def test_style_with_given_draws_against_loops() -> None:
    torch.manual_seed(0)
    generator = StyleGenerator(9).double()  # of the kernels only 5 fits
    assert generator.kernels == [5] and generator.branches == 2
    uniform = torch.rand(generator.filter_numbers, dtype=torch.float64)
    weights = torch.tensor([0.7, -0.2], dtype=torch.float64)
    x = numbers(2, 3, 9, 9)
    with torch.no_grad():
        found = generator(x, uniform, weights).numpy()
    flat, place, filters = uniform.numpy(), 0, []
    for k in (1, 5, 5):
        bound = 1 / math.sqrt(3 * k * k)
        weight = (2 * flat[place : place + 9 * k * k] - 1).reshape(3, 3, k, k) * bound
        place += 9 * k * k
        filters.append((weight, (2 * flat[place : place + 3] - 1) * bound))
        place += 3
    assert place == len(flat)
    sigma, mu = (p[0].detach().numpy() for p in (generator.sigma, generator.mu))
    for n in range(2):
        image = x[n].numpy()
        colour = np.tanh(convolve(image, *filters[0]))
        low = convolve(image, *filters[1])
        low = (low - low.mean((1, 2), keepdims=True)) / np.sqrt(low.var((1, 2), keepdims=True) + 1e-5)
        style = np.tanh(spread(sigma * low + mu, *filters[2]))
        np.testing.assert_allclose(found[n], (0.7 * colour - 0.2 * style) / 0.5, rtol=1e-8)


def test_every_kernel_fits_its_image() -> None:
    assert StyleGenerator(32).kernels == StyleGenerator(224).kernels == [5, 9, 13, 17]
    generator = StyleGenerator(16)
    out = generator(torch.zeros(1, 3, 16, 16), generator.fixed, torch.ones(generator.branches))
    assert generator.kernels == [5, 9] and out.shape == (1, 3, 16, 16)


def test_mutual_information_bound_is_the_mean_over_all_pairs() -> None:
    mean, log_variance, samples = (numbers(5, 4, seed=s) for s in range(3))

    def log_q(i: int, j: int) -> float:
        return float((-((mean[i] - samples[j]) ** 2) / (2 * log_variance[i].exp()) - log_variance[i] / 2).sum())

    expected = np.mean([log_q(i, i) for i in range(5)]) - np.mean([log_q(i, j) for i in range(5) for j in range(5)])
    assert mutual_information_bound(mean, log_variance, samples).item() == pytest.approx(expected)


def test_log_likelihood_by_hand() -> None:
    mean, log_variance, samples = (
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[0.0, math.log(2)]]),
        torch.tensor([[3.0, 2.0]]),
    )
    assert log_likelihood(mean, log_variance, samples).item() == pytest.approx((-4 - (2 + math.log(2))) / 2)


def test_supervised_contrast_against_loops() -> None:
    features = torch.nn.functional.normalize(numbers(6, 4), dim=1)
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    similarity = (features @ features.T / 0.07).numpy()
    losses = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        total = np.log(np.exp(similarity[i, others]).sum())
        losses.append(-np.mean([similarity[i, j] - total for j in others if labels[j] == labels[i]]))
    assert supervised_contrast(features, labels, 0.07).item() == pytest.approx(np.mean(losses))


def test_class_mmd_against_loops() -> None:
    first, second = numbers(7, 3), numbers(7, 3, seed=1) + 0.5
    labels = torch.tensor([0, 0, 2, 2, 2, 0, 3])  # class 1 is absent
    expected = []
    for k in (0, 2, 3):
        a, b = first[labels == k].numpy(), second[labels == k].numpy()
        total = np.concatenate([a, b])
        distance = ((total[:, None] - total) ** 2).sum(-1)
        width = distance.sum() / (len(total) ** 2 - len(total))
        kernel = sum(np.exp(-distance / (width * factor)) for factor in (0.25, 0.5, 1, 2, 4))
        n = len(a)
        expected.append((kernel[:n, :n] + kernel[n:, n:] - kernel[:n, n:] - kernel[n:, :n]).mean())
    assert class_mmd(first, second, labels, 4).item() == pytest.approx(np.mean(expected))
    assert class_mmd(first, first, labels, 4).item() == pytest.approx(0, abs=1e-12)


def one_batch(**settings: float) -> tuple:
    method = toy_method("l2d", **settings)
    stage, random = method.stage_list()[0], Randomness(0, method.context.device)
    method.begin_epoch(stage, 0, random)
    return method, stage, {"labeled": torch.arange(12)}, random.draws(method.draws(stage))


def seen(method: L2D, draws: dict, filters: torch.Tensor, branches: torch.Tensor) -> tuple:
    """Images, restyled images, and the features of both, with pixels put together by hand."""
    context = method.context
    x = method.views.simple(context.labeled.take(torch.arange(12)), draws["augment"])
    pixels = 1 / (1 + torch.exp(-method.generator(x, filters, branches)))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (context.mean, context.std))
    restyled = 0.6 * (pixels - mean) / std + 0.4 * x
    return x, restyled, method.net(x)[0], method.net(restyled)[0]


def test_the_networks_loss_is_the_sum_of_its_parts() -> None:
    method, stage, rows, draws = one_batch(contrast_weight=0.7, likelihood_weight=0.3)
    labels = method.context.labels[:12]
    with torch.no_grad():
        found = method.losses(stage, rows, draws)
        x, restyled, z, z_restyled = seen(method, draws, draws["filters"], draws["branches"])
        both = labels.repeat(2)
        ce = torch.nn.functional.cross_entropy(torch.cat([method.net(x)[1], method.net(restyled)[1]]), both)
        unit = torch.nn.functional.normalize(torch.cat([z, z_restyled]), dim=1)
        contrast = supervised_contrast(unit, both, 0.07)
        likelihood = log_likelihood(*method.variational(z), z_restyled)
    torch.testing.assert_close(found["loss"], ce + 0.7 * contrast - 0.3 * likelihood, rtol=1e-4, atol=1e-5)


def test_the_generator_lowers_information_and_keeps_classes_in_place() -> None:
    method, _, rows, draws = one_batch(beta=0.3)
    with torch.no_grad():
        found = method.style_losses(rows["labeled"], draws)
        _, _, z, z_restyled = seen(method, draws, method.generator.fixed, torch.ones(method.generator.branches))
        information = mutual_information_bound(*method.variational(z), z_restyled)
        moved = class_mmd(z_restyled, z, method.context.labels[:12], 3)
    torch.testing.assert_close(found["style"], moved + 0.3 * information, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["information"], information, rtol=1e-4, atol=1e-5)


def test_the_two_optimizers_take_turns() -> None:
    method, stage, rows, draws = one_batch(style_lr=1.0)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.step(stage, rows, draws, method.losses)
    middle = method.style_losses(rows["labeled"], draws)["style"]
    gradient = torch.autograd.grad(middle, list(method.generator.parameters()))
    assert all(g.abs().sum() > 0 for g in gradient)
    after = method.state_dict()
    assert torch.equal(before["generator.fixed"], after["generator.fixed"])
    for name in ("net.head.bias", "variational.mean.0.weight", "generator.mu.0", "generator.sigma.1"):
        assert not torch.equal(before[name], after[name]), name
    # a generator that follows its gradient lowers its loss, the network standing still
    with torch.no_grad():
        for parameter, g in zip(method.generator.parameters(), gradient, strict=True):
            parameter -= 0.1 * g
    assert method.style_losses(rows["labeled"], draws)["style"] < middle
