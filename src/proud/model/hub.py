"""A model's folder by its path, or by its name on a model hub."""

from __future__ import annotations

import re
from pathlib import Path

from proud.errors import UserError
from proud.model.format import MODEL_FILES
from proud.nets.models import from_cache_without_network
from proud.text import one_line

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def find_model(name: str | Path, revision: str | None = None) -> Path:
    """`OWNER/NAME` is looked up on the hub unless there is such a folder; only the files of a model are downloaded."""
    if Path(name).exists() or not HUB_NAME.fullmatch(str(name)):
        return Path(name)
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    try:
        with from_cache_without_network():
            return Path(snapshot_download(str(name), revision=revision, allow_patterns=sorted(MODEL_FILES)))
    except Exception as error:  # of the network, the hub or its client
        raise UserError(
            f"There is no folder {name}, and the hub has no such model, or cannot be reached ({one_line(error, 200)})."
        ) from error
