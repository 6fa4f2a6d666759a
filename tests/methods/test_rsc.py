from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_context import toy_method

from proud.errors import UserError
from proud.methods.rsc import feature_map, hit_hardest, muted_features, top_share
from proud.nets.models import build_net, model_spec
from proud.randomness import Randomness


def test_top_share_marks_exactly_the_largest() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5, -1.0, 0.7], [2.0, 2.0, 2.0, 2.0, 2.0]])
    marked = top_share(scores, 1 / 3)  # ceil(5 / 3) = 2
    assert marked.tolist() == [[False, True, False, False, True], [True, True, False, False, False]]


@pytest.mark.parametrize("spatial", [True, False])
def test_muted_features_against_loops(spatial: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    z, gradient = (torch.randn(4, 6, 3, 3, generator=generator) for _ in range(2))
    muted = muted_features(z, gradient, 1 / 3, torch.tensor([spatial])).numpy()
    for n in range(4):
        weight = gradient[n].numpy().mean((1, 2))
        expected = np.zeros((6, 3, 3), bool)
        if spatial:
            scores = sum(weight[c] * z[n, c].numpy() for c in range(6)).ravel()
            for place in np.argsort(-scores)[:3]:  # a third of 9 positions
                expected[:, place // 3, place % 3] = True
        else:
            for channel in np.argsort(-weight)[:2]:  # a third of 6 channels
                expected[channel] = True
        np.testing.assert_array_equal(muted[n], expected)


def test_only_the_hardest_hit_images_are_challenged() -> None:
    before = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.2])
    after = torch.tensor([0.1, 0.5, 0.89999, 0.7, 0.6])  # the third hardly moves, the fifth gains
    assert hit_hardest(before, after, torch.tensor(2)).tolist() == [True, True, False, False, False]
    assert hit_hardest(before, after, torch.tensor(5)).tolist() == [True, True, False, True, False]
    assert not hit_hardest(before, after, torch.tensor(0)).any()


@pytest.mark.parametrize("name", ["digits", "resnet18.tv_in1k"])
def test_feature_map_and_its_gradient(name: str) -> None:
    net = build_net(model_spec(name, 3, 32), seed=1).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    z, pool = feature_map(net, x)
    assert z.ndim == 4
    torch.testing.assert_close(pool(z), net.backbone(x))
    # the pulled back weights of the true class are the gradient of its logit at the map
    labels = torch.tensor([2, 0])
    leaf = z.detach().requires_grad_()
    (expected,) = torch.autograd.grad(net.head(pool(leaf))[range(2), labels].sum(), leaf)
    with torch.no_grad():
        _, pull_back = torch.func.vjp(pool, z)
        torch.testing.assert_close(pull_back(net.head.weight[labels])[0], expected)


def test_transformers_are_refused() -> None:
    net = build_net(model_spec("vit_tiny_patch16_224", 3, 224))
    with pytest.raises(UserError, match="convolutional"):
        feature_map(net, torch.zeros(1, 3, 224, 224))


def test_step_trains_on_the_unmuted_features() -> None:
    method = toy_method("rsc", batch_share=1.0, warmup=0.0)
    stage = method.stage_list()[0]
    random = Randomness(0, method.context.device)
    method.begin_epoch(stage, 0, random)
    rows, draws = {"labeled": torch.arange(12)}, random.draws(method.draws(stage))
    draws["spatial"].fill_(0.9)  # channels
    x, labels = (
        method.views.simple(method.context.labeled.take(rows["labeled"]), draws["augment"]),
        method.context.labels[:12],
    )
    net = method.net
    z, pool = feature_map(net, x)
    weight = net.head.weight[labels].unflatten(1, z.shape[1:]).mean((2, 3))
    z = z.detach()
    masked = z.clone()
    for n in range(12):
        masked[n, weight[n].argsort(descending=True)[:22]] = 0  # ceil(64 / 3)
    before, after = (net.head(pool(m)).softmax(1)[range(12), labels] for m in (z, masked))
    hit = before - after > 1e-4
    assert hit.any()
    expected = torch.nn.functional.cross_entropy(
        net.head(pool(torch.where(hit[:, None, None, None], masked, z))), labels
    )
    torch.testing.assert_close(method.losses(stage, rows, draws)["loss"], expected)


def challenged_by_epoch(**settings: float) -> list[int]:
    method = toy_method("rsc", batch_size=10, epochs=9, pretrain_epochs=0, **settings)
    _, main = method.stage_list()
    seen = []
    for epoch in range(9):
        method.begin_epoch(main, epoch, None)  # type: ignore[arg-type]
        seen.append(int(method.challenged))
    return seen


def test_the_share_grows_by_thirds() -> None:
    assert challenged_by_epoch(warmup=0.0) == [3] * 3 + [5] * 3 + [7] * 3


def test_nothing_is_challenged_at_first() -> None:
    assert challenged_by_epoch() == [0] + [3] * 2 + [5] * 3 + [7] * 3
    assert challenged_by_epoch(warmup=0.2) == [0] * 2 + [3] + [5] * 3 + [7] * 3
