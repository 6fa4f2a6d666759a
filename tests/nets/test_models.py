"""Networks: any timm backbone, whatever it states about itself."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import timm
import torch

from proud.errors import UserError
from proud.nets.models import build_net, model_spec


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 64),
        ("mobilenetv3_small_050", 64),  # gives other features than it counts
        ("vit_tiny_patch16_224", 96),  # made for one size
        ("convnext_atto", 64),
    ],
)
def test_backbones_of_several_kinds(name: str, size: int) -> None:
    net = build_net(model_spec(name, 3, size))
    features, logits = net(torch.zeros(2, 3, size, size))
    assert features.shape == (2, net.num_features) and logits.shape == (2, 3)
    assert net.training


def test_a_wrong_size_is_not_reported_as_a_failed_download(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def offline(name: str, pretrained: bool = False, **settings: Any) -> Any:
        if pretrained:
            raise OSError("no network")
        return create(name, **settings)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"nest_tiny cannot be built for images of 100×100"):
        build_net(model_spec("nest_tiny", 3, 100), weights="auto")
    with pytest.raises(UserError, match="could not be downloaded"):
        build_net(model_spec("resnet18", 3, 64), weights="auto")


def test_without_a_connection_only_the_cache_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    def unknown(*_: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    before, seen = constants.HF_HUB_OFFLINE, []
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: seen.append(constants.HF_HUB_OFFLINE) or 1 / 0)
    for resolve, proxies in (
        (unknown, {}),
        (unknown, {"no": "here"}),
        (unknown, {"https": "there"}),
        (lambda *_: [], {}),
    ):
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr("proud.nets.models.getproxies", lambda proxies=proxies: proxies)
        with pytest.raises(UserError):
            build_net(model_spec("resnet18", 3, 64), weights="auto")
        assert before == constants.HF_HUB_OFFLINE
    assert seen[::2] == [True, True, before, before]


def test_a_misspelt_tag() -> None:
    with pytest.raises(UserError, match=r"resnet18 has no weights 'tv_in1'. Available: .*resnet18\.tv_in1k"):
        model_spec("resnet18.tv_in1", 3, 64)


def test_a_size_that_a_backbone_cannot_take() -> None:
    with pytest.raises(UserError, match=r"convnext_atto does not accept images of 16×16 pixels .*another --size"):
        build_net(model_spec("convnext_atto", 3, 16))


def test_the_digits_net_takes_many_images_in_pieces() -> None:
    net, sizes = build_net(model_spec("digits", 3, 64), seed=1), []
    net.backbone.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    x = torch.randn(40, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def gradients() -> list[torch.Tensor]:
        return list(torch.autograd.grad(net.features(x).square().mean(), list(net.backbone.parameters())))

    in_pieces = gradients()
    net.separate = False
    for found, expected in zip(in_pieces, gradients(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert sizes == [16, 16, 8, 40]
