"""One compiled step serves all runs of a process that differ in data, seed, or settings outside the losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toy_context import toy_context, toy_method

from proud.methods import context, proud, proud_plus
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.fast import allow_many_versions, compiled_losses


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Callable[[Method], int]:
    """How many graphs a step of the main stage adds."""
    graphs: list[object] = []
    compile = torch.compile

    def noted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def any_length(values: torch.Tensor) -> torch.Tensor:  # on the CPU, too
        torch._dynamo.maybe_mark_dynamic(values, 0)
        return values

    for module in (context, proud, proud_plus):
        monkeypatch.setattr(module, "any_length", any_length)
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile(function, backend=noted, **options))
    torch._dynamo.reset()
    allow_many_versions()

    def added(method: Method) -> int:
        before, random = len(graphs), Randomness(method.context.seed, method.context.device)
        stage = method.stage_list()[-1]
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        rows = {name: table[0] for name, table in method.rows(stage, random).items()}
        method.step(stage, rows, random.draws(method.draws(stage)), compiled_losses(method, stage))
        return len(graphs) - before

    return added


def test_a_bench_compiles_a_step_once(compilations: Callable[[Method], int]) -> None:
    assert compilations(toy_method("proud-plus", toy_context())) == 1
    assert compilations(toy_method("proud-plus", toy_context(domains=3, count=60, seed=2))) == 0
    outside = {"lr": 0.003, "weight_decay": 0.1, "momentum": 0.8, "epochs": 3, "tau_uncertainty": 0.07, "mixup": 0.7}
    assert compilations(toy_method("proud-plus", toy_context(), **outside)) == 0
