"""The ResNet of saved models."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch

from cli.fresh import fresh_process
from proud.model.load import load_model
from proud.model.predict import Model
from proud.nets.forward import WORTH_FOLDING, forward_all
from proud.nets.models import Net, build_empty, build_net, model_spec
from proud.nets.resnet import BLOCKS


def with_statistics(net: Net) -> Net:
    """As after training."""
    with torch.no_grad():
        for norm in net.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.weight.uniform_(0.5, 1.0)
                norm.bias.normal_()
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 1.5)
    return net


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_that_of_timm(name: str) -> None:
    spec = model_spec(name, 3, 64)
    theirs, ours = with_statistics(build_net(spec, seed=1)), build_empty(spec)
    assert isinstance(theirs.backbone, timm.models.ResNet) and not isinstance(ours.backbone, timm.models.ResNet)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        for mode in (True, False):
            for mine, other in zip(ours.train(mode)(x), theirs.train(mode)(x), strict=True):
                assert torch.equal(mine, other)


def test_folding_keeps_the_answers_and_the_network() -> None:
    spec, device = model_spec("resnet18", 3, 32), torch.device("cpu")
    net = build_empty(spec)
    net.load_state_dict(with_statistics(build_net(spec, seed=2)).state_dict())
    before = {key: value.clone() for key, value in net.state_dict().items()}
    images = torch.randint(0, 256, (WORTH_FOLDING, 3, 36, 36), dtype=torch.uint8)
    few = [forward_all(net, part, spec, device, "fp32")[1] for part in images.split(WORTH_FOLDING - 1)]
    calls: list[int] = []
    net.backbone.bn1.register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(forward_all(net, images, spec, device, "fp32")[1], torch.cat(few), rtol=1e-4, atol=1e-4)
    assert not calls  # a copy without batch norms has answered
    assert net.training and all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize("name", ["digits", "resnet18.tv_in1k"])
def test_one_prediction_needs_neither_timm_nor_a_compiler(name: str, tmp_path: Path) -> None:
    spec = model_spec(name, 2, 32)
    model = Model(build_net(spec), spec, ("a", "b"), {}, torch.device("cpu"))
    model.save(tmp_path / "model")
    images = torch.randint(0, 256, (1, 3, spec.pixels.side, spec.pixels.side), dtype=torch.uint8)
    assert torch.equal(load_model(tmp_path / "model", "cpu").logits(images), model.logits(images))
    program = f"""
import sys, torch
from proud.model.load import load_model
before = set(sys.modules)
load_model({str(tmp_path / "model")!r}, "cpu").logits(torch.zeros(1, 3, 36, 36, dtype=torch.uint8))
heavy = {{"timm", "torchvision", "torch._dynamo", "sympy"}} & (set(sys.modules) - before)
sys.exit(f"imported {{heavy}}" if heavy else 0)
"""
    fresh_process(program)
