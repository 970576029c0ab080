"""Values that differ between the tensors of a model: gradients over its layers, and filters by name.

A value is one of::

    0.5                                            everywhere
    [0, 0.5, 1]                                    0 in the first layer, 1 in the last, on straight lines between them
    [{filter: mlp, value: 0.5}, {value: [0, 1]}]   the first whose filter is a part of the tensor's name

Embeddings, output heads and other tensors outside the layers have the first value of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from maskreg.checkpoint.roles import layer_of
from maskreg.errors import UsageError
from maskreg.tensors.names import shown

Value = Any
"""A number or a word; a list of numbers; or a list of mappings with the keys filter and value. Plain JSON."""


def parsed(value: object, parse: Callable[[object], Any], what: str) -> Value:
    """A value in which every number is checked.

    Args:
        value: as given.
        parse: checks a number or a word.
        what: name of the value, for messages.

    Raises:
        UsageError: it has none of the three forms.
    """
    if not isinstance(value, list | tuple):
        return parse(value)
    if not value:
        raise UsageError(f"{what} is an empty list", hint="give a number, several as a gradient, or filters and values")
    if not any(isinstance(each, dict) for each in value):
        return [parse(each) for each in value]
    cases = []
    for each in value:
        if not isinstance(each, dict) or "value" not in each or each.keys() - {"filter", "value"}:
            raise UsageError(f"{what} has the case {shown(each)}", hint="a case has the keys filter and value")
        if isinstance(each["value"], list) and any(isinstance(inner, dict) for inner in each["value"]):
            raise UsageError(f"{what} has a case within a case", hint="write one list of cases")
        own = {} if each.get("filter") in (None, "", "*") else {"filter": str(each["filter"])}
        cases.append({**own, "value": parsed(each["value"], parse, what)})
    return cases


def varies(value: Value) -> bool:
    """Whether it differs between tensors."""
    return isinstance(value, list)


def leaves(value: Value) -> Iterator[Any]:
    """The numbers of a value."""
    for each in value if isinstance(value, list) else [value]:
        yield from leaves(each["value"]) if isinstance(each, dict) else [each]


def filters(value: Value) -> Iterator[str]:
    """The filters of a value."""
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and "filter" in each:
            yield each["filter"]


def value_at(value: Value, name: str, depth: float) -> Any:
    """The number for a tensor; None where no filter fits.

    Args:
        value: checked.
        name: of the tensor.
        depth: of its layer, from 0 to 1.
    """
    if not isinstance(value, list):
        return value
    if isinstance(value[0], dict):
        fitting = (case["value"] for case in value if case.get("filter", "") in name)
        return next((value_at(own, name, depth) for own in fitting), None)
    place = depth * (len(value) - 1)
    below = min(int(place), len(value) - 2) if len(value) > 1 else 0
    share = place - below
    return value[0] if len(value) == 1 else (1 - share) * value[below] + share * value[below + 1]


class Depths:
    """Where in the model each layer lies."""

    def __init__(self, names: Iterable[str]) -> None:
        """Count the layers of every tower.

        Args:
            names: of all tensors.
        """
        self._last: dict[str, int] = {}
        for name in names:
            tower, _, number = layer_of(name).rpartition(".")
            if number:
                self._last[tower] = max(self._last.get(tower, 0), int(number))

    def of(self, name: str) -> float:
        """0 for tensors of the first layer and outside the layers, 1 for those of the last."""
        tower, _, number = layer_of(name).rpartition(".")
        if not number:
            return 0.0
        last = self._last.get(tower, 0)
        return int(number) / last if last else 1.0
