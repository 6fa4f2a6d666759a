"""What a bench consists of: every combination of domains, for every seed and method, in a stated order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from proud.config import RunConfig, check_run
from proud.errors import UserError
from proud.methods import check_name, method_class, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import preset
from proud.text import nfc

if TYPE_CHECKING:
    from proud.data.catalog import Catalog

LONGEST_NAME = 150

Combo = tuple[str, str]
"""(labeled domain, test domain); all the others are unlabeled."""

DEVELOPMENT: dict[str, frozenset[Combo]] = {
    "pacs": frozenset(
        {
            ("photo", "sketch"),
            ("cartoon", "sketch"),
            ("sketch", "photo"),
            ("art_painting", "cartoon"),
            ("photo", "cartoon"),
        }
    ),
    "digits-dg": frozenset({("syn", "svhn"), ("svhn", "mnist"), ("mnist", "svhn")}),
}
"""The cells whose test accuracy was looked at during development; every table marks them."""


class Key(NamedTuple):
    """Which run: one cell of the table, for one seed."""

    method: str
    labeled: str
    test: str
    seed: int


@dataclass(frozen=True)
class Job:
    run: RunConfig
    settings: MethodConfig

    @property
    def key(self) -> Key:
        return Key(self.run.method, self.run.labeled, self.run.test, self.run.seed)

    @property
    def name(self) -> str:
        """A unique file name for every key, whatever the domains are called."""
        text = "-".join(map(str, self.key))
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
        # domain names with blanks, slashes or dashes could collide
        odd = plain != text or "-" in self.run.labeled + self.run.test or len(text) > LONGEST_NAME
        return f"{plain[:LONGEST_NAME]}-{hashlib.sha256(repr(self.key).encode()).hexdigest()[:8]}" if odd else plain


@dataclass(frozen=True)
class Plan:
    """`bench` is a benchmark's name or that of a folder, `data` the same and, for one's own data, a fingerprint;
    `overrides` are the settings that differ from the preset."""

    bench: str
    data: str
    domains: tuple[str, ...]
    jobs: tuple[Job, ...]
    note: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)


def make_plan(
    run: RunConfig,
    bench: str,
    domains: Sequence[str],
    *,
    methods: Sequence[str],
    seeds: Sequence[int],
    combos: str = "all",
    without_labels: Sequence[str] = (),
    overrides: dict[str, str] | None = None,
    epochs: dict[str, int] | None = None,
    note: str = "",
    data: str = "",
) -> Plan:
    """`run` holds what all jobs share; `epochs` are those of single methods. Order: seed by seed, in each all
    combinations, in each all methods. Domains without labels are unlabeled ones in every combination. `data` tells a
    folder from the benchmark of its name."""
    if len(domains) < 3:
        raise UserError(f"A bench needs at least three domains (labeled, unlabeled, test); {bench} has {len(domains)}.")
    chosen = parse_combos(combos, domains, without_labels)
    values = parse_settings(overrides or {}, methods)
    settings = {
        method: method_config(method, **preset(data or bench, run.model, method, kind=run.preset) | values)
        for method in methods
    }
    for method, count in (epochs or {}).items():
        settings[method] = replace(settings[method], epochs=count)
    jobs = []
    for seed in seeds:
        for labeled, test in chosen:
            others = tuple(name for name in domains if name not in (labeled, test))
            for method in methods:
                one = {"labeled": labeled, "test": test, "unlabeled": others, "method": method, "seed": seed}
                jobs.append(Job(RunConfig(**vars(run) | one), settings[method]))
    for job in jobs:
        check_run(job.run, job.settings)
    of_table = tuple(name for name in domains if name not in without_labels)
    return Plan(bench, data or bench, of_table, tuple(jobs), note, values)


def fingerprint(catalog: Catalog) -> str:
    """Distinguishes folders of one name by the images' paths, not their content."""
    rows = sorted(
        (name, entry.location, entry.label or "")
        for name, domain in catalog.domains.items()
        for entry in domain.entries
    )
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def parse_combos(text: str, domains: Sequence[str], without_labels: Sequence[str] = ()) -> list[Combo]:
    """`all`, or `photo:sketch,cartoon:sketch`; in the order of the table, each once."""
    text = nfc(text)
    every = list(permutations([name for name in domains if name not in without_labels], 2))
    if not every:
        raise UserError(
            "A bench needs at least two domains with labels, one to train on and one to measure on. "
            f"Images without a label are in: {', '.join(without_labels)}"
        )
    if text.strip() == "all":
        return every
    named = {f"{labeled}:{test}": (labeled, test) for labeled, test in every}
    if text.strip() in named:  # a name may hold commas or colons
        return [named[text.strip()]]
    wanted = set()
    for part in words(text, "--combos"):
        if part in named:
            wanted.add(named[part])
            continue
        labeled, colon, test = (piece.strip() for piece in part.partition(":"))
        if not colon:
            raise UserError(f"--combos {part!r}: write LABELED:TEST, for example {domains[0]}:{domains[-1]}.")
        for name in (labeled, test):
            if name not in domains:
                raise UserError(
                    f"--combos {part!r}: there is no domain {name!r}. The domains are: {', '.join(domains)}"
                )
            if name in without_labels:
                raise UserError(f"--combos {part!r}: {name!r} has images without a label, so it can be unlabeled only.")
        if labeled == test:
            raise UserError(f"--combos {part!r}: the test domain must be another one than the labeled.")
        wanted.add((labeled, test))
    return [combo for combo in every if combo in wanted]


def parse_methods(text: str) -> list[str]:
    names = words(text, "--methods")
    for name in names:
        method_class(name)
    return names


def parse_seeds(text: str) -> list[int]:
    try:
        return [int(word) for word in words(text, "--seeds")]
    except ValueError as error:
        raise UserError(f"--seeds {text!r}: whole numbers separated by commas, for example 2022,2023,2024.") from error


def words(text: str, flag: str) -> list[str]:
    """Comma-separated words, each once."""
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise UserError(f"{flag} is empty.")
    return found


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` words of --set."""
    found = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not key or not equals:
            raise UserError(f"--set {pair!r}: write KEY=VALUE, for example --set alpha=1.0.")
        found[key.replace("-", "_")] = value
    return found


def parse_settings(texts: dict[str, str], methods: Sequence[str]) -> dict[str, Any]:
    """Values of the right type. A setting must belong to a method of this bench, and none may be fixed by its name."""
    found: dict[str, Any] = {}
    hints = [(method, get_type_hints(method_class(method).Config)) for method in methods]
    for key, text in texts.items():
        owners = [(method, types[key]) for method, types in hints if key in types]
        if not owners:
            known = sorted({name for _, types in hints for name in types})
            raise UserError(f"--set {key}: no such setting of {', '.join(methods)}. Settings: {', '.join(known)}.")
        found[key] = parse_value(key, text, owners[0][1])
        for method, _ in owners:
            check_name(method, {key: found[key]}, "--set {}={}")
    return found


def parse_value(key: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if text in get_args(kind):
            return text
        raise UserError(f"--set {key}={text}: choose one of {', '.join(map(str, get_args(kind)))}.")
    if kind is bool:
        answers = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() in answers:
            return answers[text.lower()]
        raise UserError(f"--set {key}={text}: must be true or false.")
    try:
        return kind(text)
    except (TypeError, ValueError) as error:
        raise UserError(f"--set {key}={text}: not of type {getattr(kind, '__name__', kind)}.") from error
