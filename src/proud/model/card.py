"""The model card: README.md of a model's folder, written from what the run knows, for people and for model hubs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from proud.stored import DomainRecord, Recall, ResultRecord, RunRecord, TrustRecord, VerdictRecord
from proud.text import in_markdown, one_line, printable
from proud.trust.fitted import read_trust
from proud.trust.intervals import accuracy_interval

ROLES = {
    "labeled": "labels used for training",
    "unlabeled": "trained on without labels",
    "test": "not trained on",
}


def model_card(
    run: RunRecord, result: ResultRecord, verdicts: Sequence[VerdictRecord], trust: TrustRecord | None
) -> str:
    """Names of classes and sites come from folders and may hold anything: they are plain text on the card."""
    parts = [
        front_matter(run, result),
        introduction(run),
        "## Data\n\n" + data_table(run["task"]["domains"]),
        "## Accuracy\n\n" + accuracy(run, result),
        "## Calibration\n\n" + calibration(trust),
        *(["## Verdicts on the unlabeled sites\n\n" + bullets(site["text"] for site in verdicts)] if verdicts else []),
        "## Limits\n\n" + limits(run, result),
        LICENCE,
        "## Made with\n\n" + made_with(run),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


# ---- for the hub


def front_matter(run: RunRecord, result: ResultRecord) -> str:
    """YAML, of which JSON is a part: every value is quoted."""
    about: dict[str, object] = {
        "library_name": "proud",
        "pipeline_tag": "image-classification",
        "license": "unknown",
        "tags": ["proud", "image-classification", "domain-generalization", "semi-supervised-learning"],
    }
    if "test_accuracy" in result:
        (test,) = (name for name, domain in run["task"]["domains"].items() if domain["role"] == "test")
        measured = {
            "task": {"type": "image-classification"},
            "dataset": {"name": short(f"{data_name(run)}: {test}"), "type": "imagefolder"},
            "metrics": [{"type": "accuracy", "value": round(result["test_accuracy"], 4)}],
        }
        about["model-index"] = [{"name": short(title(run)), "results": [measured]}]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in about.items()]
    return "\n".join(["---", *lines, "---"])


def short(name: str) -> str:
    return printable(one_line(name, 100))


def title(run: RunRecord) -> str:
    return f"{run['model']['name']}, trained with {run['config'].get('method', 'proud')}"


def data_name(run: RunRecord) -> str:
    """Without the path, which tells strangers about a machine."""
    return Path(run["task"]["data"]).name or "images"


# ---- sections


def introduction(run: RunRecord) -> str:
    classes, size, domains = run["task"]["classes"], run["model"]["size"], run["task"]["domains"].values()
    sites = sum(domain["role"] == "unlabeled" for domain in domains)
    others = f" and the images of {sites} other{'s' * (sites > 1)}" if sites else ""
    return f"""# {in_markdown(title(run))}

An image classifier for {len(classes)} classes, trained with the labels of one domain{others}
(semi-supervised domain generalization). Input: RGB images, resized to {size} × {size} pixels.

```python
from proud import ProUD

model = ProUD.from_pretrained("PATH")  # the folder of this file
model.predict("IMAGES")
```

Or: `proud predict PATH IMAGES --out predictions.csv`."""


def data_table(domains: Mapping[str, DomainRecord]) -> str:
    rows = []
    for name, domain in domains.items():
        validation = domain.get("validation", 0)
        use = ROLES[domain["role"]] + (f"; {validation} more for validation" if validation else "")
        known = f"; {domain['known']} labels added" if domain.get("known") else ""
        rows.append([in_markdown(name), str(domain["images"]), use + known])
    return table(["domain", "images", "use"], rows)


def accuracy(run: RunRecord, result: ResultRecord) -> str:
    """With 95 % intervals; of the means over the last epochs, as in result.json."""
    domains, rows = run["task"]["domains"], []
    if "val_accuracy" in result:
        found = accuracy_interval(result["val_accuracy"], result.get("val_images", 0))
        rows.append(["validation images of the labeled domain", str(found or "–")])
    for name, domain in domains.items():
        if domain["role"] == "test" and "test_accuracy" in result:
            rows.append([in_markdown(name), str(accuracy_interval(result["test_accuracy"], domain["images"]))])
    if not rows:
        return "Not measured: the run had neither validation images nor a labeled test domain."
    measured = table(["measured on", "accuracy (95 % interval)"], rows)
    return measured + "\n\nPer class:\n\n" + per_class(run, result)


def per_class(run: RunRecord, result: ResultRecord) -> str:
    domains = run["task"]["domains"].values()
    labeled = next((domain for domain in domains if domain["role"] == "labeled"), None)
    test = next((domain for domain in domains if domain["role"] == "test"), None)
    counts = labeled.get("per_class", {}) if labeled else {}
    columns: dict[str, tuple[Recall, Mapping[str, int]]] = {}
    if "val_recall" in result and labeled:
        columns["recall, validation"] = result["val_recall"], labeled.get("validation_per_class", {})
    if "test_recall" in result and test:
        columns["recall, test"] = result["test_recall"], test.get("per_class", {})
    rows = []
    for place, name in enumerate(run["task"]["classes"]):
        cells = [recall_cell(recalls[place], images.get(name, 0)) for recalls, images in columns.values()]
        rows.append([in_markdown(name), str(counts.get(name, "–")), *cells])
    return table(["class", "training images", *columns], rows)


def recall_cell(recall: float | None, images: int) -> str:
    if recall is None:
        return "–"
    return str(accuracy_interval(recall, images) or f"{100 * recall:.1f} %")


def calibration(trust: TrustRecord | None) -> str:
    found = read_trust(trust)
    if trust is None or found is None:
        return "The model was trained without validation images: its confidence is not calibrated."
    rows = []
    for name, text in (("validation", "labeled domain"), ("test", "test domain")):
        numbers = {"validation": trust.get("validation"), "test": trust.get("test")}[name]
        if numbers:
            shown = (numbers.get(key) for key in ("ece_before", "ece_after", "coverage", "answered", "risk"))
            rows.append([text, *("–" if value is None else f"{100 * value:.1f} %" for value in shown)])
    header = ["measured on", "ECE", "ECE, rescaled", "coverage of 90 % sets", "answered at 5 % risk", "wrong answers"]
    measured = "\n\n" + table(header, rows) if rows else ""
    return f"Confidence: {found.calibration()}. Coverage and risk are guaranteed on the labeled domain only." + measured


def limits(run: RunRecord, result: ResultRecord) -> str:
    labeled = [in_markdown(name) for name, domain in run["task"]["domains"].items() if domain["role"] == "labeled"]
    own = [
        "Every image gets one of the classes above, also an image of something else.",
        f"Labels came from {', '.join(labeled)} alone. At another site the accuracy can be far lower and the "
        "confidence too high: measure it there on labeled images (`proud evaluate`) before use.",
        "Not for decisions about people's health, safety or rights without a person who checks each one.",
    ]
    return "\n".join(f"- {text}" for text in own) + "\n" + bullets(result.get("warnings", []), "Warning: ")


LICENCE = """## Licence

Not chosen yet. Before sharing the model, replace this paragraph and the line `license:` above; the licences of the
images and of the pretrained weights may restrict the choice."""


def made_with(run: RunRecord) -> str:
    rows = [["seed", str(run["config"].get("seed", "–"))], ["device", in_markdown(run.get("device", "–"))]]
    rows += [[in_markdown(name), in_markdown(version)] for name, version in run.get("versions", {}).items()]
    return table(["", ""], [*rows, ["commit", in_markdown(run.get("commit") or "–")]])


# ---- Markdown


def bullets(texts: Iterable[str], before: str = "") -> str:
    return "\n".join(f"- {before}{in_markdown(text)}" for text in texts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))
