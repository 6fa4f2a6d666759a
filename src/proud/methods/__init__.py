"""The methods by name. Adding one takes its file and one line here."""

from __future__ import annotations

import hashlib
import sys
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError

if TYPE_CHECKING:
    from proud.methods.base import Method, MethodConfig

# name -> (where its class is, what its config fixes)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "proud": ("proud.methods.proud:ProUD", {}),
    "proud-no-udmix": ("proud.methods.proud:ProUD", {"udmix": False}),
    "proud-no-pml": ("proud.methods.proud:ProUD", {"pml": False}),
    "proud-plus": ("proud.methods.proud_plus:ProUDPlus", {}),
    "erm": ("proud.methods.erm:ERM", {}),
    "erm-noisemix": ("proud.methods.erm:ERM", {"noisemix": True}),
    "mean-teacher": ("proud.methods.mean_teacher:MeanTeacher", {}),
    "mean-teacher-noisemix": ("proud.methods.mean_teacher:MeanTeacher", {"noisemix": True}),
    "mixmatch": ("proud.methods.mixmatch:MixMatch", {}),
    "mixmatch-noisemix": ("proud.methods.mixmatch:MixMatch", {"noisemix": True}),
    "fixmatch": ("proud.methods.fixmatch:FixMatch", {}),
    "fixmatch-noisemix": ("proud.methods.fixmatch:FixMatch", {"noisemix": True}),
    "rsc": ("proud.methods.rsc:RSC", {}),
    "rsc-noisemix": ("proud.methods.rsc:RSC", {"noisemix": True}),
    "l2d": ("proud.methods.l2d:L2D", {}),
    "dgvgs": ("proud.methods.dgvgs:DGvGS", {}),
    "eid": ("proud.methods.eid:EID", {}),
}


def method_class(name: str) -> type[Method]:
    if name not in METHODS:
        close = get_close_matches(name, METHODS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UserError(f"Unknown method {name!r}.{hint} Methods: {', '.join(METHODS)}.")
    module, _, attribute = METHODS[name][0].partition(":")
    return getattr(import_module(module), attribute)


def check_name(name: str, settings: dict[str, Any], flag: str = "{}={}") -> None:
    """A setting must not contradict the method's name."""
    for key, fixed in METHODS[name][1].items():
        given = settings.get(key, fixed)
        if given != fixed:
            raise UserError(f"{flag.format(key, given)}: {name!r} means {key}={fixed}. Leave one of the two out.")


def method_config(name: str, **settings: Any) -> MethodConfig:
    """The method's config with these settings, as far as it has them, and what its name fixes."""
    config_class = method_class(name).Config
    known = {key: value for key, value in settings.items() if key in config_class.__dataclass_fields__}
    return config_class(**known | METHODS[name][1])


@cache
def code_of(method: str) -> list[str]:
    """A method's class and the hashes of its files: an edited copy under the same name is another method."""
    kind = method_class(method)
    files = [getattr(sys.modules[each.__module__], "__file__", None) for each in kind.__mro__]
    contents = [hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in dict.fromkeys(files) if file]
    return [kind.__module__, kind.__qualname__, *contents]


def code_version(method: str) -> str:
    return hashlib.sha256(" ".join(code_of(method)).encode()).hexdigest()[:12]
