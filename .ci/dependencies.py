"""What proud depends on, from the metadata of the installed packages.

python .ci/dependencies.py lock      versions of all packages for development: requirements-dev.lock
python .ci/dependencies.py licences  their licences: docs/reference/licences.md
python .ci/dependencies.py oldest    the oldest supported versions, as constraints for pip, to stdout
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def installed(extras: frozenset[str]) -> dict[str, Distribution]:
    """All packages that proud needs with these extras, by name."""
    found: dict[str, Distribution] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    left = [("proud", extras)]
    while left:
        name, wanted = left.pop()
        if (name, wanted) in done:
            continue
        done.add((name, wanted))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another system, or not installed
            continue
        for text in declared() if name == "proud" else found[name].requires or []:
            needed = Requirement(text)
            contexts = [{"extra": extra} for extra in (*wanted, "")]
            if needed.marker is None or any(needed.marker.evaluate(context) for context in contexts):
                left.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    found.pop("proud")
    return dict(sorted(found.items()))


def declared() -> list[str]:
    """Of proud itself, as pyproject.toml says now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"].items()
    return project["dependencies"] + [f"{text}; extra == '{extra}'" for extra, texts in optional for text in texts]


def licence(package: Distribution) -> str:
    """The declared expression, the classifiers, or the first line of the text."""
    about = package.metadata
    if about.get("License-Expression"):
        return about["License-Expression"]
    classifiers = [each for each in about.get_all("Classifier") or [] if each.startswith("License")]
    classified = [each.rpartition(" :: ")[2] for each in classifiers]
    first = (about.get("License") or "").strip().splitlines()
    return ", ".join(classified) or (first[0][:80] if first else "not declared")


def lock() -> None:
    lines = [f"{name}=={package.version.partition('+')[0]}" for name, package in installed(frozenset({"dev"})).items()]
    text = "# Versions that the tests passed with: pip install -r requirements-dev.lock -e . (written by `make lock`)\n"
    (ROOT / "requirements-dev.lock").write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


def licences() -> None:
    runtime, every = installed(frozenset()), installed(frozenset({"dev"}))
    rows = [
        f"| {name} | {package.version} | {licence(package).replace('|', '/')} | {'yes' if name in runtime else ''} |"
        for name, package in every.items()
    ]
    head = ["# Licences of dependencies", ""]
    head += ["As the installed packages declare them; `make licences` writes this page."]
    head += ["", "| package | version | licence | needed to run |", "| --- | --- | --- | --- |"]
    (ROOT / "docs" / "reference" / "licences.md").write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")


def oldest() -> None:
    for text in declared():
        if bound := re.fullmatch(r"([\w-]+)>=([\d.]+)(;.*)?", text):
            print(f"{bound[1]}=={bound[2]}.*")


if __name__ == "__main__":
    commands = {"lock": lock, "licences": licences, "oldest": oldest}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
