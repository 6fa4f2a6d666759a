"""`proud export`."""

from __future__ import annotations

from pathlib import Path

from proud.cli.flags.export import ExportArguments
from proud.cli.show import show_plain
from proud.model.answers import AnswerOptions
from proud.model.export.save import export_model
from proud.text import file_size

DEFAULTS = {"onnx": "model.onnx", "torch": "model.pt2", "timm": "model-timm"}


def run(arguments: ExportArguments) -> int:
    out = Path(arguments.out or DEFAULTS[arguments.format])
    found = export_model(
        arguments.run,
        arguments.format,
        out,
        options=AnswerOptions(arguments.coverage, arguments.risk, arguments.sets),
        images=arguments.check,
        overwrite=arguments.overwrite,
    )
    files = [out] if out.is_file() else list(out.iterdir())
    show_plain(f"{arguments.run} → {out} ({file_size(sum(path.stat().st_size for path in files))})")
    show_plain(
        f"Checked with {found.images} images of {found.source}: the same labels, and probabilities within "
        f"{found.difference:.0e} of the saved model's."
    )
    return 0
