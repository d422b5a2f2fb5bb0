"""Packages that are imported when they are first used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from momentous.io.optional import LazyModule


def test_a_lazy_module_is_the_module_from_its_first_use_on() -> None:
    lazy: Any = LazyModule("json", "app", "Reading")
    assert not hasattr(lazy, "__isabstractmethod__")
    assert lazy.loads is json.loads
    assert lazy.loads("[1]") == [1]


def test_a_lazy_module_that_is_missing_says_so_when_it_is_used() -> None:
    lazy: Any = LazyModule("antigravity_of_course", "cuda", "Flying")
    assert not hasattr(lazy, "__file__")  # no use, so no import
    with pytest.raises(ModuleNotFoundError, match=r'Flying needs .* "momentous\[cuda\]"'):
        lazy.take_off  # noqa: B018
