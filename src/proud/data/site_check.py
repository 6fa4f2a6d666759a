"""`proud data check FOLDER`: what training would refuse, warn about or be slow with."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Literal, NamedTuple

import torch

from proud.config import DEFAULT_BACKBONE, SMALL_SIDE, DomainSpec, ReadSpec, TaskSpec
from proud.data.alike import Compared, between, within
from proud.data.benchmarks import open_catalog
from proud.data.catalog import Catalog, DomainFiles
from proud.data.checks import DARKEST_USABLE, under_two_classes
from proud.data.decode import BadFile
from proud.data.folder import nested_classes, one_site, taken_for_splits
from proud.data.roles import assign_roles
from proud.data.shapes import cropped_away
from proud.data.site_report import Seen, SiteReport, read_site
from proud.errors import UserError
from proud.gpu import expects_cpu
from proud.text import duration, some

FEW = 10  # images of a class
LARGE = 12_000_000  # pixels: decoding takes longer than training needs
SMALL = 32  # pixels
UNEVEN = 20  # times as many images in the largest class as in the smallest

Level = Literal["refused", "warning", "note"]


class Finding(NamedTuple):
    level: Level
    text: str


@dataclass
class DataReport:
    """All domains, and what was found."""

    where: str
    sites: list[SiteReport]
    findings: list[Finding] = field(default_factory=list)
    nested: frozenset[str] = frozenset()
    """sites whose folders look like a level above the classes"""

    @property
    def exit_code(self) -> int:
        """2: training would refuse the data; 1: it would warn; 0 otherwise."""
        levels = {finding.level for finding in self.findings}
        return 2 if "refused" in levels else 1 if "warning" in levels else 0

    @property
    def bad(self) -> list[BadFile]:
        every = (image for site in self.sites for image in site.seen)
        return [BadFile(image.entry.location, image.problem) for image in every if image.problem]


def check_data(spec: DomainSpec, reading: ReadSpec, progress: bool = False) -> DataReport:
    """Read every image of a folder or CSV file. `spec.labeled` and `spec.test` are checked too, if they are given."""
    catalog = open_catalog(spec.data, spec.root, reading.follow_links)
    begin = time.monotonic()
    sites = [read_site(catalog, domain, reading, progress) for domain in catalog.domains.values() if domain.entries]
    nested = frozenset(name for name, domain in catalog.domains.items() if nested_classes(domain))
    report = DataReport(catalog.where, sites, nested=nested)
    report.findings += roles_findings(catalog, spec, reading, sites)
    report.findings += [Finding("warning", text) for text in catalog.notices.values()]
    for site in sites:
        report.findings += site_findings(catalog, catalog.domains[site.name], site)
    report.findings += copies_between(sites)
    report.findings += near_copies_in(sites)
    report.findings += class_findings(sites)
    report.findings += speed_findings(sites, time.monotonic() - begin)
    return report


# ---- what is worth saying


def roles_findings(catalog: Catalog, spec: DomainSpec, reading: ReadSpec, sites: list[SiteReport]) -> Iterator[Finding]:
    if not any(not site.can_be_labeled for site in sites):
        why = "; ".join(f"{site.name}: {site.can_be_labeled}" for site in sites[:5])
        yield Finding("refused", f"No domain can be the labeled one ({why}).{one_site(catalog)}")
    if len(sites) == 1:
        yield Finding("warning", f"{sites[0].name} is the only domain: without unlabeled ones, only erm is possible.")
    bad = sum(bool(image.problem) for site in sites for image in site.seen)
    if bad and not reading.skip_bad:
        count = "1 image cannot" if bad == 1 else f"{bad} images cannot"
        yield Finding("refused", f"{count} be read: training refuses them unless --skip-bad is given.")
    if spec.labeled:
        task = {name: getattr(spec, name) for name in ("labeled", "test", "unlabeled")}
        try:
            assign_roles(catalog, TaskSpec(**task))
        except UserError as error:
            yield Finding("refused", str(error))


def site_findings(catalog: Catalog, domain: DomainFiles, site: SiteReport) -> Iterator[Finding]:
    """Of one domain, most important first."""
    for text in (under_two_classes(site.name, site.rows), nested_classes(domain), taken_for_splits(domain)):
        if text and text not in catalog.notices.get(site.name, ""):
            yield Finding("warning", text)
    if site.copies:
        count = "1 image is" if site.copies == 1 else f"{site.copies} images are"
        yield Finding("warning", f"{site.name}: {count} there more than once.")
    if not site.can_be_labeled:
        yield from class_sizes(site)
    if text := cropped_away(catalog, domain):
        yield Finding("warning", text)
    dark = [image for image in site.good if 0 < image.brightest < DARKEST_USABLE]
    if dark:
        yield Finding("warning", f"{site.name}: {len(dark)} images are nearly black, such as {dark[0].entry.location}.")
    small = [image for image in site.good if min(image.size) < SMALL]
    if small and len(small) < len(site.good):
        yield Finding("note", f"{site.name}: {len(small)} images have fewer than {SMALL} pixels on a side.")


def class_sizes(site: SiteReport) -> Iterator[Finding]:
    few = [f"{name} {count}" for name, count in site.classes.items() if count < FEW]
    if few:
        yield Finding("warning", f"{site.name}: classes with fewer than {FEW} images: {some(few)}.")
    largest, smallest = max(site.classes.values()), min(site.classes.values())
    if largest >= UNEVEN * smallest:
        yield Finding(
            "note",
            f"{site.name}: the largest class has {largest / smallest:.0f} times as many images as the smallest; see "
            "--class-mix.",
        )


def copies_between(sites: list[SiteReport]) -> Iterator[Finding]:
    contents = {site.name: {image.content: image.entry.location for image in site.good} for site in sites}
    for one, other in combinations(contents, 2):
        both = sorted(contents[one].keys() & contents[other].keys())
        if both:
            count = "1 image is" if len(both) == 1 else f"{len(both)} images are"
            example = f"{contents[one][both[0]]} and {contents[other][both[0]]}"
            yield Finding(
                "warning",
                f"{count} in {one} and in {other} ({example}): accuracy on one is too high for a model trained on the "
                "other.",
            )


def near_copies_in(sites: list[SiteReport]) -> Iterator[Finding]:
    """Images that look alike; of equal ones, which are copies, only the first."""
    first: dict[str, tuple[str, Seen]] = {}
    for site in sites:
        for image in site.good:
            first.setdefault(image.content, (site.name, image))
    compared = []
    for site in sites:
        own = [image for name, image in first.values() if name == site.name and image.signature is not None]
        if own:
            signs = torch.stack([image.signature for image in own if image.signature is not None])
            places, groups = ([getattr(each.entry, name) for each in own] for name in ("location", "group"))
            compared.append(Compared(site.name, places, [], signs, groups))
    yield from (Finding("note", text) for site in compared if (text := within(site)))
    yield from (Finding("warning", text) for pair in combinations(compared, 2) if (text := between(*pair)))


def class_findings(sites: list[SiteReport]) -> Iterator[Finding]:
    """Classes that differ between the domains that have class folders."""
    labeled = [site for site in sites if not site.can_be_labeled]
    names = {site.name: set(site.classes) for site in labeled}
    every = set().union(*names.values())
    spellings = Counter(map(spelling, every))
    twice = [name for name in sorted(every) if spellings[spelling(name)] > 1]
    if twice:
        yield Finding("warning", f"Classes that may be the same, in different spellings: {some(twice)}.")
    for name, own in names.items():
        if missing := sorted(every - own):
            yield Finding("note", f"{name} has no images of {some(missing)}.")


def spelling(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ").strip()


def speed_findings(sites: list[SiteReport], seconds: float) -> Iterator[Finding]:
    images = [image for site in sites for image in site.good]
    large = [image for image in images if image.size[0] * image.size[1] > LARGE]
    if large:
        usual = median(image.size[0] * image.size[1] for image in large) / 1e6
        yield Finding(
            "note",
            f"Slow to read: {len(large)} images of about {usual:.0f} million pixels. Copies of about 512 pixels are "
            "enough, and --cache DIR keeps decoded images.",
        )
    if images and expects_cpu("auto") and median(min(image.size) for image in images) > SMALL_SIDE:
        yield Finding(
            "note",
            f"Images of this size get {DEFAULT_BACKBONE}, which is slow on this CPU; after its first steps, training "
            "says how long it will take.",
        )
    if images:
        yield Finding("note", f"Reading all {len(images)} images took {duration(seconds).removeprefix('about ')}.")
