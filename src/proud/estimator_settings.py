"""The parameters of `ProUD`: the fields of `RunConfig` and `Options`, and the settings of the method."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from difflib import get_close_matches
from inspect import Parameter, Signature
from typing import Any

from proud.config import DomainSpec, Options, RunConfig
from proud.errors import UserError
from proud.methods import method_class

GIVEN_TO_FIT = {field.name for field in fields(DomainSpec)}
"""`fit` gets the images themselves"""

COMMON_SETTINGS = ("epochs", "batch_size", "lr")
"""of all methods; None: the default for the data"""


def own_parameters() -> dict[str, Any]:
    """Name → default of everything but the method's settings: the fields of `RunConfig` and `Options`."""
    defaults = {field.name: field.default for kind in (RunConfig, Options) for field in fields(kind)}
    first = {"method": defaults.pop("method"), "model": defaults.pop("model")}
    kept = {name: default for name, default in defaults.items() if name not in GIVEN_TO_FIT | {"quiet"}}
    return first | dict.fromkeys(COMMON_SETTINGS) | kept | {"cache": "none", "verbose": None}


def constructor_signature() -> Signature:
    """With a name for every parameter, for help and completion."""
    kinds = {"method": Parameter.POSITIONAL_OR_KEYWORD}
    own = [
        Parameter(name, kinds.get(name, Parameter.KEYWORD_ONLY), default=default)
        for name, default in own_parameters().items()
    ]
    return Signature([*own, Parameter("settings", Parameter.VAR_KEYWORD)])


def check_setting_names(method: str, settings: dict[str, Any], of_fit: Collection[str]) -> None:
    """Refuse settings that the method does not have. `of_fit`: the parameters of `fit`."""
    known = [field.name for field in fields(method_class(method).Config)]
    for name in settings:
        if name not in known:
            hint = _hint(name, [*known, *own_parameters()], of_fit)
            raise UserError(f"The method {method!r} has no setting {name!r}.{hint} Its settings: {', '.join(known)}.")


def _hint(name: str, known: list[str], of_fit: Collection[str]) -> str:
    if name == "quiet":
        return " In Python it is verbose=False."
    if name in of_fit:
        return f" Pass it to fit: fit({name}=...)."
    if name in GIVEN_TO_FIT:
        return " It is an option of the command `proud train`; in Python, pass the images to fit."
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
