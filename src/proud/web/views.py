"""What the page asks about an atlas: which images in which order, and why one of them got its class. No torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from proud.model.atlas import Atlas
from proud.model.feature_store import FeatureStore
from proud.text import printable
from proud.web.labels import LabelTable, Target

ALIKE = 6
GUESS: Literal["guess"] = "guess"
RANDOM_SEED = 2022
ORDERS: dict[str, str] = {
    "suggested": "Suggested to label next",
    "uncertain": "Most uncertain",
    "disagreeing": "Most disagreeing",
    "typical": "Most typical",
    "random": "Random",
}
SHOWN: dict[str, str] = {
    "all": "All images",
    "open": "Not labeled",
    "labeled": "Labeled",
    "corrected": "Corrected",
    "abstain": "Model abstains",
}


class Views:
    """An atlas together with the labels that it has got."""

    def __init__(self, atlas: Atlas, table: LabelTable, target: int) -> None:
        self.atlas, self.table, self.target = atlas, table, target
        self.columns = {name: values[: len(atlas)] for name, values in atlas.columns.items()}
        self.store = FeatureStore(atlas.store, atlas.width, len(atlas.classes))
        self.numbers = {name: k for k, name in enumerate(atlas.classes)}
        self.copies: dict[tuple[str, str], list[int]] = {}
        for row in range(len(atlas)):
            self.copies.setdefault(self.image(row).key, []).append(row)
        self.labels = np.full(len(atlas), -1, dtype=np.int32)
        self.read_labels()

    def image(self, row: int) -> Target:
        atlas, columns = self.atlas, self.columns
        return Target(
            domain=atlas.sites[columns["site"][row]].name,
            content=atlas.contents[row],
            path=atlas.locations[row],
            guess=atlas.classes[columns["guess"][row]],
            uncertainty=f"{columns['doubt'][row]:.4f}",
        )

    def read_labels(self) -> None:
        """From the table, which someone else may have edited."""
        if not self.table.rows:
            self.labels[:] = -1
            return
        for row in range(len(self.atlas)):
            self.labels[row] = self.numbers.get(self.table.label(self.image(row)), -1)

    # ---- changes

    def set(self, rows: Sequence[int], label: int | Literal["guess"] | None) -> list[tuple[int, int]]:
        """Rows and their new labels (-1: none); copies of an image change with it. `guess`: each as predicted."""
        images = [self.image(row) for row in rows]
        name = "" if label is None or label == GUESS else self.atlas.classes[label]
        wanted = [(image, image.guess if label == GUESS else name) for image in images]
        return self._changed(lambda: self.table.set(wanted))

    def undo(self) -> list[tuple[int, int]]:
        return self._changed(self.table.undo)

    def _changed(self, act: Callable[[], list[Any]]) -> list[tuple[int, int]]:
        before, version = self.labels.copy(), self.table.version
        changes = act()
        if self.table.version != version:
            self.read_labels()
        for change in changes:
            self.labels[self.copies[change.target.key]] = self.numbers.get(change.after, -1)
        rows = np.flatnonzero(before != self.labels)
        return list(zip(rows.tolist(), self.labels[rows].tolist(), strict=True))

    # ---- answers to the page

    def session(self) -> dict[str, Any]:
        sites = [site for site in self.atlas.sites if not site.labeled]
        return {
            "classes": list(self.atlas.classes),
            "sites": [
                {"name": site.name, "images": site.stop - site.start, "verdict": site.verdict, "text": site.text}
                for site in sites
            ],
            "verdicts": list(dict.fromkeys(site.verdict for site in sites if site.verdict)),
            "orders": ORDERS,
            "shown": SHOWN,
            "images": len(self.atlas),
            "version": hashlib.sha256("".join(self.atlas.contents).encode()).hexdigest()[:16],
            "notices": list(self.atlas.notices),
            **self.progress(),
        }

    def progress(self) -> dict[str, Any]:
        """Labeled images per site, of as many as `proud label-next` suggests; and whether there is anything to undo."""
        sites = [site for site in self.atlas.sites if not site.labeled]
        done = [int((self.labels[site.start : site.stop] >= 0).sum()) for site in sites]
        target = [min(self.target, site.stop - site.start) for site in sites]
        return {"labeled": done, "target": target, "undo": len(self.table.history)}

    def images(self) -> dict[str, list[Any]]:
        """Of every image: site, guess, confidence in percent, label, and whether the model abstains or disagrees."""
        columns = self.columns
        percent = (100 * columns["confidence"]).round().astype(int)
        disagrees = columns["guess"] != columns["prototype"]
        marks = columns["abstain"].astype(int) + 2 * disagrees.astype(int)
        found = {"site": columns["site"], "guess": columns["guess"], "confidence": percent}
        return {name: values.tolist() for name, values in (found | {"label": self.labels, "marks": marks}).items()}

    def view(self, order: str, site: int, guess: int, verdict: str, shown: str) -> np.ndarray:
        """Rows of the images to show, in order; -1 and "" do not filter."""
        columns = self.columns
        keep = self._shown(shown)
        if site >= 0:
            keep &= columns["site"] == site
        if guess >= 0:
            keep &= columns["guess"] == guess
        if verdict:
            wanted = [number for number, each in enumerate(self.atlas.sites) if each.verdict == verdict]
            keep &= np.isin(columns["site"], wanted)
        ranks = self._ranks(order)
        return ranks[keep[ranks]]

    def _shown(self, which: str) -> np.ndarray:
        masks: dict[str, Callable[[], np.ndarray]] = {
            "all": lambda: np.ones(len(self.labels), dtype=bool),
            "open": lambda: self.labels < 0,
            "labeled": lambda: self.labels >= 0,
            "corrected": lambda: (self.labels >= 0) & (self.labels != self.columns["guess"]),
            "abstain": lambda: self.columns["abstain"].copy(),
        }
        return masks[which]()

    def _ranks(self, order: str) -> np.ndarray:
        columns = self.columns
        picked = np.where(columns["suggested"] >= 0, columns["suggested"], np.iinfo(np.int32).max)
        keys: dict[str, tuple[np.ndarray, ...]] = {
            "suggested": (-columns["doubt"], picked),
            "uncertain": (-columns["doubt"],),
            "disagreeing": (-columns["disagreement"], columns["guess"] == columns["prototype"]),
            "typical": (-columns["confidence"], columns["distance"]),
            "random": (np.random.default_rng(RANDOM_SEED).permutation(len(picked)),),
        }
        return np.lexsort(keys[order])

    def why(self, row: int) -> dict[str, Any]:
        """The nearest prototypes, each with labeled images next to it, and the labeled images that look most alike."""
        columns, classes = self.columns, self.atlas.classes
        near = [
            {"class": int(k), "distance": round(float(distance), 3), "images": list(self.atlas.exemplars[k])}
            for k, distance in zip(columns["near"][row], columns["near_distance"][row], strict=True)
            if k >= 0
        ]
        image = self.image(row)
        return {
            "path": printable(image.path),
            "site": int(columns["site"][row]),
            "guess": int(columns["guess"][row]),
            "confidence": round(float(columns["confidence"][row]), 4),
            "abstain": bool(columns["abstain"][row]),
            "uncertainty": round(float(columns["doubt"][row]), 3),
            "prototype": classes[int(columns["prototype"][row])] if near else None,
            "suggested": bool(columns["suggested"][row] >= 0),
            "copies": len(self.copies[image.key]) - 1,
            "label": int(self.labels[row]),
            "prototypes": near,
            "alike": self.alike(row),
        }

    def alike(self, row: int) -> list[dict[str, Any]]:
        """By the cosine of the network's features."""
        labeled = self.atlas.labeled_rows
        if not len(labeled):
            return []
        rows = self.atlas.columns["row"]
        (own,) = next(self.store.features(rows[row : row + 1]))
        pieces = self.store.features(rows[labeled.start : labeled.stop])
        cosines = np.concatenate([cosine(piece, own) for piece in pieces])
        best = np.argsort(-cosines, kind="stable")[:ALIKE]
        truth = self.atlas.columns["truth"]
        return [
            {
                "image": labeled.start + at,
                "class": int(truth[labeled.start + at]),
                "cosine": round(float(cosines[at]), 3),
            }
            for at in best.tolist()
        ]


def cosine(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """[N,d], [d] -> [N]."""
    lengths = np.linalg.norm(many, axis=1) * np.linalg.norm(one)
    return (many @ one) / np.maximum(lengths, 1e-12)
