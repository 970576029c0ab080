"""A recipe: the method, the weights and the settings of a merge, checked and complete."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskreg.errors import UsageError
from maskreg.flow.merge import METHODS
from maskreg.flow.merge.base import LARGEST, Method
from maskreg.words import counted


@dataclass(frozen=True)
class Recipe:
    """How artifacts are merged.

    Attributes:
        method: the method.
        weights: of the artifacts, in order.
        settings: of the method, complete.
    """

    method: Method
    weights: tuple[float, ...]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, weights: Sequence[float], settings: Mapping[str, object] | None = None) -> Recipe:
        """A recipe for the method of this name; settings that are left out have their defaults.

        Raises:
            UsageError: an unknown method or setting, a value that makes no sense, or weights that the method does not
                take.
        """
        if name not in METHODS:
            raise UsageError(f"unknown merge method {name!r}", hint=f"choose {', '.join(METHODS)}")
        method = METHODS[name]
        chosen = dict(settings or {})
        for key in chosen:
            if key not in method.settings:
                takes = f"it takes {', '.join(method.settings)}" if method.settings else "it takes none"
                raise UsageError(f"{name} has no setting {key!r}", hint=takes)
        for weight in weights:
            if not math.isfinite(weight):
                raise UsageError(f"a weight is {weight}; it must be a finite number")
        if (size := sum(map(abs, weights))) > LARGEST:
            raise UsageError(f"weights of {size:g} in all, and fp32 ends at {LARGEST:g}", hint="use smaller weights")
        if not method.weighted and any(weight != 1 for weight in weights):
            raise UsageError(f"{name} takes no weights", hint="choose a method such as linear or task-arithmetic")
        values = {key: method.settings[key].parsed(key, value) for key, value in chosen.items()}
        complete = {key: values.get(key, setting.default) for key, setting in method.settings.items()}
        if method.check is not None:
            method.check(weights, complete)
        return cls(method, tuple(float(weight) for weight in weights), complete)

    def __reduce__(self) -> tuple[Any, ...]:
        # Methods are known by name: they hold functions.
        return Recipe.of, (self.method.name, self.weights, dict(self.settings))

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

    def to_json(self) -> dict[str, Any]:
        """The lineage recipe of the result; the artifacts are its parents, in order."""
        return {
            "kind": "merge",
            "method": self.method.name,
            **({"weights": list(self.weights)} if self.method.weighted else {}),
            **({"settings": dict(self.settings)} if self.settings else {}),
        }
