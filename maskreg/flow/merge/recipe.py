"""A recipe: the method, the weights and the settings of a merge, checked and complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskreg.errors import UsageError
from maskreg.flow.merge.methods import METHODS
from maskreg.flow.merge.methods.base import LARGEST, Method, Settings, number_of
from maskreg.tensors.info import shown
from maskreg.words import counted


@dataclass(frozen=True)
class Recipe:
    """How artifacts are merged: a method, a weight for each in order, and the method's settings, complete."""

    method: Method
    weights: tuple[float, ...]
    settings: Settings

    @classmethod
    def of(cls, name: str, weights: Sequence[object], settings: Mapping[str, object] | None = None) -> Recipe:
        """A recipe for the method of this name; settings that are left out have their defaults."""
        if name not in METHODS:
            raise UsageError(f"unknown merge method {name!r}", hint=f"choose {', '.join(METHODS)}")
        method, given = METHODS[name], settings or {}
        every = tuple(map(_weight, weights))
        if (size := sum(map(abs, every))) > LARGEST:
            raise UsageError(f"weights of {size:g} in all, and fp32 ends at {LARGEST:g}", hint="use smaller weights")
        if not method.weighted and any(weight != 1 for weight in every):
            raise UsageError(f"{name} takes no weights", hint="choose a method such as linear or task-arithmetic")
        if unknown := [key for key in given if key not in method.settings]:
            takes = f"it takes {', '.join(method.settings)}" if method.settings else "it takes none"
            raise UsageError(f"{name} has no setting {unknown[0]!r}", hint=takes)
        complete = {
            key: setting.parsed(key, given.get(key, setting.default)) for key, setting in method.settings.items()
        }
        if method.check is not None:
            method.check(every, complete)
        return cls(method, every, complete)

    def check(self, count: int, *, masked: bool) -> None:
        """Check that it is for so many artifacts, and for a mask or none."""
        least, most = self.method.operands
        name = self.method.name
        if not least <= count <= most:
            number = f"at least {least}" if most > least else "one" if most == 1 else "two"
            hint = "name more" if count < least else "name fewer, or choose another method"
            raise UsageError(f"{name} merges {number}, not {counted(count, 'artifact')}", hint=hint)
        if count != len(self.weights):
            raise UsageError(f"{counted(len(self.weights), 'weight')} for {counted(count, 'artifact')}")
        if masked and not self.method.masked:
            raise UsageError(f"{name} takes no mask", hint="leave it out, or choose the method restrict")
        if self.method.masked and not masked:
            raise UsageError(f"{name} needs a mask", hint="name one", options={"settings": {"mask": None}})

    def to_json(self) -> dict[str, Any]:
        """The lineage recipe of the result; the artifacts are its parents, in order."""
        return {
            "kind": "merge",
            "method": self.method.name,
            **({"weights": list(self.weights)} if self.method.weighted else {}),
            **({"settings": dict(self.settings)} if self.settings else {}),
        }


def _weight(value: object) -> float:
    if (number := number_of(value)) is None:
        raise UsageError(f"a weight is {shown(value)}; it must be a finite number", hint="give a number such as 0.5")
    return number
