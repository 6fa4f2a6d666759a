"""`--tensorboard`: the scalars of records.jsonl and the pairs of the snapshots, for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proud.errors import UserError
from proud.training.loop import Progress
from proud.training.snapshot import MOMENTS

FOLDER = "tensorboard"
ALSO_SHOWN = ("labeled", "unlabeled", "mixed")


class TensorBoard:
    """Watches every epoch: scalars of each record, and the mixed pairs of each new snapshot."""

    def __init__(self, run: Path, resume: bool) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError as error:
            raise UserError("--tensorboard needs a package: pip install 'proud[tensorboard]'.") from error
        self.run, self.resume = run, resume
        self._make: Any = SummaryWriter
        self._writer: Any = None
        self._shown: dict[str, float] = {}

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, now: Progress) -> None:
        if now.record is None:
            return
        if self._writer is None:  # only now: the run's folder has been checked
            if (self.run / FOLDER).is_symlink():
                raise UserError(f"{self.run / FOLDER} is a link: remove it, or leave out --tensorboard.")
            for old in () if self.resume else (self.run / FOLDER).glob("events.out.tfevents.*"):
                old.unlink()
            self._writer = self._make(str(self.run / FOLDER))
        for name, value in scalars(now.record).items():
            self._writer.add_scalar(f"{now.stage}/{name}", value, now.epoch)
        self._pairs(now)
        self._writer.flush()

    def _pairs(self, now: Progress) -> None:
        from safetensors.torch import load_file  # noqa: PLC0415

        for moment in MOMENTS:
            path = self.run / "snapshots" / f"{moment}.safetensors"
            if not path.is_file() or self._shown.get(moment) == path.stat().st_mtime:
                continue
            self._shown[moment] = path.stat().st_mtime
            held = load_file(path)
            for name in ALSO_SHOWN:
                if f"method/pairs/{name}" in held:
                    self._writer.add_images(f"pairs/{name}", held[f"method/pairs/{name}"], now.epoch)


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """Losses, scores, and what is known of each unlabeled domain."""
    found = {f"loss/{name}": value for name, value in record.get("losses", {}).items()}
    found |= {name: record[name] for name in ("val_accuracy", "test_accuracy") if name in record}
    for site, values in record.get("domains", {}).items():
        found |= {f"{site}/{name}": value for name, value in values.items() if isinstance(value, float)}
    return found
