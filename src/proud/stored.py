"""Every JSON file that a later command believes, as a type: names, types, lengths and ranges in one place.

`proud.typed` reads them. A new field is declared here first: what is not declared is not read.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

MOST_CLASSES = 100_000
LARGEST_SIDE = 4096  # pixels

# ---- values

Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Share = Annotated[float, Meta(ge=-1e-6, le=1 + 1e-6)]  # rounding
Name = Annotated[str, Meta(max_length=10_000)]
Text = Annotated[str, Meta(max_length=100_000)]
Digest = Annotated[str, Meta(max_length=200)]
Classes = Annotated[list[Name], Meta(min_length=1, max_length=MOST_CLASSES)]
Recall = Annotated[list[Share | None], Meta(max_length=MOST_CLASSES)]  # None: no image of the class
Interval = Annotated[list[Share], Meta(min_length=2, max_length=2)]
Warnings = Annotated[list[Text], Meta(max_length=10_000)]
Plain = None | bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Number | Name
Settings = dict[Name, Plain | list[Plain] | dict[Name, Plain | list[Plain]]]
"""As `config.flat` makes them; `RunConfig.from_stored` checks them setting by setting."""

# ---- epochs: records.jsonl, timings.jsonl

SiteRecord = TypedDict(
    "SiteRecord",
    {
        "uncertainty": Number,
        "lambda_uncertainty": Number,
        "lambda": Number,
        "certain": Number,
        "class_shift": Number,
        "uncertain": Number,
        "agreement": Number,
        "prototype_shift": Number,
        "stability": Number,
        "accuracy": Share,
        "audited": Count,
        "recall": Recall,
    },
    total=False,
)
"""Signals of a domain's pseudo-labels and, where true labels are known, their accuracy."""


class SharedWith(TypedDict):
    """The run of a bench whose work was used."""

    method: Name
    test: Name


class EpochRecord(TypedDict):
    """One line of records.jsonl."""

    stage: Name
    epoch: Count
    step: NotRequired[Count]
    losses: dict[Name, Number]
    domains: NotRequired[dict[Name, SiteRecord]]
    val_accuracy: NotRequired[Share]
    val_recall: NotRequired[Recall]
    test_accuracy: NotRequired[Share]
    test_recall: NotRequired[Recall]
    shared_with: NotRequired[SharedWith]


class TimingRecord(TypedDict):
    """One line of timings.jsonl."""

    stage: Name
    epoch: Count
    begin: NotRequired[Seconds]
    steps: NotRequired[Seconds]
    evaluation: NotRequired[Seconds]
    shared_with: NotRequired[SharedWith]


# ---- a run: run.json, result.json, diagnosis.json


class DomainRecord(TypedDict):
    """One domain of the run's data."""

    role: Literal["labeled", "unlabeled", "test"]
    images: Count
    validation: NotRequired[Count]
    validation_per_class: NotRequired[dict[Name, Count]]
    per_class: NotRequired[dict[Name, Count]]
    audited: NotRequired[Count]
    known: NotRequired[Count]
    known_hash: NotRequired[Digest]
    found: NotRequired[bool]
    examples: NotRequired[list[Text]]


class PoolRecord(TypedDict):
    """Images of unknown origin, and the sites that were found among them."""

    images: Count
    sites: Count
    separation: Number | None


class SkippedFile(TypedDict):
    path: Text
    reason: Text


class TaskRecord(TypedDict):
    """The run's data."""

    data: Text
    benchmark: bool
    size: Count
    square: Name
    stored_side: Count
    classes: Classes
    domains: dict[Name, DomainRecord]
    content: NotRequired[dict[Name, Digest]]
    pictures: NotRequired[dict[Name, Digest]]
    skipped: list[SkippedFile]
    ignored_links: NotRequired[list[Text]]
    test_images_also_in_training: NotRequired[Count]
    mapped_from_cache: NotRequired[bool]
    pool: NotRequired[PoolRecord]


class SpecRecord(TypedDict):
    """A network and its input format."""

    name: Name
    classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)]
    size: Annotated[int, Meta(ge=1, le=LARGEST_SIDE)]
    mean: Annotated[list[Annotated[float, Meta(ge=-1e4, le=1e4)]], Meta(min_length=3, max_length=3)]
    std: Annotated[list[Annotated[float, Meta(ge=1e-4, le=1e4)]], Meta(min_length=3, max_length=3)]
    own_share: NotRequired[Annotated[float, Meta(ge=0, le=1)]]
    square: NotRequired[Literal["middle", "pad", "stretch"]]


class StartRecord(TypedDict):
    """The model that a run started from."""

    folder: Text
    weights: Digest
    config: Settings


class RunRecord(TypedDict):
    """run.json"""

    format: Literal["proud-run-1", "proud-run-2"]
    id: NotRequired[Digest]
    config: Settings
    task: TaskRecord
    model: SpecRecord
    threads: NotRequired[Annotated[int, Meta(ge=1, le=1024)]]
    processes: NotRequired[Annotated[int, Meta(ge=1, le=100_000)]]
    code: NotRequired[Name]
    versions: NotRequired[dict[Name, Name]]
    device: NotRequired[Name]
    commit: NotRequired[Name | None]
    started_from: NotRequired[StartRecord]


class ScoreRecord(TypedDict):
    """A score, and the ends of its 95 % interval."""

    value: Share
    interval: Interval | None


class ScoresRecord(TypedDict):
    """Scores in which all classes count alike, over those that have images; `absent`: the others."""

    balanced_accuracy: ScoreRecord | None
    macro_f1: ScoreRecord | None
    auroc: ScoreRecord | None
    absent: Annotated[list[Name], Meta(max_length=MOST_CLASSES)]


class ResultRecord(TypedDict):
    """result.json. Accuracies and recalls are means over the last epochs, scores those of the saved network."""

    epochs: Count
    folder: NotRequired[Text]
    val_accuracy: NotRequired[Share]
    val_recall: NotRequired[Recall]
    test_accuracy: NotRequired[Share]
    test_recall: NotRequired[Recall]
    domains_first: NotRequired[dict[Name, SiteRecord]]
    domains_last: NotRequired[dict[Name, SiteRecord]]
    val_images: NotRequired[Count]
    val_interval: NotRequired[Interval]
    test_images: NotRequired[Count]
    test_interval: NotRequired[Interval]
    val_scores: NotRequired[ScoresRecord]
    test_scores: NotRequired[ScoresRecord]
    warnings: NotRequired[Warnings]


class LookAt(TypedDict):
    """An image whose pseudo-label is doubtful."""

    path: Text
    label: Name
    uncertainty: Number


class EstimateRecord(TypedDict):
    """The estimated accuracy of a site's pseudo-labels, and the ends of its interval."""

    accuracy: Share
    low: Share
    high: Share


class VerdictRecord(TypedDict):
    """One site of diagnosis.json. Earlier versions had other verdicts, and a score instead of the estimate."""

    name: Name
    verdict: Name
    text: Text
    estimate: NotRequired[EstimateRecord | None]
    signals: dict[Name, Number]
    look_at: Annotated[list[LookAt], Meta(max_length=1000)]


# ---- a model: model.json


class TrustRecord(TypedDict):
    """Calibration, prediction sets and abstention; `trust.fitted` checks that the lists are complete."""

    images: Count
    temperature: Number
    quantiles: dict[Literal["lac", "aps"], list[Share | None]]
    thresholds: list[Share | None]
    validation: NotRequired[dict[Name, Number | None]]
    test: NotRequired[dict[Name, Number | None]]
    folds: NotRequired[Count]


class ModelRecord(TypedDict):
    """model.json"""

    format: Literal["proud-model-1", "proud-model-2"]
    classes: Classes
    spec: SpecRecord
    config: NotRequired[Settings]
    trust: NotRequired[TrustRecord]
    warnings: NotRequired[Warnings]


class TensorHead(TypedDict, total=False):
    """One tensor in the header of a safetensors file; `__metadata__` has none of it."""

    dtype: Name
    shape: Annotated[list[Count], Meta(max_length=16)]


# ---- what a folder holds: manifest.json, .proud


Stamps = dict[Name, tuple[Count, Digest]]
"""Size and SHA-256 of each file."""


class ManifestRecord(TypedDict):
    """manifest.json"""

    format: Literal["proud-manifest-1"]
    files: Stamps


class MarkRecord(TypedDict):
    """.proud"""

    format: Literal["proud-mark-1"]
    kind: Literal["run", "demo"]
    id: Digest
    writer: Digest


# ---- checkpoints


class PositionRecord(TypedDict):
    stage: Count
    epoch: Count
    records: Count


class CheckpointRecord(TypedDict):
    """checkpoint-NNNNNN.json"""

    format: Literal["proud-checkpoint-3"]
    run: Digest
    sha256: Digest
    stamps: Stamps
    position: PositionRecord
    config: Settings


class KeptRecord(TypedDict):
    """kept.json: what one run of a bench keeps for others."""

    format: Literal["proud-kept-1"]
    by: SharedWith
    epochs: Annotated[list[Count], Meta(min_length=1, max_length=1000)]
    records: list[EpochRecord]


# ---- a bench: results.jsonl, locks/*.lock


class SharedPart(SharedWith):
    part: Name


class ResultRow(TypedDict):
    """One line of results.jsonl."""

    format: Literal["proud-result-1"]
    bench: Name
    note: NotRequired[Name | None]
    method: Name
    labeled: Name
    test: Name
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    domains: list[Name]
    unlabeled: NotRequired[list[Name] | None]
    test_accuracy: Annotated[float, Meta(ge=0, le=1)]
    val_accuracy: NotRequired[Share | None]
    test_accuracy_last: NotRequired[list[Share]]
    val_accuracy_last: NotRequired[list[Share]]
    test_recall: NotRequired[Recall]
    val_recall: NotRequired[Recall]
    test_scores: NotRequired[ScoresRecord]
    val_scores: NotRequired[ScoresRecord]
    epochs: NotRequired[Count]
    domains_first: NotRequired[dict[Name, SiteRecord]]
    domains_last: NotRequired[dict[Name, SiteRecord]]
    warnings: NotRequired[Warnings]
    seconds: Seconds
    images: NotRequired[dict[Name, Count]]
    content: NotRequired[dict[Name, Digest]]
    skipped: NotRequired[Count]
    commit: NotRequired[Name | None]
    code: NotRequired[Name | None]
    versions: NotRequired[dict[Name, Name] | None]
    device: NotRequired[Name | None]
    threads: NotRequired[Count | None]
    finished: NotRequired[Name]
    command: NotRequired[Text]
    shared: NotRequired[SharedPart]
    config: Settings


class ClaimRecord(TypedDict):
    """Who holds a lock."""

    host: Name
    pid: Count
    since: NotRequired[Name]


# ---- an image cache: steps.jsonl, done.json


class PieceRecord(TypedDict):
    """One line of steps.jsonl."""

    name: Literal["hashes", "order", "images"]
    piece: Count
    sum: Count
    bad: NotRequired[dict[Name, Text]]


class CacheRecord(TypedDict):
    """done.json: checksums by piece, and size and time of each file."""

    version: Count
    count: Count
    made_from: Settings
    sums: dict[Literal["hashes", "order", "images"], dict[Digest, Count]]
    files: dict[Literal["hashes", "order", "images"], tuple[int, int]]
    bad: dict[Digest, Text]


# ---- an export: config.json


class TimmRecord(TypedDict):
    """config.json, as far as a network of timm is built from it."""

    architecture: Name
    num_classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)]
    model_args: Annotated[dict[Name, Plain], Meta(max_length=100)]


# ---- inside the package: trust/site_accuracy.json

Coefficients = Annotated[list[Number], Meta(min_length=1, max_length=100)]


class RegressionRecord(TypedDict):
    features: list[Name]
    means: Coefficients
    scales: Coefficients
    weights: Coefficients
    bias: Number
    half_width: Share


class SiteAccuracyRecord(TypedDict):
    regressions: dict[Name, RegressionRecord]


# ---- a report


class ReportMark(TypedDict):
    """The files of an earlier report."""

    files: list[Name]
