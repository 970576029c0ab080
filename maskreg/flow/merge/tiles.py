"""The arithmetic on one span: bits to tiles of fp32 numbers, a method's function on each, and back to bits.

Two rules make a merge exact where it can be. A coordinate whose merged update is an artifact's gets that
artifact's bits, and one whose merged update is 0 keeps the source's. In fp32, source + (target - source) differs from
the target where the source is over 2^15 times as large, and the sign of zero would be lost. Coordinates that are NaN or
infinite on a side take no part in the arithmetic: they get the bits of the first artifact that changes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.digest import short_key
from maskreg.errors import UsageError
from maskreg.flow.merge.inputs import SpanBits
from maskreg.flow.merge.methods.arithmetic import Bits, replace
from maskreg.flow.merge.methods.base import Floats, Known, Method, Sums, Tile
from maskreg.flow.merge.recipe import Recipe
from maskreg.mask.philox import TILE as DRAWN
from maskreg.mask.philox import words_of
from maskreg.tensors.cast import fp32_of, stored_bits
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo

_Bools = npt.NDArray[np.bool_]
_EXPONENTS = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F80_0000, "F64": 0x7FF0_0000_0000_0000}

TILE_NUMEL = 1 << 16
"""Coordinates whose intermediate results fit a core's cache; a multiple of those that are drawn together."""


class Counts(NamedTuple):
    """Coordinates that any artifact moved, several moved, two moved apart, the result moves, or are not finite."""

    moved: int = 0
    conflicts: int = 0
    disagreements: int = 0
    result: int = 0
    nonfinite: int = 0

    def plus(self, more: Counts) -> Counts:
        """The sum."""
        return Counts(*(a + b for a, b in zip(self, more, strict=True)))


@dataclass(frozen=True)
class SpanMerger:
    """A recipe with all that its method needs to merge spans. Pure. Random words depend on the digests."""

    recipe: Recipe
    digests: Sequence[str]

    @property
    def method(self) -> Method:
        """What to merge by."""
        return self.recipe.method

    @property
    def rankings(self) -> int:
        """How many orders of coordinates are cut: one for each artifact, or one for their spread."""
        return 1 if self.method.spread else len(self.digests)

    def ranked(self, tile: Tile) -> Sequence[Floats]:
        """The numbers of a tile whose sizes are ranked, in each order."""
        return [self.method.spread(tile)] if self.method.spread else tile.updates

    def rows(self, shape: tuple[int, ...]) -> int:
        """Elements of a row, for methods by row; 0 where spans are blocks."""
        row = shape[-1] if len(shape) > 1 else int(np.prod(shape))
        return row if self.method.by_row and row <= BLOCK_NUMEL else 0

    def spans(self, tensor: TensorInfo) -> Iterator[tuple[int, int]]:
        """Spans ``[start, stop)`` that cover a tensor: blocks, or for methods by row as many rows as fit one."""
        row = self.rows(tensor.shape)
        step = BLOCK_NUMEL // row * row if row else BLOCK_NUMEL
        return ((start, min(start + step, tensor.numel)) for start in range(0, tensor.numel, step))

    def tiles(self, tensor: TensorInfo, start: int, bits: SpanBits, known: Known) -> Iterator[Tile]:
        """The tiles of a span, in order, given its first element and what sweeps have found out."""
        for tile, _, _ in self._pieces(tensor, start, bits, known):
            yield tile

    def merged(self, tensor: TensorInfo, start: int, bits: SpanBits, known: Known) -> tuple[Bits, Counts]:
        """The merged bits of a span, and what merging did; a number that is too large for the dtype is refused."""
        dtype = tensor.dtype
        result, counts = np.empty_like(bits.source), Counts()
        with np.errstate(over="ignore", invalid="ignore"):
            for tile, at, nonfinite in self._pieces(tensor, start, bits, known):
                source, targets = bits.source[at], [target[at] for target in bits.targets]
                merged = self._exact(tile, source, targets, dtype)
                self._require_finite(merged, nonfinite, dtype, tensor.name, start + at.start)
                if nonfinite is not None:
                    _fill_nonfinite(merged, source, targets, nonfinite)
                result[at] = merged
                counts = counts.plus(_counted(tile, merged, source, nonfinite, dtype))
        return result, counts

    def _exact(self, tile: Tile, source: Bits, targets: Sequence[Bits], dtype: str) -> Bits:
        merged = self.method.merge(tile)
        flat = merged.reshape(-1)
        result = stored_bits((tile.source + merged).reshape(-1), dtype)
        replace(result, source, flat == 0)
        # Backwards, so that the first artifact counts where several fit. An update of 0 fits too, if only the sign of a
        # zero differs.
        for target, update in zip(reversed(targets), reversed(tile.updates), strict=True):
            replace(result, target, (flat == update.reshape(-1)) & (target != source))
        return result

    def _require_finite(self, merged: Bits, nonfinite: _Bools | None, dtype: str, name: str, first: int) -> None:
        # Which stored bits are NaN or infinite: their exponent is all ones.
        exponent = merged.dtype.type(_EXPONENTS[dtype])
        overflown: _Bools = (merged & exponent) == exponent
        if nonfinite is not None:
            overflown &= ~nonfinite
        if overflown.any():
            raise UsageError(
                f"tensor {name}: element {first + int(overflown.argmax())} becomes too large for {dtype}; nothing was "
                "written",
                hint=f"use smaller {'weights' if self.method.weighted else 'factors'}, so that {self.method.name} "
                "changes less",
            )

    def _pieces(
        self, tensor: TensorInfo, start: int, bits: SpanBits, known: Known
    ) -> Iterator[tuple[Tile, slice, _Bools | None]]:
        dtype = tensor.dtype
        row, recipe = self.rows(tensor.shape), self.recipe
        step = max(row, TILE_NUMEL // row * row) if row else TILE_NUMEL
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, bits.source.size, step):
                at = slice(first, min(first + step, bits.source.size))
                shape = (-1, row) if row else (-1,)
                source = fp32_of(bits.source[at], dtype)
                updates = [fp32_of(target[at], dtype) - source for target in bits.targets]
                nonfinite = _without_nonfinite(source, updates)
                yield (
                    Tile(
                        source.reshape(shape),
                        [update.reshape(shape) for update in updates],
                        recipe.weights,
                        recipe.settings,
                        known,
                        start + first,
                        partial(self._words, tensor.name, start + first, source.reshape(shape).shape),
                    ),
                    at,
                    nonfinite,
                )

    def _words(self, name: str, first: int, shape: tuple[int, ...], index: int) -> npt.NDArray[np.uint32]:
        key = short_key(f"{self.recipe.settings['seed']} {self.method.name} {self.digests[index]}")
        # Words come in groups, and a row can begin within one.
        before = first % DRAWN
        words = words_of(key, short_key(name), first - before, before + int(np.prod(shape)))
        return words[before:].reshape(shape)


def add_up(sums: Sums, more: Sums) -> Sums:
    """The sum of two measures, of which the first can be empty."""
    return sums + more if sums.size else more


def _without_nonfinite(source: Floats, updates: Sequence[Floats]) -> _Bools | None:
    """Set updates and numbers to 0 where any is not finite; None where all are finite."""
    # A sum is finite only if all its terms are, and adding up is faster than looking at each.
    if all(np.isfinite(np.add.reduce(update)) for update in updates):
        return None
    nonfinite = ~np.isfinite(updates[0])
    for update in updates[1:]:
        nonfinite |= ~np.isfinite(update)
    for values in (source, *updates):
        values[nonfinite] = 0
    # None after all: finite numbers can add up to infinity.
    return nonfinite if nonfinite.any() else None


def _fill_nonfinite(merged: Bits, source: Bits, targets: Sequence[Bits], nonfinite: _Bools) -> None:
    replace(merged, source, nonfinite)
    for target in reversed(targets):
        replace(merged, target, nonfinite & (target != source))


def _counted(tile: Tile, merged: Bits, source: Bits, nonfinite: _Bools | None, dtype: str) -> Counts:
    first = tile.updates[0]
    moved, several = first != 0, np.zeros(first.shape, np.bool_)
    up, down = first > 0, first < 0
    for update in tile.updates[1:]:
        own = update != 0
        several |= moved & own
        moved |= own
        up |= update > 0
        down |= update < 0
    # Zeros of either sign are one number.
    differs = merged != source
    shift = np.array(1, source.dtype)
    differs &= ((merged | source) << shift) != 0
    return Counts(
        int(np.count_nonzero(moved)),
        int(np.count_nonzero(several)),
        int(np.count_nonzero(up & down)),
        int(np.count_nonzero(differs)),
        0 if nonfinite is None else int(np.count_nonzero(nonfinite)),
    )
