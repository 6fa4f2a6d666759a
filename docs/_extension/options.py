"""Settings as the parser sees them: name, value, default, limits and meaning of every field of a dataclass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from proud.cli.flags.train_help import field_texts
from proud.config import flag, unwrap

FORMS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
LISTED = str.maketrans({"|": "\\|", "<": "\\<", ">": "\\>", "*": "\\*"})
SWITCH = getattr(tyro.conf.FlagCreatePairsOff[bool], "__metadata__", ())
POSITIONAL = getattr(tyro.conf.Positional[str], "__metadata__", ())


@dataclass(frozen=True)
class Option:
    """One flag, positional argument or setting."""

    name: str
    """of the field"""
    flag: str
    """as it is typed, with the form of its value"""
    kind: str
    """its type and limits"""
    default: str
    text: str


def options_of(kind: type, group: str = "") -> dict[str, list[Option]]:
    """Title of the group → its options; fields that are dataclasses are groups of their own."""
    hints, texts = get_type_hints(kind, include_extras=True), field_texts(kind)
    found: dict[str, list[Option]] = {group: []}
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            found |= options_of(hint, " ".join((hint.__doc__ or "").split()))
        else:
            found[group].append(option(field, hint, texts[field.name]))
    return {title: options for title, options in found.items() if options}


def option(field: Field[Any], hint: Any, text: str) -> Option:
    marks, (plain, limits) = list(marks_of(hint)), unwrap(hint)
    names = [mark.name for mark in marks if getattr(mark, "name", None)]
    metavars = [mark.metavar for mark in marks if getattr(mark, "metavar", None)]
    hints = [mark.help_behavior_hint for mark in marks if getattr(mark, "help_behavior_hint", None)]
    name = f"--{names[0]}" if names else flag(field.name)
    if plain is bool:
        form = name if SWITCH[0] in marks else f"{name}, --no-{name[2:]}"
    elif POSITIONAL[0] in marks:
        form = (metavars or [field.name.upper()])[0]
    else:
        form = f"{name} {(metavars or [form_of(plain)])[0]}"
    return Option(field.name, form, kind_of(plain, limits), default_of(field, plain, hints), text.strip())


def marks_of(hint: Any) -> Iterator[Any]:
    """What is written beside the type, outermost last."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        yield from marks_of(kind)
        yield from marks


def form_of(kind: Any) -> str:
    return "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else FORMS.get(kind, "TEXT")


def kind_of(kind: Any, limits: list[Any]) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    name = {bool: "True or False"}.get(kind, getattr(kind, "__name__", str(kind)))
    return ", ".join([name, *(limit.text for limit in limits)])


def default_of(field: Field[Any], kind: Any, hints: list[str]) -> str:
    """In words, or as code."""
    if hints:
        return hints[0].strip("()").removeprefix("default: ")
    if field.default is MISSING:
        return "required"
    if kind is bool:
        return "on" if field.default else "off"
    return f"`{field.default}`" if field.default not in ((), "") else "none"


def code(text: str) -> str:
    """In a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`"


def cell(text: str) -> str:
    """Plain words in a cell of a table; code in them stays code."""
    parts = text.split("`")
    return "`".join(
        part.replace("|", "\\|") if place % 2 else part.translate(LISTED) for place, part in enumerate(parts)
    )


def table(style: str, header: list[str], rows: list[list[str]]) -> str:
    """Markdown, with a class for the style sheet."""
    lines = [header, ["---"] * len(header), *rows]
    return f"{{.{style}}}\n" + "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"
