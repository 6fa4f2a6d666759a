"""One compiled step serves all runs of a process that differ in data, seed, or float settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from toy_context import toy_context, toy_method

from proud.methods import METHODS, context, eid, proud, proud_plus
from proud.methods.base import Method
from proud.methods.numbers import float_settings
from proud.randomness import Randomness
from proud.training.fast import allow_many_versions, compiled_losses

SHAPE_THE_GRAPH = {"drop_share"}  # how many of the features RSC sorts are muted


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Callable[[Method], int]:
    """How many graphs a step of the last stage adds."""
    graphs: list[object] = []
    compile = torch.compile

    def noted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def any_length(values: torch.Tensor) -> torch.Tensor:  # on the CPU, too
        torch._dynamo.maybe_mark_dynamic(values, 0)
        return values

    for module in (context, eid, proud, proud_plus):
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


@pytest.mark.parametrize("name", METHODS)
def test_a_bench_compiles_a_step_once(name: str, compilations: Callable[[Method], int]) -> None:
    first = toy_method(name, toy_context())
    assert compilations(first) > 0
    assert compilations(toy_method(name, toy_context(domains=3, count=60, seed=2), epochs=3)) == 0
    given = asdict(first.config)
    other = {setting: 0.9 * given[setting] or 0.0 for setting in float_settings(first.config)}
    assert compilations(toy_method(name, toy_context(), **{k: other[k] for k in other.keys() - SHAPE_THE_GRAPH})) == 0
