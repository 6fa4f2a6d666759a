"""Parts of pages that are made from the code: `<!-- generated: NAME -->` stands where one goes.

GitHub shows such a page without them; a name that is unknown, or that no page uses, is an error of the build.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from _extension import python_api
from _extension.commands import commands
from _extension.files import files
from _extension.layers import layers
from _extension.settings import presets, settings

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "presets": presets,
    "files": files,
    "layers": layers,
    "estimator": python_api.estimator,
    "parameters": python_api.parameters,
    "model": python_api.model,
    "errors": python_api.errors,
    "operations": python_api.operations,
}
MARK = re.compile(r"<!-- generated: ([\w-]+) -->")


def with_generated(text: str) -> str:
    return MARK.sub(lambda found: PARTS[found[1]](), text)
