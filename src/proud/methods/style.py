"""L2D's style generator, its variational density, and the losses between images and their restyled copies."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNELS = (5, 9, 13, 17)
MMD_KERNELS = 5


class StyleGenerator(nn.Module):
    """Restyles normalised images: random filters, a learned affine style (μ, σ) per branch, and back.

    A branch with kernel k is tanh(up(σ · IN(down(x)) + μ)), with down a convolution and up a transposed one; one more
    branch is a 1×1 convolution of the colours. The filters come from outside: new ones in each step of the network
    (`filters`), fixed ones (`fixed`) in the generator's own.
    """

    fixed: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.kernels = [k for k in KERNELS if k <= size // 2 + 1]
        sides = [size - k + 1 for k in self.kernels]
        self.sigma = nn.ParameterList(nn.Parameter(1 + 0.1 * torch.randn(3, side, side)) for side in sides)
        self.mu = nn.ParameterList(nn.Parameter(0.1 * torch.randn(3, side, side)) for side in sides)
        self.register_buffer("fixed", torch.rand(self.filter_numbers))

    @property
    def filter_numbers(self) -> int:
        """How many uniform numbers make one set of filters: a weight and a bias for each of their convolutions."""
        return 12 + sum(2 * (9 * k * k + 3) for k in self.kernels)

    @property
    def branches(self) -> int:
        return 1 + len(self.kernels)

    def filters(self, uniform: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases in U(-b, b), b = 1/√(3k²): the colours' first, then down and up of each branch."""
        found = []
        for k in [1, *(k for k in self.kernels for _ in range(2))]:
            weight, bias, uniform = uniform.split([9 * k * k, 3, len(uniform) - 9 * k * k - 3])
            bound = 1 / math.sqrt(3 * k * k)
            found.append((bound * (2 * weight.view(3, 3, k, k) - 1), bound * (2 * bias - 1)))
        return found

    def forward(self, x: Tensor, uniform: Tensor, weights: Tensor) -> Tensor:
        """The branches' weighted mean, not yet in the range of pixels. [N,3,S,S], [filter_numbers], [branches]."""
        colour, *others = self.filters(uniform)
        outputs = [F.conv2d(x, *colour).tanh()]
        for sigma, mu, down, up in zip(self.sigma, self.mu, others[::2], others[1::2], strict=True):
            styled = sigma * F.instance_norm(F.conv2d(x, *down)) + mu
            outputs.append(F.conv_transpose2d(styled, *up).tanh())
        return sum(weight * output for weight, output in zip(weights, outputs, strict=True)) / weights.sum()


class Variational(nn.Module):
    """q(z⁺|z), a Gaussian: its mean and log-variance for given features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(features, features), nn.LeakyReLU())
        self.log_variance = nn.Sequential(nn.Linear(features, features), nn.ReLU())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean(z), self.log_variance(z)


def log_likelihood(mean: Tensor, log_variance: Tensor, samples: Tensor) -> Tensor:
    """log q(z⁺|z) up to constants, averaged over samples and dimensions. [N,d] three times -> scalar."""
    return (-((mean - samples) ** 2) / log_variance.exp() - log_variance).mean()


def mutual_information_bound(mean: Tensor, log_variance: Tensor, samples: Tensor) -> Tensor:
    """CLUB: E[log q(z_i⁺|z_i)] - E[log q(z_j⁺|z_i)] over all pairs i, j. [N,d] three times -> scalar.

    Of the second term only the samples' first two moments are needed.
    """
    own = (mean - samples) ** 2
    any_other = mean**2 - 2 * mean * samples.mean(0) + (samples**2).mean(0)
    return ((any_other - own) / log_variance.exp()).sum(1).mean() / 2


def supervised_contrast(features: Tensor, labels: Tensor, temperature: float | Tensor) -> Tensor:
    """Supervised contrastive loss: the others of one's own class against all others. Unit rows [N,d], [N] -> scalar."""
    similarity = features @ features.T / temperature
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    log_prob = similarity - similarity.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels) & ~itself
    return -((log_prob * positive).sum(1) / positive.sum(1).clamp_min(1)).mean()


def class_mmd(first: Tensor, second: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Maximum mean discrepancy within each class, averaged over the classes present. [N,d], [N,d], [N] -> scalar.

    Five Gaussian kernels, 2^-2 ... 2^2 times the class's mean squared distance wide. One matrix holds all pairs; those
    of different classes count nothing, so that no shape depends on the labels.
    """
    samples, labels = torch.cat([first, second]), labels.repeat(2)
    side = torch.cat([torch.ones_like(first[:, 0]), -torch.ones_like(second[:, 0])])
    member = (labels[:, None] == torch.arange(classes, device=labels.device)).to(samples.dtype)  # [2N,K]
    count = member.sum(0)
    together = member @ member.T
    square = (samples**2).sum(1)
    distance = (square[:, None] + square - 2 * samples @ samples.T).clamp_min(0)
    width = (member * (distance.detach() * together).sum(1)[:, None]).sum(0) / (count * (count - 1)).clamp_min(1)
    width = (member @ width).clamp_min(1e-12)[:, None]
    kernel = sum((-distance / (width * 2.0 ** (i - MMD_KERNELS // 2))).exp() for i in range(MMD_KERNELS))
    by_row = (kernel * together * side * side[:, None]).sum(1)
    # the mean over a class's n × n pairs, where n is half its count
    return ((member * by_row[:, None]).sum(0) / (count / 2).square().clamp_min(1)).sum() / (count > 0).sum()
