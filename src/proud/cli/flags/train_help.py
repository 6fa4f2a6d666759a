"""`proud train --help`: the flags that most users need first, then all others by subject."""

from __future__ import annotations

import ast
import inspect
from dataclasses import field, fields, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, NoReturn, cast, get_type_hints

from tyro.conf import arg

from proud.cli.flags.shared import parse
from proud.config import DEFAULT_BACKBONE, Options, RunConfig
from proud.methods import METHODS
from proud.methods.base import MethodConfig

USUAL = ("data", "labeled", "test", "out", "method", "epochs", "size", "batch_size", "resume", "overwrite", "model")
SIDES = {"digits": 32, DEFAULT_BACKBONE: 224}


def show_help(run: RunConfig, settings: MethodConfig, options: Options, model: str) -> NoReturn:
    """Prints it and exits. `model`: the network for the images, or `auto` if it is not known."""
    shown = {
        "model": f"(default: {model if run.model == 'auto' else run.model})",
        "size": f"(default: {run.size or SIDES.get(model, 'the network’s own')})",
    }
    method = f"{run.method.replace('-', '_')}_method"
    parts = {
        "data_and_network": (run, "What the run learns from, and with which network."),
        method: (settings, f"Settings of {run.method}. All methods: {', '.join(METHODS)}."),
        "output_and_device": (options, "Where and how a run is executed. None of it changes the trained weights."),
    }
    usual: dict[str, Any] = {}
    groups = {}
    for name, (values, text) in parts.items():
        described = described_fields(values, shown)
        usual |= {each: described.pop(each) for each in USUAL if each in described}
        groups[name] = dataclass_of(name, described, text)
    top = [(name, *usual[name]) for name in USUAL]
    nested = [(name, kind, field(default_factory=kind)) for name, kind in groups.items()]
    kind = make_dataclass("Train", [*top, *nested], frozen=True)
    whose = "the built-in digits" if run.data == "embedded" else run.data
    description = (
        "Train a model on one labeled domain and all the others without their labels. The defaults are those of "
        f"{run.method} on {whose}; for others: proud train --data DATA --method NAME --help"
    )
    parse(kind, ["--help"], "train", description)
    raise SystemExit(0)


def described_fields(values: Any, shown: dict[str, str]) -> dict[str, tuple[Any, Any]]:
    """Name → (type with its help, default). `shown`: another text in place of a default."""
    hints, texts = get_type_hints(type(values), include_extras=True), field_texts(type(values))
    found, annotated = {}, cast(Any, Annotated)  # the types are known at run time only
    for each in fields(values):
        mark = arg(help=texts.get(each.name, ""), help_behavior_hint=shown.get(each.name))
        found[each.name] = (annotated[hints[each.name], mark], field(default=getattr(values, each.name)))
    return found


def dataclass_of(name: str, described: dict[str, tuple[Any, Any]], text: str) -> type:
    kind = make_dataclass(name, [(each, *about) for each, about in described.items()], frozen=True)
    kind.__doc__ = text
    return kind


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field in the source of a dataclass and its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        (definition,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(definition, ast.ClassDef)
        for one, after in pairwise(definition.body):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr):
                found[one.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found
