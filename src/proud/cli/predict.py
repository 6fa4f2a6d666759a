"""`proud predict`."""

from __future__ import annotations

from rich.markup import escape

from proud.cli.flags.predict import PredictArguments
from proud.cli.show import console, show_plain, show_warning, unreadable
from proud.data.decode import first_bad_files
from proud.errors import UserError
from proud.files import check_output
from proud.model.answers import AnswerOptions, guarantee
from proud.model.load import load_model
from proud.model.predict import find_images, one_answer, predict_files, write_predictions, write_skipped


def run(arguments: PredictArguments) -> int:
    skipped = arguments.out.parent / f"{arguments.out.stem}-left-out{arguments.out.suffix}"
    if not arguments.images:
        raise UserError("Name the images or folders to classify: proud predict RUN IMAGES --out predictions.csv")
    options = AnswerOptions(arguments.coverage, arguments.risk, arguments.sets, arguments.probabilities)
    for path in (arguments.out, skipped):
        check_output(path, arguments.overwrite)
    model = load_model(arguments.run, arguments.device)
    files = find_images(arguments.images)
    about = guarantee(model.trust, options)
    rows, bad = predict_files(model, files, options, skip_bad=arguments.skip_bad, progress=True)
    write_predictions(arguments.out, rows, model.classes)
    write_skipped(skipped, bad)
    console.print(f"{len(rows)} images → {escape(str(arguments.out))}", soft_wrap=True)
    if bad:
        show_plain(f"{unreadable(len(bad))} skipped → {skipped}\n{first_bad_files(bad)}")
    console.print(about, soft_wrap=True)
    for text in (*model.warnings, one_answer(rows)):
        show_warning(text)
    return 0
