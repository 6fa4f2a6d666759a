"""Where data sets come from: the embedded one, a folder, a CSV file, or a public benchmark in its own layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.data.csv_table import scan_csv
from proud.data.embedded import embedded_catalog
from proud.data.folder import scan_folder
from proud.data.walk import Walk
from proud.errors import UserError
from proud.text import nfc, some

DEEPEST = 2  # how far below the given root the domain folders may lie
HELD_OUT = 0.1


@dataclass(frozen=True)
class Benchmark:
    """`counts`: domain → (train, val), or (all,) where no split is shipped. `held_out`: the share of unlabeled images
    that is not trained on without a split."""

    name: str
    counts: dict[str, tuple[int, ...]]
    classes: int
    layout: str
    origin: str
    held_out: float | None = None


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "digits-dg",
            dict.fromkeys(("mnist", "mnist_m", "svhn", "syn"), (4800, 1200)),
            10,
            "ROOT/<domain>/train/<digit>/* and ROOT/<domain>/val/<digit>/*, domains mnist, mnist_m, svhn, syn",
            "Digits-DG comes from Zhou et al. 2020 (Deep Domain-Adversarial Image Generation for Domain "
            "Generalisation); the Dassl project lists it.",
        ),
        Benchmark(
            "pacs",
            {"photo": (1499, 171), "art_painting": (1840, 208), "cartoon": (2107, 237), "sketch": (3531, 398)},
            7,
            "ROOT/images/<domain>/<class>/* and ROOT/splits/<domain>_train_kfold.txt, <domain>_crossval_kfold.txt, "
            "domains photo, art_painting, cartoon, sketch",
            "PACS comes from Li et al. 2017 (Deeper, Broader and Artier Domain Generalization): images and split lists "
            "are on its project page; the Dassl and DomainBed projects list it too.",
            HELD_OUT,
        ),
        Benchmark(
            "office-home",
            {"art": (2427,), "clipart": (4365,), "product": (4439,), "real_world": (4357,)},
            65,
            "ROOT/<domain>/<class>/*, domains Art, Clipart, Product, Real World (any usual spelling)",
            "Office-Home comes from Venkateswara et al. 2017 (Deep Hashing Network for Unsupervised Domain "
            "Adaptation): it is on its project page; the Dassl and DomainBed projects list it too.",
            HELD_OUT,
        ),
        Benchmark(
            "wbc",
            {"barcelona": (1600,), "tecom": (299,), "cellavision": (97,), "bccd": (348,)},
            4,
            "ROOT/<laboratory>/<class>/*, laboratories barcelona, tecom, cellavision, bccd, classes eosinophil, "
            "lymphocyte, monocyte, neutrophil",
            "White blood cells from four laboratories: barcelona, 400 per class of the PBC set (Acevedo et al. 2020, "
            "CC BY 4.0); tecom and cellavision (Zheng et al. 2018, research use); bccd, cells cut out of BCCD by its "
            "boxes (MIT).",
        ),
        Benchmark(
            "rsscn7",
            dict.fromkeys(("scale1", "scale2", "scale3", "scale4"), (700,)),
            7,
            "ROOT/<scale>/<class>/*, scales scale1 to scale4: of each class the images 1-100, 101-200, 201-300, "
            "301-400 of the original numbering",
            "RSSCN7 comes from Zou et al. 2015 (Deep Learning Based Feature Selection for Remote Sensing Scene "
            "Classification). No licence is stated.",
        ),
    )
}


def plain(name: str) -> str:
    """Lower-case letters and digits: `Real World`, `Real_World`, `RealWorld` are one name; mnist and mnist_m two."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def find_benchmark(name: str) -> Benchmark | None:
    return next((benchmark for benchmark in BENCHMARKS.values() if plain(benchmark.name) == plain(name)), None)


def named(name: str) -> Benchmark:
    benchmark = find_benchmark(name)
    if benchmark is None:
        raise UserError(f"There is no benchmark {name!r}. Known: {', '.join(BENCHMARKS)}")
    return benchmark


def open_catalog(name_or_path: str | Path, root: Path | str = "", follow_links: bool = False) -> Catalog:
    """`embedded`, a benchmark's name (with `root`), a folder of domains, or a CSV file."""
    name = str(name_or_path)
    if name == "embedded":
        return embedded_catalog()
    benchmark = find_benchmark(name)
    if benchmark and root:
        return benchmark_catalog(benchmark.name, root, follow_links)
    path = Path(name_or_path)
    if benchmark and not path.is_dir():
        raise UserError(f"Where is {benchmark.name}? Name its folder: --root DIR. Layout: {benchmark.layout}")
    if benchmark and len(locate(benchmark, Walk(path, follow_links))) == len(benchmark.counts):
        return benchmark_catalog(benchmark.name, path, follow_links)
    if root:
        raise UserError(f"There is no benchmark {name!r}. Those with a root are: {', '.join(BENCHMARKS)}")
    if path.suffix.lower() == ".csv" and not path.is_dir():
        return scan_csv(path)
    if path.is_file():
        raise UserError(f"{path} is neither a folder of domains nor a .csv file")
    if not path.exists():
        raise UserError(f"There is no folder or CSV file {name!r}. The only built-in data set is `embedded`.")
    return scan_folder(path, follow_links)


def benchmark_catalog(name: str, root: Path | str, follow_links: bool = False) -> Catalog:
    """All domains of a benchmark under their canonical names; a missing one is an error."""
    benchmark, top = named(name), Path(root)
    walk = Walk(top, follow_links)
    folders = locate(benchmark, walk)
    missing = [domain for domain in benchmark.counts if domain not in folders]
    if missing:
        away = f" Links that leave it are not followed: {some(walk.ignored_links)}; --follow-links reads them."
        links = away if walk.ignored_links else ""
        raise UserError(
            f"{benchmark.name} in {top} lacks {', '.join(missing)}.{links} Layout: {benchmark.layout}. "
            f"See: proud data check {benchmark.name} --root {top}"
        )
    lists = find_split_lists(folders, walk) if benchmark.name == "pacs" else {}
    domains: dict[str, DomainFiles] = {}
    for domain, folder in folders.items():
        if domain in lists:
            domains[domain] = read_split_lists(domain, folder, lists[domain], top)
        else:
            domains[domain] = read_domain(domain, folder, walk)
    unsplit = [domain for domain in domains if not domains[domain].ships_split]
    if unsplit and (len(unsplit) < len(domains) or benchmark.name == "digits-dg"):
        raise UserError(f"{benchmark.name} in {top}: no train/val split for {', '.join(unsplit)}. {benchmark.layout}")
    for split in () if unsplit else ("train", "val"):
        without = [
            name for name, domain in domains.items() if not any(entry.split == split for entry in domain.entries)
        ]
        if without:
            raise UserError(f"{benchmark.name} in {top}: no {split} images of {', '.join(without)}. {benchmark.layout}")
    return Catalog(benchmark.name, top, domains, held_out=benchmark.held_out if unsplit else None, benchmark=True)


def locate(benchmark: Benchmark, walk: Walk) -> dict[str, Path]:
    """Domain → folder, from the first folder at or below the root that holds the most of them; perhaps none."""
    best: dict[str, Path] = {}
    level = [walk.root] if walk.root.is_dir() else []
    for _ in range(DEEPEST + 1):
        below = {folder: walk.folders(folder) for folder in level}
        for folders in below.values():
            named = {plain(folder.name): folder for folder in reversed(folders)}
            found = {domain: named[plain(domain)] for domain in benchmark.counts if plain(domain) in named}
            if len(found) > len(best):
                best = found
        if len(best) == len(benchmark.counts):
            break
        level = [folder for folders in below.values() for folder in folders]
    return best


def read_domain(name: str, folder: Path, walk: Walk) -> DomainFiles:
    """`<class>/*`, or `train/<class>/*` and `val/<class>/*`."""
    folders = walk.folders(folder)
    splits = [sub for sub in folders if sub.name in ("train", "val")]
    if len(splits) == len(folders) and splits:
        entries = [entry for sub in splits for entry in _entries(walk, sub, sub.name)]
    else:
        entries = _entries(walk, folder, None)
    return DomainFiles(name, tuple(sorted(entries, key=lambda entry: entry.location)))


def _entries(walk: Walk, folder: Path, split: str | None) -> list[Entry]:
    found = []
    for path in walk.images(folder):
        inner = path.relative_to(folder).parts
        label = nfc(inner[0]) if len(inner) > 1 else None
        found.append(Entry(path.relative_to(walk.root).as_posix(), label, split))
    return found


def find_split_lists(domains: dict[str, Path], walk: Walk) -> dict[str, dict[str, Path]]:
    """PACS: domain → {"train": list, "val": list}, for those domains that have both."""
    found: dict[str, dict[str, Path]] = {}
    for domain in domains:
        for folder in _list_folders(domains, walk):
            lists = {
                "train": folder / f"{domain}_train_kfold.txt",
                "val": folder / f"{domain}_crossval_kfold.txt",
            }
            if all(path.is_file() for path in lists.values()):
                found[domain] = lists
                break
    return found


def _list_folders(domains: dict[str, Path], walk: Walk) -> Iterator[Path]:
    images = next(iter(domains.values())).parent
    yield images
    if images != walk.root:
        yield from (images.parent, *walk.folders(images.parent))
    yield from walk.folders(walk.root)


def read_split_lists(name: str, folder: Path, lists: dict[str, Path], root: Path) -> DomainFiles:
    """The images that the lists name, with their split."""
    listed = {split: listed_images(name, folder, path) for split, path in lists.items()}
    entries, missing = [], []
    for split, images in listed.items():
        for image in images:
            entries.append(Entry(image.relative_to(root).as_posix(), nfc(image.parent.name), split))
            if not image.is_file():
                missing.append(image.relative_to(folder.parent).as_posix())
    if missing:
        raise UserError(
            f"{len(missing)} images that the split lists of {name!r} name are not in {folder.parent}: {some(missing)}. "
            f"See: proud data check pacs --root {root}"
        )
    return DomainFiles(name, tuple(sorted(entries, key=lambda entry: entry.location)))


def listed_images(name: str, folder: Path, path: Path) -> list[Path]:
    """Where the images of a list belong. Lines are like `photo/dog/056_0001.jpg 1`.

    The class is the folder's name: the number behind it counts the same classes from 1.
    """
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        listed = Path(line.rsplit(maxsplit=1)[0])
        if len(listed.parts) != 3 or ".." in listed.parts:
            raise UserError(f"{path}: expected lines like '{name}/dog/picture.jpg 1', found {line!r}")
        found.append(folder / listed.parts[1] / listed.parts[2])
    return found
