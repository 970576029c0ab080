"""A recipe: the method, the weights and the settings of a merge, checked and complete.

A weight or a setting can differ between the tensors of a model: by gradients over its layers, and by filters on names.
It is one of::

    0.5                                            everywhere
    [0, 0.5, 1]                                    0 in the first layer, 1 in the last, on straight lines between them
    [{filter: mlp, value: 0.5}, {value: [0, 1]}]   the first whose filter is a part of the tensor's name

Embeddings, output heads and other tensors outside the layers have the first value of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from maskreg.checkpoint.roles import layer_of
from maskreg.errors import UsageError
from maskreg.flow.merge.methods import METHODS
from maskreg.flow.merge.methods.base import LARGEST, Method, Settings, number_of
from maskreg.tensors.info import shown
from maskreg.words import counted

Value = Any
"""A number or a word; a list of numbers; or a list of mappings with the keys filter and value. Plain JSON."""


def parsed(value: object, parse: Callable[[object], Any], what: str) -> Value:
    """A value in which ``parse`` has checked every number; ``what`` names it in messages."""
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
    """The number for a tensor whose layer lies at a depth from 0 to 1; None where no filter fits."""
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
        """Count the layers of every tower, from the names of all tensors."""
        self._last: dict[str, int] = {}
        for name in names:
            tower, _, number = layer_of(name).rpartition(".")
            if number:
                self._last[tower] = max(self._last.get(tower, 0), int(number))

    def of(self, name: str) -> float:
        """0 for tensors of the first layer and outside the layers, 1 for the last layer's."""
        tower, _, number = layer_of(name).rpartition(".")
        if not number:
            return 0.0
        last = self._last.get(tower, 0)
        return int(number) / last if last else 1.0


class Here(NamedTuple):
    """What a recipe says about one tensor; ``each`` has the settings of each artifact."""

    weights: tuple[float, ...]
    settings: Settings
    each: tuple[Settings, ...]


@dataclass(frozen=True)
class Recipe:
    """How artifacts are merged: a method, a weight for each in order, and the method's settings, complete.

    ``own`` are settings of each artifact that differ from those; empty where none do.
    """

    method: Method
    weights: tuple[Value, ...]
    settings: Mapping[str, Value]
    own: tuple[Mapping[str, Value], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        weights: Sequence[Value],
        settings: Mapping[str, object] | None = None,
        own: Sequence[Mapping[str, object]] = (),
    ) -> Recipe:
        """A recipe for the method of this name; settings that are left out have their defaults."""
        if name not in METHODS:
            raise UsageError(f"unknown merge method {name!r}", hint=f"choose {', '.join(METHODS)}")
        method = METHODS[name]
        every = tuple(weight_of(weight, "a weight") for weight in weights)
        if (size := sum(max(map(abs, leaves(weight))) for weight in every)) > LARGEST:
            raise UsageError(f"weights of {size:g} in all, and fp32 ends at {LARGEST:g}", hint="use smaller weights")
        if not method.weighted and any(weight != 1 for weight in every):
            raise UsageError(f"{name} takes no weights", hint="choose a method such as linear or task-arithmetic")
        shared = _settings(method, settings or {})
        complete = {key: shared.get(key, setting.default) for key, setting in method.settings.items()}
        for key in {key for each in own for key in each}:
            if key in method.settings and not method.settings[key].each:
                raise UsageError(f"{key} of {name} is one for all artifacts", hint="move it to settings")
        recipe = cls(method, every, complete, tuple(_settings(method, each) for each in own) if any(own) else ())
        if not any(map(varies, (*every, *(value for each in (complete, *recipe.own) for value in each.values())))):
            recipe.at("", 0)
        return recipe

    def at(self, name: str, depth: float) -> Here:
        """What it says about a tensor whose layer lies at a depth from 0 to 1."""
        weights = [value_at(weight, name, depth) for weight in self.weights]
        there = tuple(1.0 if weight is None else weight for weight in weights)
        defaults = {key: setting.default for key, setting in self.method.settings.items()}
        settings = defaults | _at(self.settings, name, depth)
        each = tuple(settings | _at(own, name, depth) for own in self.own) or (settings,) * len(there)
        if self.method.check is not None:
            for own in each:
                self.method.check(there, own)
        return Here(there, settings, each)

    def check(self, count: int, *, masked: bool) -> None:
        """Check that it is for so many artifacts, and for a mask or none."""
        least, most = self.method.operands
        name = self.method.name
        if not least <= count <= most:
            number = f"at least {least}" if most > least else "one" if most == 1 else "two"
            raise UsageError(f"{name} merges {number}, not {counted(count, 'artifact')}", hint="name other artifacts")
        if count != len(self.weights):
            raise UsageError(f"{counted(len(self.weights), 'weight')} for {counted(count, 'artifact')}")
        if masked != self.method.masked:
            fault = f"{name} needs a mask" if self.method.masked else f"{name} takes no mask"
            raise UsageError(fault, hint="--set mask=REF" if self.method.masked else "--method restrict")

    def check_filters(self, names: Collection[str]) -> None:
        """Check that every filter is a part of the name of a tensor."""
        values = (*self.weights, *(value for each in (self.settings, *self.own) for value in each.values()))
        for part in (part for value in values for part in filters(value)):
            if not any(part in name for name in names):
                raise UsageError(
                    f"the filter {shown(part)} is a part of no tensor's name", hint="name a part of one, such as mlp"
                )

    def to_json(self) -> dict[str, Any]:
        """The lineage recipe of the result; the artifacts are its parents, in order."""
        return {
            "kind": "merge",
            "method": self.method.name,
            **({"weights": list(self.weights)} if self.method.weighted else {}),
            **({"settings": dict(self.settings)} if self.settings else {}),
            **({"own": [dict(each) for each in self.own]} if self.own else {}),
        }


def weight_of(value: object, what: str) -> Value:
    """A weight in which every number is checked; ``what`` begins messages."""

    def checked(each: object) -> float:
        number = number_of(each)
        if number is None:
            raise UsageError(f"{what} is {shown(each)}; it must be a finite number", hint="give a number such as 0.5")
        return number

    return parsed(value, checked, what)


def _settings(method: Method, given: Mapping[str, object]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key, value in given.items():
        if key not in method.settings:
            takes = f"it takes {', '.join(method.settings)}" if method.settings else "it takes none"
            raise UsageError(f"{method.name} has no setting {key!r}", hint=takes)
        setting = method.settings[key]
        values[key] = parsed(value, partial(setting.parsed, key), key)
        if varies(values[key]) and not setting.by_tensor:
            raise UsageError(
                f"{key} of {method.name} is one value for all tensors", hint=f"--set {key}={setting.default}"
            )
    return values


def _at(settings: Mapping[str, Value], name: str, depth: float) -> dict[str, Any]:
    there = {key: value_at(value, name, depth) for key, value in settings.items()}
    return {key: value for key, value in there.items() if value is not None}
