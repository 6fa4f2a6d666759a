"""Which domain plays which part, checked before a single image is decoded."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from proud.config import NOTHING, TaskSpec
from proud.data.catalog import Catalog, DomainFiles
from proud.data.folder import nested_classes, one_site, refuse_splits
from proud.errors import UserError
from proud.text import nfc, some


@dataclass(frozen=True)
class Roles:
    labeled: DomainFiles
    unlabeled: tuple[DomainFiles, ...]
    test: DomainFiles | None
    classes: tuple[str, ...]

    @property
    def domains(self) -> tuple[DomainFiles, ...]:
        return (self.labeled, *self.unlabeled, *([self.test] if self.test else []))


def assign_roles(catalog: Catalog, spec: TaskSpec, added: tuple[str, ...] = ()) -> Roles:
    """No named unlabeled domains: all domains that are neither labeled nor test. `added` ones are unlabeled, too."""
    labeled = as_read(catalog, spec.labeled)
    test = None if spec.test == NOTHING else as_read(catalog, spec.test)
    if labeled == test:
        raise UserError(f"{labeled!r} is both the labeled and the test domain; they must differ. {_there_are(catalog)}")
    source = with_images(catalog, labeled)
    target = None if test is None else with_images(catalog, test)
    if spec.unlabeled:
        names = [as_read(catalog, name) for name in spec.unlabeled]
        names += [name for name in added if name not in names]
    else:
        names = [name for name, domain in catalog.domains.items() if name not in (labeled, test) and domain.entries]
    for name, role in ((labeled, "labeled"), (test, "test")):
        if name in (*names, *added):
            raise UserError(f"{name!r} is the {role} domain and cannot be an unlabeled one too")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UserError(f"Listed twice among the unlabeled domains: {', '.join(repeated)}")
    others = tuple(with_images(catalog, name) for name in names)
    classes = _classes(source, one_site(catalog))
    catalog.warn_once(nested_classes(source), "nested classes", labeled)
    if target is not None:
        _check_test_labels(target, source.name, classes)
    return Roles(source, others, target, classes)


def no_unlabeled(catalog: Catalog, method: str) -> UserError:
    """The error if a method that needs unlabeled images has none."""
    hint = _not_followed(_linked(catalog))
    return UserError(
        f"No unlabeled domain is left, and {method} needs at least one (erm needs none).{hint} {_there_are(catalog)}"
    )


def sort_classes(labels: set[str]) -> tuple[str, ...]:
    """Alphabetically; numerically if all are integers."""
    if all(_is_integer(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def find_domain(catalog: Catalog, name: str) -> DomainFiles:
    """The domain of exactly this name, or an error that lists the domains."""
    name = as_read(catalog, name)
    if name in _linked(catalog):
        raise UserError(
            f"There is no domain {name!r} in {catalog.where}: {catalog.notices[name]}. {_there_are(catalog)}"
        )
    if name in catalog.domains:
        return catalog.domains[name]
    close = difflib.get_close_matches(name.lower(), [known.lower() for known in catalog.domains], n=1)
    meant = next((known for known in catalog.domains if close and known.lower() == close[0]), None)
    hint = f" Did you mean {meant!r}?" if meant else ""
    raise UserError(f"There is no domain {name!r} in {catalog.where}.{hint} {_there_are(catalog)}")


def as_read(catalog: Catalog, name: str) -> str:
    """The name of a domain in the spelling in which folders and tables are read."""
    return name if name in catalog.domains else nfc(name)


def with_images(catalog: Catalog, name: str) -> DomainFiles:
    domain = find_domain(catalog, name)
    if not domain.entries:
        links = [link for link in catalog.ignored_links if nfc(link).partition("/")[0] == domain.name]
        raise UserError(f"The domain {name!r} in {catalog.where} has no images.{_not_followed(links)}")
    return domain


def _linked(catalog: Catalog) -> list[str]:
    """Links in place of a domain."""
    return [name for name in map(nfc, catalog.ignored_links) if name in catalog.domains]


def _not_followed(links: Sequence[str]) -> str:
    if not links:
        return ""
    return f" Links that leave the data folder are not followed: {some(links)}; --follow-links reads them."


def _there_are(catalog: Catalog) -> str:
    return f"The domains are: {', '.join(name for name, domain in catalog.domains.items() if domain.entries)}"


def _is_integer(label: str) -> bool:
    return label.isascii() and label.removeprefix("-").isdigit()


def _classes(source: DomainFiles, hint: str) -> tuple[str, ...]:
    refuse_splits(source)
    if without := source.unlabeled_entries:
        raise UserError(
            f"{len(without)} of {len(source.entries)} images of the labeled domain {source.name!r} have no label: "
            f"{some(without)}. Put each into a folder named after its class (or fill the label column).{hint}"
        )
    if source.empty_classes:
        raise UserError(
            f"No images in the class folder{'s' if len(source.empty_classes) > 1 else ''} {some(source.empty_classes)} "
            f"of the labeled domain {source.name!r}: add some, or remove the folder"
        )
    classes = sort_classes({entry.label for entry in source.entries if entry.label is not None})
    if len(classes) < 2:
        raise UserError(
            f"The labeled domain {source.name!r} has only one class, {classes[0]!r}; at least two are needed"
        )
    missing = set(classes) - {entry.label for entry in source.entries if entry.split != "val"}
    if missing:
        raise UserError(f"No training images for {some(sorted(missing))} in the labeled domain {source.name!r}")
    return classes


def _check_test_labels(target: DomainFiles, source_name: str, classes: tuple[str, ...]) -> None:
    refuse_splits(target)
    if without := target.unlabeled_entries:
        raise UserError(
            f"{len(without)} of {len(target.entries)} images of the test domain {target.name!r} have no label, so "
            f"accuracy cannot be measured on them: {some(without)}"
        )
    unknown = sort_classes({entry.label for entry in target.entries if entry.label is not None} - set(classes))
    if unknown:
        raise UserError(
            f"The test domain {target.name!r} has labels that the labeled domain {source_name!r} lacks: "
            f"{some(unknown)}. Known classes: {some(classes)}"
        )


def unknown_classes(domain: DomainFiles, source_name: str, classes: tuple[str, ...]) -> str:
    """A warning if an unlabeled domain has more classes than the labeled one.

    If none of its folders is a known class they are not class folders, and may have any names.
    """
    images = Counter(entry.label for entry in domain.entries if entry.label is not None)
    unknown = sort_classes(set(images) - set(classes))
    if not unknown or len(unknown) == len(images):
        return ""
    count = sum(images[label] for label in unknown)
    theirs = "Their 1 image is" if count == 1 else f"Their {count} images are"
    return (
        f"{domain.name} has classes that are unknown in the labeled domain {source_name}: {some(unknown)}. {theirs} "
        "trained on as if of a known class, and left out of the accuracy of its pseudo-labels."
    )
