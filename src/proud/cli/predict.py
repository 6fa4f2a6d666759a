"""`proud predict`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.markup import escape

from proud.cli.flags.predict import PredictArguments
from proud.cli.show import console, messages_for, show_plain, show_warning, unreadable
from proud.data.decode import first_bad_files
from proud.errors import UserError
from proud.files import check_output, is_stdout
from proud.model.answers import AnswerOptions, guarantee
from proud.model.load import load_model
from proud.model.predict import (
    find_images,
    one_answer,
    predict_files,
    predict_site,
    write_predictions,
    write_skipped,
)

SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\0", b"MM\0*")  # of image files


def run(arguments: PredictArguments) -> int:
    with messages_for(arguments.out):
        return predict(arguments)


def predict(arguments: PredictArguments) -> int:
    out, to_stdout = arguments.out, is_stdout(arguments.out)
    skipped = out.parent / f"{out.stem}-left-out{out.suffix}"
    if not arguments.images:
        raise UserError("Name the images or folders to classify: proud predict RUN IMAGES --out predictions.csv")
    options = AnswerOptions(arguments.coverage, arguments.risk, arguments.sets, arguments.probabilities)
    for path in () if to_stdout else (out, skipped):
        check_output(path, arguments.overwrite)
    model = load_model(arguments.run, arguments.device)
    model.max_pixels = arguments.max_pixels
    files = find_images(with_listed(arguments.images), arguments.follow_links)
    about = guarantee(model.trust, options, arguments.adapt)
    notice = ""
    if arguments.adapt:
        rows, bad, notice = predict_site(model, files, options, skip_bad=arguments.skip_bad, progress=True)
    else:
        rows, bad = predict_files(model, files, options, skip_bad=arguments.skip_bad, progress=True)
    write_predictions(out, rows, model.classes)
    if not to_stdout:
        write_skipped(skipped, bad)
    console.print(f"{len(rows)} images → {'stdout' if to_stdout else escape(str(out))}", soft_wrap=True)
    if bad:
        show_plain(f"{unreadable(len(bad))} skipped{'' if to_stdout else f' → {skipped}'}\n{first_bad_files(bad)}")
    console.print(about, soft_wrap=True)
    for text in (*model.warnings, one_answer(rows), notice):
        show_warning(text)
    return 0


def with_listed(images: tuple[Path, ...]) -> list[Path]:
    """The images that are named, with - replaced by the paths on stdin: one per line, or separated by NUL bytes."""
    if Path("-") not in images:
        return list(images)
    content = sys.stdin.buffer.read()
    if content.startswith(SIGNATURES):
        raise UserError("stdin is an image, not a list of paths: name its file, or write the file's path to stdin.")
    names = content.split(b"\0") if b"\0" in content else content.splitlines()
    listed = [Path(os.fsdecode(name)) for name in names if name.strip()]
    if not listed:
        raise UserError("There are no paths on stdin: write one per line, as in: find NEW -name '*.jpg' | proud …")
    place = images.index(Path("-"))
    return [*images[:place], *listed, *(path for path in images[place:] if path != Path("-"))]
