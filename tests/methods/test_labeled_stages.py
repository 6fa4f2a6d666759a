"""First stages that draw from the labeled domain alone depend on what they declare and nothing else: a bench runs them
once for all runs that agree in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from toy_context import same_weights, toy_context, toy_method, train

from proud.config import check_value, unwrap
from proud.errors import UserError
from proud.methods import METHODS, method_class, method_config
from proud.methods.base import Method, Sizes

DECLARING = [
    name for name in METHODS if method_class(name).stages(method_config(name), Sizes(1, (1,)))[0].settings is not None
]


def pretrained(name: str, *context: Any, **settings: Any) -> Method:
    method = toy_method(name, *context, **settings)
    train(method, until=("pretrain", 0))
    return method


@pytest.mark.parametrize("name", METHODS)
def test_unlabeled_images_their_number_and_later_stages_have_no_effect(name: str) -> None:
    one, two = pretrained(name, toy_context(1)), pretrained(name, toy_context(3), epochs=4)
    first, *later = one.stage_list()
    assert set(first.pools) == {"labeled"} and later != two.stage_list()[1:]
    assert same_weights(one, two) or first.sees_ahead


@pytest.mark.parametrize("name", DECLARING)
def test_settings_that_pretraining_does_not_declare_have_no_effect(name: str) -> None:
    one = toy_method(name)
    hints, settings = get_type_hints(type(one.config), include_extras=True), asdict(one.config)
    declared = one.stage_list()[0].settings
    assert declared is not None and declared <= settings.keys()
    free = settings.keys() - declared - METHODS[name][1].keys()
    two = pretrained(name, **{key: another(key, settings[key], hints[key]) for key in free})
    assert free and all(getattr(two.config, key) != settings[key] for key in free)
    assert same_weights(pretrained(name), two)


def test_settings_that_pretraining_declares_may_have_an_effect() -> None:
    """So that the test above can fail."""
    assert "warp" in (toy_method("proud-plus").stage_list()[0].settings or ())
    assert not same_weights(pretrained("proud-plus"), pretrained("proud-plus", warp=0.1))


def another(name: str, value: Any, hint: Any) -> Any:
    """Another valid value of a setting."""
    kind, _ = unwrap(hint)
    if get_origin(kind) is Literal:
        candidates = list(get_args(kind))
    elif kind is bool:
        candidates = [not value]
    else:
        candidates = [kind(value / 2), value + 1]
    for candidate in candidates:
        try:
            check_value(name, candidate, hint)
        except UserError:
            continue
        if candidate != value:
            return candidate
    raise AssertionError(f"no other value for {name}")
