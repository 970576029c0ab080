"""A recipe: the method, the weights and the settings of a merge, checked and complete."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from maskreg.errors import UsageError
from maskreg.flow.merge import METHODS
from maskreg.flow.merge.base import LARGEST, Method, Settings
from maskreg.flow.merge.varying import Value, filters, leaves, parsed, value_at, varies
from maskreg.tensors.names import shown
from maskreg.words import counted


class Here(NamedTuple):
    """What a recipe says about one tensor.

    Attributes:
        weights: of the artifacts.
        settings: of the method.
        each: those settings for each artifact.
    """

    weights: tuple[float, ...]
    settings: Settings
    each: tuple[Settings, ...]


@dataclass(frozen=True)
class Recipe:
    """How artifacts are merged.

    Attributes:
        method: the method.
        weights: of the artifacts, in order; see :mod:`maskreg.flow.merge.varying`.
        settings: of the method, complete.
        own: settings of each artifact that differ from those; empty where none do.
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
        """A recipe for the method of this name; settings that are left out have their defaults.

        Raises:
            UsageError: an unknown method or setting, a value that makes no sense, or weights that the method does not
                take.
        """
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

    def __reduce__(self) -> tuple[Any, ...]:
        # Methods are known by name: they hold functions.
        return Recipe.of, (self.method.name, self.weights, dict(self.settings), self.own)

    def at(self, name: str, depth: float) -> Here:
        """What it says about a tensor.

        Args:
            name: of the tensor.
            depth: of its layer, from 0 to 1.

        Raises:
            UsageError: its weights and settings contradict each other there.
        """
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
        """Check that it is for so many artifacts, and for a mask or none.

        Raises:
            UsageError: it is not.
        """
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
        """Check that every filter is a part of the name of a tensor.

        Raises:
            UsageError: one is not.
        """
        values = (*self.weights, *(value for each in (self.settings, *self.own) for value in each.values()))
        for part in (part for value in values for part in filters(value)):
            if not any(part in name for name in names):
                raise UsageError(
                    f"the filter {shown(part)} is a part of no tensor's name",
                    hint="name a part of one, such as mlp",
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
    """A weight in which every number is checked; ``what`` begins messages.

    Raises:
        UsageError: a number is none, or not finite.
    """

    def number_of(each: object) -> float:
        try:
            number = math.nan if isinstance(each, bool) or not isinstance(each, str | int | float) else float(each)
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{what} is {shown(each)}; it must be a finite number", hint="give a number such as 0.5")
        return number

    return parsed(value, number_of, what)


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
