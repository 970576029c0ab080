"""The contract of merge methods: what a method sees of a piece of a tensor, what it can know before, what it returns.

A method is a function from a tile to the merged update, decorated with :class:`Method`. Tiles are the same coordinates
of the source and of every artifact, as fp32 numbers. What depends on a whole tensor or a whole model is gathered
before, in sweeps that hold no more than a tile's worth of numbers per thread::

    sweep 1, 2    ranks     the size of update that ranks m-th      of a tensor or of the model, per artifact
    sweep 3       measure   sums over all tiles                     of a tensor or of the model
    the merge     merge     tile -> update                          what is added to the source
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.errors import UsageError
from maskreg.tensors.info import shown

Floats = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]
Settings = Mapping[str, Any]

MANY = 1 << 16
"""An upper bound on the number of artifacts."""

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that merging computes with. A factor above it would be infinite, and make every weight NaN."""


@dataclass(frozen=True)
class Setting:
    """A parameter of a method.

    Attributes:
        default: its value when none is given; a whole number, a number or a word.
        meaning: for people.
        low, high: bounds of a number, both allowed.
        words: the values that a word can have.
    """

    default: float | int | str
    meaning: str
    low: float = -LARGEST
    high: float = LARGEST
    words: tuple[str, ...] = ()

    def parsed(self, key: str, value: object) -> float | int | str:
        """The value as the method takes it; a text is read as the kind of the default. Others are refused."""
        if self.words:
            if value not in self.words:
                raise UsageError(f"{key} is {value!r}", hint=f"choose {', '.join(self.words)}")
            return str(value)
        number = _whole(value) if isinstance(self.default, int) else number_of(value)
        if number is None or not self.low <= number <= self.high:
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            raise UsageError(
                f"{key} is {shown(value)}; it must be {kind}{self._bounds(number)}",
                options={"settings": {key: self.default}},
            )
        return number

    def _bounds(self, number: float | None) -> str:
        if self.low == -LARGEST and number is None:
            return ""
        without_end = self.high == LARGEST and self.low != -LARGEST
        return f" from {self.low:g} on" if without_end else f" from {self.low:g} to {self.high:g}"


class Threshold(NamedTuple):
    """A cut in the order of sizes, largest first and equal ones by coordinate.

    ``code`` is the bits of the smallest size above the cut; of that size, coordinates before ``end`` are above it.
    """

    code: int
    end: int

    def above(self, update: Floats, first: int) -> npt.NDArray[np.bool_]:
        """Which numbers of a tile are above the cut; ``first`` is the position of its first in the tensor."""
        codes = size_codes(update)
        if self.end >= first + update.size:
            return codes >= np.uint32(self.code)
        above = codes > np.uint32(self.code)
        if self.end > first:
            equal = codes[: self.end - first] == np.uint32(self.code)
            above[: self.end - first] |= equal
        return above


def size_codes(update: Floats) -> npt.NDArray[np.uint32]:
    """Bits of the absolute values, which are in their order."""
    return update.view(np.uint32) & np.uint32(0x7FFFFFFF)


@dataclass(frozen=True)
class Known:
    """What sweeps have found out about a tensor, or about the whole model.

    Thresholds are for each artifact, or for the spread over all, one for each of the method's ranks; ``sums`` are what
    the method's measure adds up to, empty before that sweep.
    """

    thresholds: Sequence[Sequence[Threshold]] = ()
    sums: Sums = field(default_factory=lambda: np.empty(0))


class Tile(NamedTuple):
    """Coordinates of one tensor, in the source and in every artifact.

    Attributes:
        source: fp32 ``[n]``, or ``[rows, n]`` for a method by row.
        updates: target minus source in fp32, for each artifact; 0 where a side is not finite.
        weights: of the artifacts.
        settings: of the method, complete.
        known: about this tensor or the model.
        first: position of the first coordinate in its tensor.
        words: random words of an artifact, uint32 of the tile's shape, each in [0, 2^31).
    """

    source: Floats
    updates: Sequence[Floats]
    weights: Sequence[float]
    settings: Settings
    known: Known
    first: int
    words: Callable[[int], npt.NDArray[np.uint32]]


def _undecorated(tile: Tile) -> Floats:
    raise TypeError("Method(...) decorates a function")


@dataclass(frozen=True)
class Method:
    """A merge method: ``@Method(name, summary=..., ...)`` above the function from a tile to the merged update.

    Attributes:
        name: what ``--method`` takes.
        summary: what it computes, in one sentence.
        paper: where it was published; empty for our own.
        settings: its parameters by key.
        operands: how many artifacts it takes, at least and at most.
        weighted: whether it takes a weight for each artifact.
        check: raises UsageError for weights and settings that contradict each other.
        ranks: given the elements of a tensor or of the model, and the settings: how many of an artifact's largest
            updates each threshold leaves above; no threshold where all are taken whole.
        spread: what ranks are of, in place of the sizes of each update: one number of a coordinate, fp32 of a tile's
            shape, not negative. Ranks are then given how many of them are not 0.
        measure: sums of a tile, float64 ``[k]``.
        measures: whether these settings need the measure; always when left out.
        scope: what ranks and sums are of; the setting ``scope``, where a method has it, decides.
        masked: whether it takes a mask, outside which the update is left out.
        by_row: tiles are whole rows of a matrix; rows longer than a block are cut at its end.
        merge: the decorated function.
    """

    name: str
    summary: str
    paper: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    operands: tuple[int, int] = (1, MANY)
    weighted: bool = True
    check: Callable[[Sequence[float], Settings], None] | None = None
    ranks: Callable[[int, Settings], tuple[int, ...]] = lambda numel, settings: ()
    spread: Callable[[Tile], Floats] | None = None
    measure: Callable[[Tile], Sums] | None = None
    measures: Callable[[Settings], bool] = lambda settings: True
    scope: Literal["tensor", "model"] = "tensor"
    masked: bool = False
    by_row: bool = False
    merge: Callable[[Tile], Floats] = _undecorated

    @property
    def keys(self) -> tuple[str, ...]:
        """What can be set: the mask, where it takes one, and its settings."""
        return (*(("mask",) if self.masked else ()), *self.settings)

    def __call__(self, merge: Callable[[Tile], Floats]) -> Method:
        """Decorate the function from a tile to the merged update."""
        return replace(self, merge=merge)


LAMBDA = Setting(1.0, "factor of the merged update")
"""A setting that most methods share."""

DENSITY = Setting(0.5, "share of an update's coordinates that is kept", 0.0, 1.0)
"""A setting of all methods that keep a part of every update."""

SIGN = Setting(
    "elect",
    "elect: average what agrees with the elected sign; agree: add up what agrees with it; sum: add up everything",
    words=("elect", "agree", "sum"),
)
"""How methods that thin out updates combine them afterwards."""


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: object) -> float | None:
    """The finite number that a value is, or that its text reads as; None for another."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
