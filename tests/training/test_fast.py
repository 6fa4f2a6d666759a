"""Where steps cannot be compiled or captured they are plain, and a warning says why."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
import torch

from proud.config import Options
from proud.machine import Stopped
from proud.methods import method_class
from proud.methods.base import Method, Sizes
from proud.methods.context import make_context
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.fast import FastEpochs, compiled_or_plain
from proud.training.loop import plain_epoch
from proud.training.run import Run
from proud.training.run_folder import RunFolder
from proud.training.steps import kind_of_steps
from toy import SIDE, toy_run, toy_settings, toy_task


def build() -> Method:
    """Whatever compiles something is patched before."""
    task, cpu = toy_task(per_class=4), torch.device("cpu")
    spec = model_spec("digits", len(task.training.classes), SIDE)
    context = make_context(
        task.training, spec, cpu, weights="none", seed=3, precision="fp32", compile=compiled_or_plain
    )
    return method_class("proud")(toy_settings("proud", epochs=1, pretrain_epochs=1, batch_size=8), context)


def epoch_of(method: Method, run: Any) -> dict[str, torch.Tensor]:
    random = Randomness(3, torch.device("cpu"))
    stage = method.stage_list()[1]
    random.begin_epoch(stage.name, 0)
    method.begin_epoch(stage, 0, random)
    rows = {pool: random.rows(pool, size, stage.steps, 8) for pool, size in stage.pools.items()}
    return run(method, stage, rows, random, lambda step: None)


def no_compiler(function: Any, **_: Any) -> Any:
    def fail(*inputs: Any) -> Any:
        raise RuntimeError("no compiler found\nand more")

    return fail


def test_without_a_compiler_or_graphs_steps_are_plain_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    method = build()
    with pytest.warns(UserWarning) as warned:
        found = epoch_of(method, FastEpochs(method))
    texts = [str(warning.message) for warning in warned]
    assert "encode is not compiled: RuntimeError: no compiler found" in texts
    reasons = ["steps of stage main are not compiled: ", "plain steps in stage main: "]
    assert [text[: len(reason)] for text, reason in zip(texts[-2:], reasons, strict=True)] == reasons
    with pytest.warns(UserWarning, match="encode is not compiled"):
        expected = epoch_of(build(), plain_epoch)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("asked", "epochs", "kind"),
    [
        ("auto", 300, "compiled"),
        ("auto", 3, "captured"),
        ("plain", 300, "plain"),
        ("captured", 300, "captured"),
        ("compiled", 3, "compiled"),
    ],
)
def test_steps_are_compiled_where_it_pays(asked: Any, epochs: int, kind: str) -> None:
    config = toy_run()
    settings = toy_settings(config.method, epochs=epochs, pretrain_epochs=1, batch_size=8)
    run = Run(config, settings, Options(steps=asked), RunFolder(Path("runs/none")))
    sizes = Sizes(80, (80, 80))  # 20 steps an epoch
    assert kind_of_steps(run, torch.device("cuda"), sizes) == kind
    assert kind_of_steps(run, torch.device("cpu"), sizes) == "plain"


def test_compiling_is_noted_before_the_first_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    method = build()
    run, stage = FastEpochs(method), method.stage_list()[1]
    assert "compiling" in run.note(stage)
    with pytest.warns(UserWarning):
        epoch_of(method, run)
    assert run.note(stage) == ""


class Wrapped(RuntimeError):
    """As the compiler wraps what is raised while it works."""

    def __init__(self, inner: Exception) -> None:
        self.inner_exception = inner


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(Stopped(), Stopped), (Wrapped(Stopped()), Stopped), (torch.OutOfMemoryError("full"), torch.OutOfMemoryError)],
)
def test_a_stop_or_a_full_memory_does_not_count_as_a_missing_compiler(
    raised: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(function: Any, **_: Any) -> Any:
        def call(*inputs: Any) -> Any:
            raise raised

        return call

    monkeypatch.setattr(torch, "compile", failing)
    method = build()
    with pytest.raises(expected):
        epoch_of(method, FastEpochs(method))


def test_a_compiled_function_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(function: Any, **_: Any) -> Any:
        def call(*inputs: Any) -> Any:
            calls.append(function.__name__)
            return function(*inputs)

        return call

    monkeypatch.setattr(torch, "compile", counting)
    epoch_of(build(), plain_epoch)
    assert calls.count("_encode") == 3  # the labeled domain and two others


def test_processes_compile_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def is_free() -> bool:
        with (tmp_path / "proud.lock").open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    found = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *inputs: found.append(is_free()))
    call = compiled_or_plain(len)
    call([])
    call([])
    assert found == [False, True]  # a compiled function waits for nobody


def test_without_locks_all_compile_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    assert compiled_or_plain(len)([1]) == 1
