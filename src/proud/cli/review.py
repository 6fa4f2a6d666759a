"""`proud review`."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from rich.markup import escape

from proud.cli.flags.review import ReviewArguments
from proud.cli.next_command import method_for_labels, next_command
from proud.cli.show import console, show_warning
from proud.errors import UserError
from proud.files import check_writable, user_cache
from proud.model.atlas import Atlas
from proud.model.format import read_run, run_folder
from proud.model.label_table import earlier_rows, refuse_own_labels
from proud.text import some
from proud.web.launch import check_installed, listen, run_server


def run(arguments: ReviewArguments) -> int:
    check_installed()
    from proud.web.guard import Guard  # noqa: PLC0415
    from proud.web.labels import LabelTable, only_writer  # noqa: PLC0415
    from proud.web.review import Review  # noqa: PLC0415
    from proud.web.thumbnails import Thumbnails  # noqa: PLC0415
    from proud.web.views import Views  # noqa: PLC0415

    folder, cache, out = run_folder(arguments.run), user_cache() / "review", arguments.out
    config = read_run(folder)["config"]
    refuse_own_labels(out, config)
    check_writable(out)
    address = listen(arguments.host, arguments.port)
    with only_writer(out, cache / "locks"):
        table = LabelTable(out, earlier_rows(config))
        atlas = apart(survey_of(arguments, folder, cache / "features"))
        for text in atlas.notices:
            show_warning(text)
        views = Views(atlas, table, arguments.k)
        note = note_on(atlas, config)
        review = Review(views, Thumbnails(cache), next_command(config, folder, out), str(out), note)
        app = Guard(review.app(), address.host, address.port, address.token)
        run_server(app, address, lambda: show_address(address.url, len(atlas)))
        console.print(f"{int((views.labels >= 0).sum())} labels are in {escape(str(out))}", soft_wrap=True)
    return 0


def survey_of(arguments: ReviewArguments, folder: Path, cache: Path) -> Callable[[], Atlas]:
    options: dict[str, Any] = {name: getattr(arguments, name) for name in ("data", "root", "k", "device")}
    return partial(survey, folder, arguments.folders, cache=cache, progress=True, **options)


def survey(*arguments: Any, **options: Any) -> Atlas:
    from proud.model.survey import survey  # noqa: PLC0415

    return survey(*arguments, **options)


def apart(act: Callable[[], Atlas]) -> Atlas:
    """In a process of its own, with torch: the server stays small. It ends with this one."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_result, args=(act, sender), daemon=True)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        raise UserError("The process that looks at the images was killed, perhaps for lack of memory.") from None
    finally:
        process.terminate()
        process.join()
    if isinstance(found, Exception):
        raise found
    return cast(Atlas, found)


def send_result(act: Callable[[], Any], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process, which ends this one
    try:
        sender.send(act())
    except Exception as error:
        sender.send(error)


def note_on(atlas: Atlas, config: dict[str, Any]) -> str:
    """What to know before training with the labels."""
    method, own = str(config.get("method", "")), method_for_labels(str(config.get("method", "")))
    notes = [] if own == method else [f"{method} cannot use added labels, {own} can."]
    if new := [site.name for site in atlas.sites if not site.in_run]:
        notes.append(f"Put the folders of new sites ({some(new)}) beside those of the others first.")
    return " ".join(notes)


def show_address(url: str, count: int) -> None:
    console.print(f"{count:,} images. Open this address; Ctrl-C ends the server:")
    console.print(f"[bold]{escape(url)}[/bold]", soft_wrap=True, highlight=False)
