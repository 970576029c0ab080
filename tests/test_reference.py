"""The reference of the Python API: up to date, complete, and without a hole in a docstring."""

from __future__ import annotations

import inspect

import pytest

import maskreg
from scripts.reference import SECTIONS, Docstring, arguments, options_of

USE_CASES = [
    name
    for title in ("Making", "Sharing", "Applying", "Evidence", "Looking things up", "Maintenance")
    for name in SECTIONS[title]
    if inspect.isfunction(getattr(maskreg, name))
]


def test_every_public_name_is_on_the_page_once() -> None:
    names = [name for names in SECTIONS.values() for name in names]
    assert sorted([*names, "__version__"]) == sorted(maskreg.__all__)


@pytest.mark.parametrize("name", USE_CASES)
def test_every_argument_of_a_use_case_is_documented(name: str) -> None:
    function = getattr(maskreg, name)
    documented, said = Docstring.of(function), arguments(function)
    parameters = inspect.signature(function).parameters
    expected = []
    for key, parameter in parameters.items():
        options = options_of(function, parameter)
        expected += [key] if options is None else list(options.__annotations__)
    assert list(said) == expected
    assert all(name.lstrip("*") in parameters for name, _ in documented.sections.get("Args", ()))
    assert documented.text.partition("\n")[0].endswith(".")
    assert all(text for _, text in documented.sections.get("Raises", ()))
