"""A step must be one CUDA graph: it never reads a value, shapes are fixed, tensors stay on the device, and all random
numbers come from outside.

Every method's whole step, from the images to the optimizer, runs on torch's `meta` device, which has shapes and no
values: whatever would wait for a GPU, or leave a tensor beside it, raises there.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from toy_context import toy_context, toy_method

from proud import lazy, ops
from proud.methods import METHODS
from proud.methods.base import Method, Stage
from proud.methods.context import Context, ImagePool
from proud.nets.batch_norm import evaluating
from proud.nets.models import model_spec
from proud.randomness import Draws, Randomness, raw_sizes, shape_draws

NOWHERE = torch.device("meta")
pytestmark = pytest.mark.skipif(torch.__version__ < (2, 10), reason="earlier versions lack weight norm on meta")
BATCH = 8
RANDOM = ("rand", "bernoulli", "dropout", "multinomial", "normal_", "uniform_", "exponential", "cauchy", "geometric")


class Watch(TorchDispatchMode):
    """Refuses random functions, and copies from the host's memory to the device's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        assert not name.startswith(RANDOM), f"{name} draws random numbers"
        if name.startswith(("_to_copy", "copy_")):
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            target = (kwargs or {}).get("device") or tensors[0].device
            assert all(x.device.type == torch.device(target).type for x in tensors), f"{name} between host and device"
        return func(*args, **(kwargs or {}))


def nowhere(model: str) -> Context:
    def images(count: int) -> torch.Tensor:
        return torch.empty(count, 3, 36, 36, dtype=torch.uint8, device=NOWHERE)

    return Context(
        classes=3,
        labeled=ImagePool([images(40)], NOWHERE, resident=True),
        labels=torch.empty(40, dtype=torch.int64, device=NOWHERE),
        unlabeled=ImagePool([images(20), images(30)], NOWHERE, resident=True),
        unlabeled_names=("a", "b"),
        spec=model_spec(model, 3, 32),
        device=NOWHERE,
        precision="fp32",
        weights="none",
        seed=0,
    )


def index_without_values(labels: torch.Tensor, classes: int) -> ops.ClassIndex:
    return ops.ClassIndex(labels, labels[:classes], labels[:classes])


def kinds(method: Method) -> list[Stage]:
    """One stage of each kind: EID's rounds repeat theirs."""
    return list({stage.name.partition("-")[0]: stage for stage in method.stage_list()}.values())


def inputs(method: Method, stage: Stage) -> tuple[dict[str, torch.Tensor], Draws]:
    wanted = method.draws(stage)
    uniform, normal = (torch.empty(size, device=NOWHERE) for size in raw_sizes(wanted))
    rows = {name: torch.empty(BATCH, dtype=torch.int64, device=NOWHERE) for name in stage.pools}
    return rows, shape_draws(wanted, uniform, normal)


@pytest.mark.parametrize("model", ["digits", "test_resnet"])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_never_waits_for_the_device(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lazy.torch, torch):  # there is no autocast for this device
        monkeypatch.setattr(module, "autocast", lambda *args, **kwargs: nullcontext())
    monkeypatch.setattr(lazy.ops, "class_index", index_without_values)  # built once, and looks at the labels
    method = toy_method(name, nowhere(model), batch_size=BATCH)
    for module in method.modules().values():
        module.train()
    for stage in kinds(method):
        rows, draws = inputs(method, stage)
        with Watch():
            losses = method.step(stage, rows, draws, method.losses)
        assert all(value.device == NOWHERE and value.numel() == 1 for value in losses.values())


def test_each_of_these_mistakes_is_found() -> None:
    x = torch.empty(3, device=NOWHERE)
    with Watch():
        for wrong in (lambda: torch.rand_like(x), lambda: torch.ones(3).to(NOWHERE), lambda: x.copy_(torch.ones(3))):
            with pytest.raises(AssertionError):
                wrong()
        for wrong in (lambda: x.sum().item(), lambda: x[x > 0], lambda: x + torch.ones(3)):
            with pytest.raises((RuntimeError, NotImplementedError)):
                wrong()


@pytest.mark.parametrize("name", {where: name for name, (where, fixed) in METHODS.items() if not fixed}.values())
def test_losses_trace_into_one_graph(name: str) -> None:
    torch._dynamo.reset()
    method = toy_method(name, toy_context())
    for stage in kinds(method):
        if stage.name.startswith("adapt"):
            continue  # EID's adaptation is a step of several updates and has no `losses`
        random = Randomness(0, method.context.device)
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        rows = {pool: random.rows(pool, count, 1, 12)[0] for pool, count in stage.pools.items()}
        draws = random.draws(method.draws(stage))
        traced = torch.compile(partial(method.losses, stage), fullgraph=True, backend="eager", dynamic=False)
        torch.testing.assert_close(traced(rows, draws), method.losses(stage, rows, draws))


@pytest.mark.parametrize("name", ["proud", "proud-plus"])
@pytest.mark.parametrize("model", ["digits", "test_resnet"])
def test_full_passes_trace_into_one_graph(name: str, model: str) -> None:
    torch._dynamo.reset()
    passes = toy_method(name, toy_context()).passes if model == "digits" else on_resnet(name).passes
    images = passes.context.labeled.take(torch.arange(12))
    uniform = torch.rand(2, 12, 9, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), evaluating(passes.net, passes.batch_statistics):
        traced = torch.compile(passes._encode, fullgraph=True, backend="eager", dynamic=False)
        torch.testing.assert_close(traced(images, uniform), passes._encode(images, uniform))


def on_resnet(name: str) -> Any:
    context = toy_context()
    return toy_method(name, replace(context, spec=model_spec("test_resnet", 3, 16)))
