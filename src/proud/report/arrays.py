"""The tensors that a report shows: what the run wrote beside its records, checked before they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import parse_tensors
from proud.manifest import Files
from proud.tensors import Rule, check_arrays
from proud.text import one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[Any]"]
MOST_BYTES = 1_000_000_000

LABELS, TRUTH = Rule("whole", "N", 0, "K"), Rule("whole", "N", -1, "K")
OUTPUTS = {"logits": Rule("floating", "N K"), "labels": LABELS}
LOOK_AT = {"look_at/*": Rule("whole", "N 3 S S", 0)}
SNAPSHOT = {
    "method/prototypes/*": Rule("floating", "K d"),
    "method/present/*": Rule("bool", "K"),
    **OUTPUTS,
    "rows": Rule("whole", "N", 0),
    "partners": Rule("whole", "N", 0),
    "features": Rule("floating", "N d"),
    "truth": TRUTH,
    "pseudo": LABELS,
    "uncertainty": Rule("floating", "N"),
    "ratio": Rule("floating", "N"),
    "domain": Rule("whole", "N", 0, "T"),
    "merged": Rule("floating", "K d"),
    "images": Rule("whole", "N 3 S S", 0),
    "labeled": Rule("whole", "N 3 S S", 0),
    "unlabeled": Rule("whole", "N 3 S S", 0),
    "mixed": Rule("whole", "N 3 S S", 0),
}


def read_arrays(files: Files, name: str, rules: Mapping[str, Rule], sizes: Mapping[str, int]) -> Arrays:
    """Empty if the run did not write the file."""
    if not files.has(name):
        return {}
    try:
        tensors = parse_tensors(files.read(name, MOST_BYTES))
        check_arrays(tensors, rules, sizes)
    except (OSError, ValueError) as error:
        raise UserError(f"{files.folder / name} cannot be read: {error}. Repeat the run to report on it.") from error
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).numpy() for name, tensor in tensors.items()
    }


PARTS = {
    "domain": {"rows", "features", "logits"},
    "certain": {"images", "labels", "uncertainty", "truth"},
    "pairs": {"labels", "uncertainty", "ratio", "labeled", "unlabeled", "mixed", "domain", "truth"},
}


def check_snapshot(path: Path, arrays: Arrays, domains: Sequence[str]) -> None:
    """All parts of what is there, and all training domains (as `labeled` and `unlabeled/NAME`)."""
    groups: dict[str, set[str]] = {name: set() for name in domains}
    for name in arrays:
        group, _, field = name.rpartition("/")
        if name.startswith(("method/prototypes/", "method/present/")):
            group, field = f"prototypes of {name.split('/', 2)[2]}", name.split("/")[1]
        groups.setdefault(group, set()).add(field)
    for group, parts in groups.items():
        kind = "certain" if group.startswith("certain/") else group.removeprefix("method/")
        needed = PARTS.get(kind, PARTS["domain"])
        if group.startswith("prototypes of "):
            needed = {"prototypes", "present"}
        if kind != "method" and not needed <= parts:
            missing = f"{one_line(group, 200)}: {', '.join(sorted(needed - parts))}"
            raise UserError(f"{path} is incomplete ({missing}). Repeat the run to report on it.")
