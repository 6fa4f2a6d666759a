"""The reference of the Python API, from docstrings. A public object without one, or one that leaves out a parameter,
is an error of the build."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import proud
from _extension.options import Option, cell, code, options_of, table
from proud import ops
from proud.config import Options, RunConfig
from proud.estimator_settings import own_parameters
from proud.model.predict import Model

MODEL = ("predict", "predict_proba", "predict_table", "save")
"""what users of a saved model call"""
IN_WORDS = {"out": "a temporary folder"}
"""defaults that differ from those of `proud train`"""
ARGUMENT = re.compile(r"^ {4}\*{0,2}(\w+): ", re.MULTILINE)


def estimator() -> str:
    return directive("autoclass", "proud.ProUD", "members:")


def parameters() -> str:
    """The constructor's own: the options of `proud train` that are not about the images, which `fit` gets."""
    declared = {option.name: option for kind in (RunConfig, Options) for option in flat(kind)}
    kept = {name: option for name, option in declared.items() if name in own_parameters()}
    rows = [[code(name), cell(default(name, option)), cell(option.text)] for name, option in kept.items()]
    return table("options", ["parameter", "default", "meaning"], rows)


def flat(kind: type) -> Iterator[Option]:
    for options in options_of(kind).values():
        yield from options


def default(name: str, option: Option) -> str:
    """As Python writes it; in words where the value stands for another one."""
    value = own_parameters()[name]
    if value or value is False:
        return f"`{value!r}`"
    return IN_WORDS.get(name, option.default)


def model() -> str:
    members = f"members: {', '.join(MODEL)}"
    about = directive("autoclass", "proud.model.predict.Model", "class-doc-from: class", members)
    return directive("autofunction", "proud.load") + about


def errors() -> str:
    return directive("autoexception", "proud.UserError")


def operations() -> str:
    """By module, in the order of their source."""
    public = {name: getattr(ops, name) for name in ops.__all__}
    modules = dict.fromkeys(inspect.getmodule(value) for value in public.values() if callable(value))
    parts = []
    for module in sorted(filter(None, modules), key=lambda each: each.__name__):
        inside = [name for name, value in public.items() if callable(value) and inspect.getmodule(value) is module]
        inside.sort(key=lambda name: inspect.getsourcelines(public[name])[1])
        parts += [f"### {module.__name__.removeprefix('proud.')}", inspect.cleandoc(module.__doc__ or "")]
        for name in inside:
            kind = "autoclass" if inspect.isclass(public[name]) else "autofunction"
            parts.append(directive(kind, f"proud.ops.{name}", *(["members:"] if kind == "autoclass" else [])))
    return "\n\n".join(parts) + "\n"


def directive(kind: str, name: str, *options: str) -> str:
    lines = [f".. {kind}:: {name}", *(f"   :{option}" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


# ---- what is missing


def undocumented() -> Iterator[str]:
    """What the docstrings of the public API lack."""
    for name in (*proud.__all__, *(f"ops.{each}" for each in ops.__all__)):
        value = getattr(ops, name[4:]) if name.startswith("ops.") else getattr(proud, name)
        if callable(value) and not written_doc(value):
            yield f"proud.{name} has no docstring"
    estimator = [name for name, value in inspect.getmembers(proud.ProUD, callable) if not name.startswith("_")]
    functions = {"proud.load": proud.load, "proud.ProUD.__init__": proud.ProUD.__init__}
    functions |= {f"proud.ProUD.{name}": getattr(proud.ProUD, name) for name in estimator}
    functions |= {f"Model.{name}": getattr(Model, name) for name in MODEL}
    for name, function in functions.items():
        doc = inspect.cleandoc(function.__doc__ or "")
        given = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
        yield from (f"{name}: {each} is not explained" for each in given if each not in ARGUMENT.findall(doc))
        if "Example:" not in doc:
            yield f"{name} has no example"


def written_doc(value: Any) -> str:
    """Not inherited, and not the one that a dataclass gets by itself."""
    found = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    own = str(found or "")
    return "" if inspect.isclass(value) and own.startswith(f"{value.__name__}(") else own
