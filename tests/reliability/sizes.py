"""How much of `make soak` the ordinary tests do. docs/internals/reliability.md shows it."""

from __future__ import annotations

FUZZ = {"images": 400, "models": 150, "checkpoints": 100, "run folders": 100, "CSV tables": 100, "bench results": 100}
FOLDERS = 10  # damaged folders of runs and benches, each with every command
KILLS = 3  # of each kind: with a checkpoint after every epoch or every second, and of bench workers
LOSSES = 3  # power losses after each file event
WRITES = 12  # changes of files that fail
FLIPS = 60  # wrong bits in a finished run
HALF_DONE_FLIPS = 6  # wrong bits in a run that is resumed
COMMAND_KILLS = 4  # of `Model.save`
SERVER_KILLS = 2  # of `proud review`, and of `proud serve`
SOAK_ONLY = {  # like others, and some seconds each
    "the terminal is gone",
    "SIGTERM during evaluation",
    "SIGTERM during writing a checkpoint",
    "SIGTERM during writing the model",
    "SIGTERM during writing the manifest",
    "SIGTERM during removing the checkpoints",
    "SIGHUP during the first epoch",
    *(
        f"SIGINT during {moment}"
        for moment in (
            "reading images",
            "the first epoch",
            "pseudo-labelling",
            "evaluation",
            "writing a checkpoint",
            "writing the model",
            "writing the manifest",
            "removing the checkpoints",
        )
    ),
    # these need a file system of their own, and so root
    "the disk is full (a small tmpfs)",
    "the output becomes read-only in the middle of a run (remount)",
}
