"""Baselines that are ranked: the smallest weights, and those that a low-rank approximation singles out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.flow.baseline.sweeping import Choices, MaskedSpan, Sweeper
from maskreg.mask import pack_spans, unpack
from maskreg.mask.baseline import BaselineSpec, Kept, Safe, Small
from maskreg.mask.ranking import (
    MAGNITUDES,
    Smallest,
    count_magnitudes,
    default_rank,
    matrices_of,
    places_of,
    principal,
    smallest,
)
from maskreg.tensors.cast import to_fp32

Counts = npt.NDArray[np.int64]


class RankedChooser:
    """Chooses by rank: ``low-magnitude``, ``principal`` or ``safe``.

    The smallest weights need no sort either: bf16 has only 2^15 magnitudes, so a histogram finds the threshold. To take
    3 of these 6 magnitudes::

        magnitudes  5 2 9 2 7 2
        sweep 1     histogram: three 2s, one 5, one 7, one 9; the threshold is 2, and all three ties are taken
        sweep 2     only where ties are cut (3 of four 2s, say): where the last one taken lies
    """

    def __init__(self, artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> None:
        """Remember where to read from; the sweeper has the source."""
        self.sweeps = 2 if spec.kind.name == "principal" else 3
        self.notes: tuple[str, ...] = ()
        self._artifact = artifact
        self._spec = spec
        self._sweeper = sweeper

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Do nothing: tensors are independent."""

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""
        if self._spec.kind.name == "principal":
            return self._principal(rows)
        return self._safe(rows) if self._spec.kind.name == "safe" else self._low(rows)

    def end(self) -> None:
        """Do nothing: every tensor has such a baseline."""

    def _low(self, rows: Sequence[Tensor]) -> Choices:
        return {name: Small(which) for name, which in self._smallest(rows, lambda row: row.nnz).items()}

    def _smallest(self, rows: Sequence[Tensor], number: Callable[[Tensor], int]) -> dict[str, Smallest]:
        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            counts = np.zeros(MAGNITUDES, np.int64)
            count_magnitudes(span.codes, counts)
            return counts

        chosen: dict[str, Smallest] = {}
        counts = np.zeros(MAGNITUDES, np.int64)
        for span, more in self._sweeper.sweep(rows, work, check=True):
            counts += more
            if span.stop == span.row.numel:
                chosen[span.row.name] = smallest(counts, number(span.row))
                counts = np.zeros(MAGNITUDES, np.int64)
        return self._cut([row for row in rows if chosen[row.name].ties], chosen)

    def _cut(self, rows: Sequence[Tensor], chosen: dict[str, Smallest]) -> dict[str, Smallest]:
        """Find where the last tie that is taken lies."""

        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            return places_of(span.codes, chosen[span.row.name].border)

        left = {row.name: chosen[row.name].ties for row in rows}
        for span, places in self._sweeper.sweep(rows, work):
            name = span.row.name
            if 0 < left[name] <= places.size:
                chosen[name] = chosen[name]._replace(cut=span.start + int(places[left[name] - 1]) + 1)
            left[name] -= min(left[name], places.size)
        return chosen

    def _principal(self, rows: Sequence[Tensor]) -> Choices:
        # Checks the leaves once; the matrices are read unchecked below.
        for _ in self._sweeper.sweep(rows, lambda span: None, check=True):
            pass
        return {row.name: self._kept(row, partial(self._in_slice, row)) for row in rows}

    def _safe(self, rows: Sequence[Tensor]) -> Choices:
        alpha = self._spec.alpha or 0.0
        small = self._smallest(rows, lambda row: _share(alpha, row.numel))
        return {
            row.name: Safe(self._kept(row, lambda start, stop: _share(alpha, stop - start)), Small(small[row.name]))
            for row in rows
        }

    def _kept(self, row: Tensor, number_of: Callable[[int, int], int]) -> Kept:
        source = self._sweeper.source
        assert source is not None
        stacked, shape = matrices_of(row.source_shape or ())
        size = shape[0] * shape[1]
        rank = self._spec.rank or default_rank(shape)

        def rows_of(first: int, start: int, stop: int) -> npt.NDArray[np.float32]:
            begin, end = first + start * shape[1], first + stop * shape[1]
            codes = source.codes(row.name, begin, end, checked=False)
            numbers: npt.NDArray[np.float32] = to_fp32(codes).reshape(stop - start, shape[1])
            return numbers

        def chosen_rows() -> Iterator[npt.NDArray[np.bool_]]:
            for first in range(0, stacked * size, size):
                yield from principal(partial(rows_of, first), shape, rank, number_of(first, first + size))

        return Kept(pack_spans(chosen_rows()))

    def _in_slice(self, row: Tensor, start: int, stop: int) -> int:
        """Coordinates of the mask within ``[start, stop)``."""
        if (start, stop) == (0, row.numel):
            return row.nnz
        first = start // 64 * 64
        moved = unpack(self._artifact.mask_bits(row, first, stop), stop - first)
        return int(np.count_nonzero(moved[start - first :]))


def _share(alpha: float, numel: int) -> int:
    # Rounded up, as the published code does.
    return min(numel, int(np.ceil(alpha * numel)))
