"""Every JSON file that a later command believes, as a type: names, types, lengths and ranges in one place.

`proud.typed` reads them. A new field is declared here first, with what it is: what is not declared is not read.
docs/reference/files.md is made from this file.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

MOST_CLASSES = 100_000
LARGEST_SIDE = 4096  # pixels

# ---- values

Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Mean = Annotated[float, Meta(ge=-1e4, le=1e4)]
Deviation = Annotated[float, Meta(ge=1e-4, le=1e4)]
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
        "uncertainty": Number,  # mean uncertainty of the pseudo-labels, Eq. 5
        "lambda_uncertainty": Number,  # mean λ by Eq. 7, before random ratios
        "lambda": Number,  # mean mixing ratio
        "certain": Number,  # share of pseudo-labels with λ above the threshold
        "class_shift": Number,  # total variation between their class mix and the labeled domain's
        "uncertain": Number,  # share above half of the largest uncertainty
        "agreement": Number,  # mean share of the views that agree with the label
        "prototype_shift": Number,  # mean cosine distance of the site's prototypes to the merged ones
        "stability": Number,  # share unchanged since the epoch before
        "accuracy": Share,  # of the pseudo-labels, where true labels are known
        "audited": Count,  # images with true labels, if not all
        "recall": Recall,  # of the pseudo-labels, by class
    },
    total=False,
)
"""Signals of a domain's pseudo-labels and, where true labels are known, their accuracy."""


class SharedWith(TypedDict):
    """The run of a bench whose work was used."""

    method: Name  # of that run
    test: Name  # its test domain


class EpochRecord(TypedDict):
    """One line of records.jsonl."""

    stage: Name  # pretrain, main or a stage of the method
    epoch: Count  # within the stage, from 1
    step: NotRequired[Count]  # optimizer steps of the stage so far
    losses: dict[Name, Number]  # mean over the epoch's steps
    domains: NotRequired[dict[Name, SiteRecord]]  # signals of each unlabeled domain
    val_accuracy: NotRequired[Share]  # on validation images, if evaluated in this epoch
    val_recall: NotRequired[Recall]  # by class
    test_accuracy: NotRequired[Share]  # on the test domain, if evaluated in this epoch
    test_recall: NotRequired[Recall]  # by class
    shared_with: NotRequired[SharedWith]  # the run of a bench that did this epoch


class TimingRecord(TypedDict):
    """One line of timings.jsonl."""

    stage: Name  # as in records.jsonl
    epoch: Count  # as in records.jsonl
    begin: NotRequired[Seconds]  # work before the first step, such as pseudo-labels
    steps: NotRequired[Seconds]  # all steps
    evaluation: NotRequired[Seconds]  # validation and test
    shared_with: NotRequired[SharedWith]  # as in records.jsonl


# ---- a run: run.json, result.json, diagnosis.json


class DomainRecord(TypedDict):
    """One domain of the run's data."""

    role: Literal["labeled", "unlabeled", "test"]  # what it is used for
    images: Count  # used for training; of the test domain, all
    validation: NotRequired[Count]  # images held out
    validation_per_class: NotRequired[dict[Name, Count]]  # the same by class
    per_class: NotRequired[dict[Name, Count]]  # images by class
    audited: NotRequired[Count]  # images whose true label is known to the audit alone
    known: NotRequired[Count]  # images with a label from --labels
    known_hash: NotRequired[Digest]  # digest of these labels
    found: NotRequired[bool]  # a site found in a pool
    examples: NotRequired[list[Text]]  # paths of some of its images


class PoolRecord(TypedDict):
    """Images of unknown origin, and the sites that were found among them."""

    images: Count  # in the pool
    sites: Count  # found or given
    separation: Number | None  # silhouette of the sites; null for one site


class SkippedFile(TypedDict):
    """An image that could not be read."""

    path: Text  # of the file
    reason: Text  # why it could not be read


class TaskRecord(TypedDict):
    """The run's data."""

    data: Text  # folder, table or name of the data
    benchmark: bool  # whether it is a public benchmark in its own layout
    size: Count  # side in pixels that the network sees
    square: Name  # middle, pad or stretch
    stored_side: Count  # side in pixels of the decoded images
    classes: Classes  # in the order of the network's outputs
    domains: dict[Name, DomainRecord]  # by name
    content: NotRequired[dict[Name, Digest]]  # digest of each domain's images, with labels where it has them
    pictures: NotRequired[dict[Name, Digest]]  # digest of each domain's image files
    held_out: NotRequired[list[Digest]]  # beginnings of the content hashes of the validation images
    skipped: list[SkippedFile]  # files that --skip-bad left out
    ignored_links: NotRequired[list[Text]]  # links that were not followed
    test_images_also_in_training: NotRequired[Count]  # copies of training images in the test domain
    mapped_from_cache: NotRequired[bool]  # whether images are read from the cache on disk
    pool: NotRequired[PoolRecord]  # of --unlabeled-pool


class SpecRecord(TypedDict):
    """A network and its input format."""

    name: Name  # digits, or a name known to timm
    classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)]  # number of classes
    size: Annotated[int, Meta(ge=1, le=LARGEST_SIDE)]  # side of the input in pixels
    mean: Annotated[list[Mean], Meta(min_length=3, max_length=3)]  # subtracted from each channel
    std: Annotated[list[Deviation], Meta(min_length=3, max_length=3)]  # divides each channel
    own_share: NotRequired[Annotated[float, Meta(ge=0, le=1)]]  # of an earlier version; only 0 is read
    square: NotRequired[Literal["middle", "pad", "stretch"]]  # how images become square


class StartRecord(TypedDict):
    """The model that a run started from."""

    folder: Text  # of the run given to --from
    weights: Digest  # SHA-256 of its weights
    config: Settings  # its settings
    pictures: NotRequired[dict[Name, Digest]]  # digests of the image files of each domain that it was trained on


class RunRecord(TypedDict):
    """run.json"""

    format: Literal["proud-run-1", "proud-run-2"]  # version of the run's folder
    id: NotRequired[Digest]  # random name of the run, also in .proud
    config: Settings  # all settings
    task: TaskRecord  # the data
    model: SpecRecord  # the network
    threads: NotRequired[Annotated[int, Meta(ge=1, le=1024)]]  # of the CPU
    processes: NotRequired[Annotated[int, Meta(ge=1, le=100_000)]]  # of a distributed run
    code: NotRequired[Name]  # digest of the method's source files
    versions: NotRequired[dict[Name, Name]]  # of Python and the main packages
    device: NotRequired[Name]  # kind and name
    commit: NotRequired[Name | None]  # of the source tree, if it has one
    started_from: NotRequired[StartRecord]  # of --from


class ScoreRecord(TypedDict):
    """A score, and the ends of its 95 % interval."""

    value: Share  # the score
    interval: Interval | None  # null where there are too many probabilities for it


class ScoresRecord(TypedDict):
    """Scores in which all classes count alike, over those that have images; `absent`: the others."""

    balanced_accuracy: ScoreRecord | None  # mean of the recalls
    macro_f1: ScoreRecord | None  # mean F1 score
    auroc: ScoreRecord | None  # mean area under the curve, each class against the rest
    absent: Annotated[list[Name], Meta(max_length=MOST_CLASSES)]  # classes without images


class ResultRecord(TypedDict):
    """result.json. Accuracies and recalls are means over the last epochs, scores those of the saved network."""

    epochs: Count  # over which accuracies and recalls are averaged
    folder: NotRequired[Text]  # of the run
    val_accuracy: NotRequired[Share]  # on validation images
    val_recall: NotRequired[Recall]  # by class
    test_accuracy: NotRequired[Share]  # on the test domain
    test_recall: NotRequired[Recall]  # by class
    domains_first: NotRequired[dict[Name, SiteRecord]]  # signals of each unlabeled domain in the first main epoch
    domains_last: NotRequired[dict[Name, SiteRecord]]  # the same in the last epoch
    val_images: NotRequired[Count]  # number of validation images
    val_interval: NotRequired[Interval]  # 95 % interval of val_accuracy
    test_images: NotRequired[Count]  # number of test images
    test_interval: NotRequired[Interval]  # 95 % interval of test_accuracy
    val_scores: NotRequired[ScoresRecord]  # on validation images
    test_scores: NotRequired[ScoresRecord]  # on the test domain
    warnings: NotRequired[Warnings]  # what went wrong without an error


class LookAt(TypedDict):
    """An image whose pseudo-label is doubtful."""

    path: Text  # of the image
    label: Name  # its pseudo-label
    uncertainty: Number  # of that label


class EstimateRecord(TypedDict):
    """The estimated accuracy of a site's pseudo-labels, and the ends of its interval."""

    accuracy: Share  # the estimate
    low: Share  # lower end of the 90 % interval
    high: Share  # upper end


class VerdictRecord(TypedDict):
    """One site of diagnosis.json. Earlier versions had other verdicts, and a score instead of the estimate."""

    name: Name  # of the site
    verdict: Name  # sound, cannot tell or poor
    text: Text  # the verdict as it is printed
    estimate: NotRequired[EstimateRecord | None]  # of the accuracy of its pseudo-labels
    signals: dict[Name, Number]  # from which it is computed
    look_at: Annotated[list[LookAt], Meta(max_length=1000)]  # its most uncertain images


# ---- a model: model.json


class TrustRecord(TypedDict):
    """Calibration, prediction sets and abstention; `trust.fitted` checks that the lists are complete."""

    images: Count  # validation images
    temperature: Number  # divides the logits
    quantiles: dict[Literal["lac", "aps"], list[Share | None]]  # of prediction sets, for coverages of 50 to 99 %
    thresholds: list[Share | None]  # of the confidence, for risks of 1 to 30 %; null where none can promise the risk
    validation: NotRequired[dict[Name, Number | None]]  # measurements on validation images
    test: NotRequired[dict[Name, Number | None]]  # measurements on the test domain
    folds: NotRequired[Count]  # networks of --folds that judged the validation images


class ModelRecord(TypedDict):
    """model.json"""

    format: Literal["proud-model-1", "proud-model-2"]  # version of the model's folder
    classes: Classes  # in the order of the outputs
    spec: SpecRecord  # the network
    config: NotRequired[Settings]  # settings of its run
    trust: NotRequired[TrustRecord]  # calibration; absent without validation images
    warnings: NotRequired[Warnings]  # of its run


class TensorHead(TypedDict, total=False):
    """One tensor in the header of a safetensors file; `__metadata__` has none of it."""

    dtype: Name  # as safetensors names it
    shape: Annotated[list[Count], Meta(max_length=16)]  # its sizes


# ---- what a folder holds: manifest.json, .proud


Stamps = dict[Name, tuple[Count, Digest]]
"""Size and SHA-256 of each file."""


class ManifestRecord(TypedDict):
    """manifest.json"""

    format: Literal["proud-manifest-1"]  # version
    files: Stamps  # every file that a command reads


class MarkRecord(TypedDict):
    """.proud"""

    format: Literal["proud-mark-1"]  # version
    kind: Literal["run", "demo"]  # what the folder holds
    id: Digest  # that of run.json
    writer: Digest  # random name of the process that writes it
    runs: NotRequired[list[Digest]]  # of a finished demo: those of its runs


# ---- checkpoints


class PositionRecord(TypedDict):
    """How far the run is."""

    stage: Count  # number of the stage
    epoch: Count  # finished in it
    records: Count  # lines of records.jsonl so far


class CheckpointRecord(TypedDict):
    """checkpoint-NNNNNN.json"""

    format: Literal["proud-checkpoint-3"]  # version
    run: Digest  # id of the run
    sha256: Digest  # of the tensors' file
    stamps: Stamps  # of all files written so far
    position: PositionRecord  # in the training
    config: Settings  # settings of the run


class KeptRecord(TypedDict):
    """kept.json: what one run of a bench keeps for others."""

    format: Literal["proud-kept-1"]  # version
    by: SharedWith  # the run that kept it
    epochs: Annotated[list[Count], Meta(min_length=1, max_length=1000)]  # whose networks are kept
    records: list[EpochRecord]  # of the shared epochs


# ---- a bench: results.jsonl, locks/*.lock


class SharedPart(SharedWith):
    """The run of a bench whose work was used, and for what."""

    part: Name  # what was shared: the whole training or a stage


class ResultRow(TypedDict):
    """One line of results.jsonl. It holds its own checksum; lines of the first version do not."""

    format: Literal["proud-result-1", "proud-result-2"]  # version
    bench: Name  # name of the data
    note: NotRequired[Name | None]  # of --note
    method: Name  # its name
    labeled: Name  # labeled domain
    test: Name  # test domain
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]  # of the run
    domains: list[Name]  # all domains
    unlabeled: NotRequired[list[Name] | None]  # those used without labels
    test_accuracy: Annotated[float, Meta(ge=0, le=1)]  # mean of the last epochs
    val_accuracy: NotRequired[Share | None]  # the same on validation images
    test_accuracy_last: NotRequired[list[Share]]  # of each of these epochs
    val_accuracy_last: NotRequired[list[Share]]  # of each of these epochs
    test_recall: NotRequired[Recall]  # by class
    val_recall: NotRequired[Recall]  # by class
    test_scores: NotRequired[ScoresRecord]  # of the saved network
    val_scores: NotRequired[ScoresRecord]  # of the saved network
    epochs: NotRequired[Count]  # over which accuracies are averaged
    domains_first: NotRequired[dict[Name, SiteRecord]]  # signals in the first main epoch
    domains_last: NotRequired[dict[Name, SiteRecord]]  # signals in the last epoch
    warnings: NotRequired[Warnings]  # of the run
    seconds: Seconds  # spent on this run
    images: NotRequired[dict[Name, Count]]  # by domain
    content: NotRequired[dict[Name, Digest]]  # digest of each domain's images
    skipped: NotRequired[Count]  # unreadable files
    commit: NotRequired[Name | None]  # of the source tree
    code: NotRequired[Name | None]  # digest of the method's source files
    versions: NotRequired[dict[Name, Name] | None]  # of Python and the main packages
    device: NotRequired[Name | None]  # kind and name
    threads: NotRequired[Count | None]  # of the CPU
    finished: NotRequired[Name]  # date and time
    command: NotRequired[Text]  # as it was typed
    shared: NotRequired[SharedPart]  # the run whose work was used
    config: Settings  # all settings


class ClaimRecord(TypedDict):
    """locks/*.lock: who holds it."""

    host: Name  # name of the machine
    pid: Count  # number of the process
    since: NotRequired[Name]  # date and time


# ---- an image cache: steps.jsonl, done.json


class PieceRecord(TypedDict):
    """One line of steps.jsonl."""

    name: Literal["hashes", "order", "images"]  # of the array
    piece: Count  # its number
    sum: Count  # its checksum
    bad: NotRequired[dict[Name, Text]]  # images that could not be read, by number


class CacheRecord(TypedDict):
    """done.json: checksums by piece, and size and time of each file."""

    version: Count  # of the cache
    count: Count  # images
    made_from: Settings  # what its name is the hash of
    sums: dict[Literal["hashes", "order", "images"], dict[Digest, Count]]  # by array and piece
    files: dict[Literal["hashes", "order", "images"], tuple[int, int]]  # size and time of each array's file
    bad: dict[Digest, Text]  # images that could not be read, by number


# ---- a comparison of two models: compare.json


class ComparedModel(TypedDict):
    """One of the two models of a comparison."""

    name: Text  # its folder, as it was given
    weights: Digest  # SHA-256 of its weights


class DrawnImage(TypedDict):
    """An image on which the models disagree, drawn to be labeled."""

    path: Text  # as in the table
    content: Digest  # SHA-256 of its file
    stratum: Annotated[int, Meta(ge=0, le=99)]  # its number, from 0
    first: Name  # answer of the first model
    second: Name  # answer of the second one


class ComparisonRecord(TypedDict):
    """compare.json: what `proud compare --labels` needs beside the table. It holds its own checksum."""

    format: Literal["proud-compare-1"]  # version
    folder: Name  # name of the folder with the images
    first: ComparedModel  # RUN_A
    second: ComparedModel  # RUN_B
    classes: Classes  # of both models
    images: Count  # in the folder
    disagreements: Count  # images to which the models give different labels
    strata: Annotated[list[Count], Meta(min_length=1, max_length=100)]  # disagreements in each
    drawn: Annotated[list[DrawnImage], Meta(min_length=1, max_length=10_000)]  # in the order of the table


# ---- an export: config.json


class TimmRecord(TypedDict):
    """config.json, as far as a network of timm is built from it."""

    architecture: Name  # name in timm
    num_classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)]  # outputs
    model_args: Annotated[dict[Name, Plain], Meta(max_length=100)]  # for timm.create_model


# ---- inside the package: trust/site_accuracy.json

Coefficients = Annotated[list[Number], Meta(min_length=1, max_length=100)]


class RegressionRecord(TypedDict):
    """From signals of a site to the accuracy of its pseudo-labels."""

    features: list[Name]  # signals, in the order of the lists below
    means: Coefficients  # subtracted from the signals
    scales: Coefficients  # divide them
    weights: Coefficients  # of the regression
    bias: Number  # of the regression
    half_width: Share  # of the 90 % interval


class SiteAccuracyRecord(TypedDict):
    """trust/site_accuracy.json"""

    regressions: dict[Name, RegressionRecord]  # by kind of run


# ---- a report


class ReportMark(TypedDict):
    """made-by-proud-report.json: the files of an earlier report."""

    files: list[Name]  # written by the report, which --overwrite may replace
