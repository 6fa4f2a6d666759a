"""The reference of the files, from the types in `proud.stored`: its docstrings, annotations and comments."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass

from _extension.options import cell, code, table
from proud import stored

HEADER = ["field", "value", "meaning"]
FILE = re.compile(r"(?:One (?:line|site) of )?([\w./*-]*\.(?:jsonl?|lock|proud)\b)")
WORDS = {
    "Count": "integer",
    "int": "integer",
    "float": "number",
    "Number": "number",
    "Mean": "number",
    "Deviation": "number",
    "Seconds": "seconds",
    "Share": "0 to 1",
    "bool": "true or false",
    "None": "null",
    **dict.fromkeys(("Name", "Text", "Digest"), "text"),
    **dict.fromkeys(("Classes", "Warnings"), "list of text"),
    "Recall": "list of 0 to 1 or null",
    "Interval": "[low, high]",
    "Coefficients": "list of number",
    "Plain": "plain value",
    "Settings": "name → value",
    "Stamps": "path → [bytes, SHA-256]",
}


@dataclass(frozen=True)
class Record:
    """One type: its docstring, the type that it extends, and (name, annotation, comment) of each field."""

    name: str
    text: str
    base: str
    fields: list[tuple[str, ast.expr, str]]


def files() -> str:
    """One section per file, then the parts that several of them have."""
    known = records()
    named = {name: found[1] for name, each in known.items() if (found := FILE.match(each.text))}
    parts = [section(f"## {file}", known[name], known, named) for name, file in named.items()]
    parts += ["## Parts"]
    parts += [section(f"### {name}", each, known, named) for name, each in known.items() if name not in named]
    return "\n\n".join(parts) + "\n"


def section(title: str, record: Record, known: dict[str, Record], named: dict[str, str]) -> str:
    fields = [*(known[record.base].fields if record.base in known else []), *record.fields]
    rows = [[code(name), value(kind, known, named), cell(comment)] for name, kind, comment in fields]
    return "\n\n".join(filter(None, [title, cell(record.text), table("options", HEADER, rows)]))


def value(kind: ast.expr, known: dict[str, Record], named: dict[str, str]) -> str:
    """A type in words, with links to parts."""

    def said(part: ast.expr) -> str:
        return value(part, known, named)

    if isinstance(kind, ast.BinOp):
        return f"{said(kind.left)} or {said(kind.right)}"
    if isinstance(kind, ast.Constant):
        return "null"
    if isinstance(kind, ast.Name):
        name = kind.id
        return f"[{name}](#{name.lower()})" if name in known and name not in named else WORDS.get(name, name)
    assert isinstance(kind, ast.Subscript) and isinstance(kind.value, ast.Name), ast.unparse(kind)
    inside = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    match kind.value.id:
        case "NotRequired":
            return f"{said(inside[0])}, optional"
        case "Annotated":
            return said(inside[0])
        case "Literal":
            return " or ".join(f"`{ast.literal_eval(each)}`" for each in inside)
        case "list":
            return f"list of {said(inside[0])}"
        case "dict":
            return f"{said(inside[0])} → {said(inside[1])}"
        case "tuple":
            return f"[{', '.join(said(each) for each in inside)}]"
    raise ValueError(ast.unparse(kind))


def records() -> dict[str, Record]:
    """Every type of the module, in its order."""
    source = inspect.getsource(stored)
    lines = source.splitlines()
    body = ast.parse(source).body
    found = {}
    for each, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(each, ast.ClassDef):
            own = [part for part in each.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
            fields = [(part.target.id, part.annotation, comment(lines[part.end_lineno - 1])) for part in own]
            base = each.bases[0].id if isinstance(each.bases[0], ast.Name) else ""
            found[each.name] = Record(each.name, ast.get_docstring(each) or "", base, fields)
        elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and len(each.value.args) == 2:
            pairs = each.value.args[1]
            assert isinstance(pairs, ast.Dict) and isinstance(each.targets[0], ast.Name)
            fields = [
                (ast.literal_eval(key), kind, comment(lines[kind.end_lineno - 1]))
                for key, kind in zip(pairs.keys, pairs.values, strict=True)
            ]
            text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            name = each.targets[0].id
            found[name] = Record(name, text, "", fields)
    return found


def comment(line: str) -> str:
    return line.partition("  # ")[2]


def unexplained() -> list[str]:
    """Fields without a comment, types without a docstring."""
    missing = [f"proud.stored.{each.name} has no docstring" for each in records().values() if not each.text]
    for each in records().values():
        missing += [f"proud.stored.{each.name}: {name} is not explained" for name, _, text in each.fields if not text]
    return missing
