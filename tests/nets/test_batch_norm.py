"""Blended normalisation, against NumPy and against torch's own batch norm."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from proud.errors import UserError
from proud.nets.batch_norm import BlendedBatchNorm, blend_batch_norms, plain_name, sync_batch_norms
from proud.nets.models import build_net, model_spec


def random_maps(seed: int = 0, count: int = 5) -> torch.Tensor:
    random = np.random.default_rng(seed)
    scale, shift = random.uniform(0.2, 3, (count, 4, 1, 1)), random.normal(size=(count, 4, 1, 1))
    return torch.from_numpy(shift + scale * random.normal(size=(count, 4, 6, 7)))


def norms(share: float) -> tuple[nn.BatchNorm2d, nn.BatchNorm2d]:
    torch.manual_seed(3)
    plain, blended = nn.BatchNorm2d(4).double(), nn.BatchNorm2d(4).double()
    nn.init.normal_(plain.weight)
    nn.init.normal_(plain.bias)
    blended.load_state_dict(plain.state_dict())
    blend_batch_norms(blended, share)
    return plain, blended


def oracle(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, share: float, norm: nn.BatchNorm2d) -> np.ndarray:
    out = np.empty_like(x)
    weight, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            own_mean, own_variance = x[n, c].mean(), x[n, c].var()
            m = (1 - share) * mean[c] + share * own_mean
            second = (1 - share) * (variance[c] + mean[c] ** 2) + share * (own_variance + own_mean**2)
            out[n, c] = (x[n, c] - m) / np.sqrt(second - m**2 + norm.eps) * weight[c] + bias[c]
    return out


@pytest.mark.parametrize("share", [0.0, 0.15, 0.6, 1.0])
def test_training_agrees_with_numpy(share: float) -> None:
    x = random_maps()
    _, norm = norms(share)
    found = norm(x).detach().numpy()
    pixels = x.numpy()
    want = oracle(pixels, pixels.mean((0, 2, 3)), pixels.var((0, 2, 3)), share, norm)
    assert np.abs(found - want).max() < 1e-10


@pytest.mark.parametrize("share", [0.0, 0.15, 1.0])
def test_evaluation_agrees_with_numpy_and_sees_no_neighbours(share: float) -> None:
    x = random_maps(1)
    _, norm = norms(share)
    norm(random_maps(2))
    norm.eval()
    found = norm(x)
    assert norm.running_mean is not None and norm.running_var is not None
    want = oracle(x.numpy(), norm.running_mean.numpy(), norm.running_var.numpy(), share, norm)
    assert np.abs(found.detach().numpy() - want).max() < 1e-10
    assert torch.equal(norm(x[2:3]), found[2:3])


def test_without_a_share_it_is_batch_norm() -> None:
    plain, blended = norms(0.0)
    for seed in range(3):
        x, y = random_maps(seed).requires_grad_(), random_maps(seed).requires_grad_()
        (plain(x) ** 3).sum().backward()
        (blended(y) ** 3).sum().backward()
        assert x.grad is not None and y.grad is not None
        assert torch.allclose(x.grad, y.grad, atol=1e-9)
    for one, other in zip(plain.buffers(), blended.buffers(), strict=True):
        assert torch.allclose(one, other)
    assert torch.allclose(plain.eval()(x), blended.eval()(x))


def is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


@pytest.mark.parametrize("name", ["resnet18", "tf_efficientnet_lite0", "resnet10t"])
def test_every_batch_norm_of_a_backbone_is_blended(name: str) -> None:
    spec = model_spec(name, 3, 64)
    plain, blended = build_net(spec).eval(), build_net(replace(spec, own_share=0.2)).eval()
    kinds = [type(m) for m in blended.modules() if is_norm(m)]
    assert kinds and all(issubclass(kind, BlendedBatchNorm) for kind in kinds)
    names = list(blended.state_dict())
    assert list(plain.state_dict()) == [plain_name(name) for name in names]
    assert sum(".blended." in name for name in names) == sum(len(m.state_dict()) for m in plain.modules() if is_norm(m))
    x = torch.randn(2, 3, 64, 64)
    assert not torch.allclose(plain(x)[1], blended(x)[1])


def test_a_norm_without_weights_is_blended_too() -> None:
    norm = blend_batch_norms(nn.BatchNorm2d(4, affine=False).double(), 0.3)
    x = random_maps()
    means = torch.lerp(x.mean((0, 2, 3)), x.mean((2, 3)), 0.3)
    assert torch.allclose(norm(x).mean((2, 3)).sign(), (x.mean((2, 3)) - means).sign())


def test_a_partly_blended_network_cannot_be_synchronised() -> None:
    network = blend_batch_norms(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.BatchNorm1d(4)), 0.2
    )
    with pytest.raises(UserError, match="--own-share 0"):
        sync_batch_norms(network, lambda total: total)
