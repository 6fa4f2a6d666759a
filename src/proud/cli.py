"""The command `proud`: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional

import proud
from proud.config import Options, RunConfig
from proud.errors import UserError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo_command", "train source-only and ProUD on the built-in digits and compare them"),
    "train": ("train_command", "train on your folders, a CSV or a benchmark"),
    "evaluate": ("evaluate_command", "measure a trained model on a labeled domain"),
    "predict": ("predict_command", "classify images with a trained model"),
    "data": ("data_command", "look at a data set before training: `proud data check pacs --root DIR`"),
}


def main() -> None:
    """Entry point: one clear line for what the user can mend, a traceback for what only we can."""
    try:
        code = run(sys.argv[1:])
    except UserError as error:
        print(f"proud: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("proud: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print_help()
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"proud {proud.__version__}")
        return 0
    if argv[0] not in COMMANDS:
        from difflib import get_close_matches

        close = get_close_matches(argv[0], COMMANDS, n=1)
        raise UserError(
            f"There is no command {argv[0]!r}." + (f" Did you mean {close[0]!r}?" if close else " See proud --help.")
        )
    command: Callable[[list[str]], int] = globals()[COMMANDS[argv[0]][0]]
    return command(argv[1:])


def print_help() -> None:
    print("usage: proud COMMAND [options]\n")
    print(
        "Semi-supervised domain generalization: labels from one domain, images from several, a model for unseen ones.\n"
    )
    width = max(map(len, COMMANDS))
    for name, (_, purpose) in COMMANDS.items():
        print(f"  {name:<{width}}  {purpose}")
    print("\nEach command explains itself: proud train --help. On your own folders ROOT/<domain>/<class>/*:\n")
    print("  proud train --data ROOT --labeled central --test none --out runs/x")
    print("  proud predict runs/x NEW_IMAGES --out predictions.csv")


def parse(kind: Any, argv: list[str], command: str, description: str, default: Any = None) -> Any:
    """Flags from a dataclass, all on one level."""
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
    extra = {} if default is None else {"default": default}
    return tyro.cli(kind, args=argv, prog=f"proud {command}", description=description, config=config, **extra)


def peek(argv: list[str], flag: str, default: str) -> str:
    """The value of a flag before the whole line is parsed: other defaults depend on it."""
    for place, word in enumerate(argv):
        if word == f"--{flag}" and place + 1 < len(argv):
            return argv[place + 1]
        if word.startswith(f"--{flag}="):
            return word.partition("=")[2]
    return default


def train_arguments(argv: list[str]) -> tuple[RunConfig, Any, Options]:
    from proud.methods import method_config
    from proud.presets import preset

    method, data, model = peek(argv, "method", "proud"), peek(argv, "data", "embedded"), peek(argv, "model", "auto")
    settings = method_config(method, **preset(data, model))
    kind = make_dataclass(
        "Train", [("run", RunConfig), ("method_settings", type(settings)), ("options", Options)], frozen=True
    )
    description = (
        f"Train a model. The settings of method {method!r} are shown with their defaults for this data; "
        "--method NAME --data NAME --help shows others."
    )
    default = kind(RunConfig(method=method, data=data), settings, Options())
    found = parse(kind, argv, "train", description, default)
    return found.run, found.method_settings, found.options


def train_command(argv: list[str]) -> int:
    run_config, settings, options = train_arguments(argv)
    from proud import console

    return console.train(run_config, settings, options)


@dataclass(frozen=True)
class EvaluateArguments:
    run: Positional[Path]
    """folder of a finished run"""
    domain: str
    """the domain to measure on"""
    data: str = ""
    """folder, CSV, benchmark or `embedded`; default: the run's own data"""
    root: str = ""
    """where a named benchmark is unpacked"""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`"""
    skip_bad: bool = False
    """leave unreadable images out instead of stopping"""


def evaluate_command(argv: list[str]) -> int:
    arguments = parse(EvaluateArguments, argv, "evaluate", "Measure a trained model on one labeled domain.")
    from proud import console

    return console.evaluate(arguments)


@dataclass(frozen=True)
class PredictArguments:
    run: Positional[Path]
    """folder of a finished run"""
    images: Positional[tuple[Path, ...]]
    """image files or folders"""
    out: Path = Path("predictions.csv")
    """CSV to write: path, label, confidence"""
    overwrite: bool = False
    """replace the CSV if it is there"""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`"""
    skip_bad: bool = False
    """leave unreadable images out instead of stopping"""


def predict_command(argv: list[str]) -> int:
    arguments = parse(PredictArguments, argv, "predict", "Classify images with a trained model.")
    from proud import console

    return console.predict(arguments)


@dataclass(frozen=True)
class DemoArguments:
    out: Path = Path("runs/demo")
    """folder for both runs; a demo's earlier files there are replaced"""
    seed: int = 2022
    """decides every random choice"""


def demo_command(argv: list[str]) -> int:
    arguments = parse(
        DemoArguments, argv, "demo", "Source-only against ProUD on the built-in digits: pen labeled, street unseen."
    )
    from proud import console

    return console.demo(arguments.out, arguments.seed)


@dataclass(frozen=True)
class DataArguments:
    action: Positional[str]
    """`check`"""
    name: Positional[str]
    """digits-dg, pacs, office-home, a folder or a CSV"""
    root: str = ""
    """where a named benchmark is unpacked"""


def data_command(argv: list[str]) -> int:
    arguments = parse(DataArguments, argv, "data", "Count a data set's images against the canonical numbers.")
    if arguments.action != "check":
        raise UserError(f"proud data knows only `check`, not {arguments.action!r}.")
    from proud import console

    return console.check_data(arguments.name, arguments.root)


if __name__ == "__main__":
    main()
