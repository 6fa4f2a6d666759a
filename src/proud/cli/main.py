"""Entry point of the command: finds the command, parses its flags, then imports and calls it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import proud
from proud.cli.exit import exit_code, say
from proud.errors import UserError
from proud.printing import write


class Command(NamedTuple):
    """`flags`: a dataclass or a parse function in proud.cli.flags.MODULE; `run`, in proud.cli.MODULE, takes what it
    returns. Both are imported when needed."""

    module: str
    flags: str
    purpose: str


COMMANDS = {
    "demo": Command("demo", "DemoArguments", "train source-only and ProUD on the built-in digits and compare them"),
    "train": Command("train", "parse_train", "train on your folders, a CSV or a benchmark"),
    "evaluate": Command("evaluate", "EvaluateArguments", "measure a trained model on a labeled domain"),
    "predict": Command("predict", "PredictArguments", "classify images with a trained model"),
    "compare": Command("compare", "CompareArguments", "find out which of two models is better at a new site"),
    "export": Command("export", "ExportArguments", "write a trained model as ONNX, torch.export or timm"),
    "label-next": Command("label_next", "LabelNextArguments", "choose the images of each site to label next"),
    "review": Command("review", "ReviewArguments", "look at the answers on a local page and correct them"),
    "serve": Command("serve", "ServeArguments", "answer requests over HTTP: POST an image, get JSON"),
    "bench": Command("bench", "BenchArguments", "run a whole table: combinations of domains × seeds × methods"),
    "report": Command("report", "ReportArguments", "write one HTML page about runs and benches"),
    "verify": Command("verify", "VerifyArguments", "compare the files of a run or a model with their checksums"),
    "data": Command("data", "DataArguments", "check your images before training: proud data check ROOT"),
}


def main() -> None:
    """One clear line for errors that the user can fix, a traceback for the others."""
    warnings.showwarning = show_warning
    sys.exit(exit_code(lambda: run(sys.argv[1:])))


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print our own warnings; those of libraries are not for the user."""
    if category is UserWarning and Path(filename).is_relative_to(Path(proud.__file__).parent):
        say(f"warning: {message}", 0)


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print_help()
        return 0
    if argv[0] in ("-V", "--version"):
        write(f"proud {proud.__version__}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Commands: {', '.join(COMMANDS)}."
        raise UserError(f"There is no command {name!r}. {hint}")
    arguments = parsed(name, rest)
    command: Callable[[Any], int] = import_module(f"proud.cli.{COMMANDS[name].module}").run
    return command(arguments)


def parsed(name: str, argv: list[str]) -> Any:
    """The command's arguments."""
    command = COMMANDS[name]
    kind = getattr(import_module(f"proud.cli.flags.{command.module}"), command.flags)
    if not isinstance(kind, type):
        return kind(argv)
    description = " ".join((kind.__doc__ or "").split())
    return import_module("proud.cli.flags.shared").parse(kind, argv, name, description)


def print_help() -> None:
    write("usage: proud COMMAND [options]\n")
    write(
        "Semi-supervised domain generalization: labels from one domain, images from several, a model for unseen ones.\n"
    )
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        write(f"  {name:<{width}}  {command.purpose}")
    write("\nHelp for a command: proud train --help. For your own folders ROOT/<domain>/<class>/*:\n")
    write("  proud train --data ROOT --labeled central --test none --out runs/x")
    write("  proud predict runs/x NEW_IMAGES --out predictions.csv")
