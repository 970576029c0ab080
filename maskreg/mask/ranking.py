"""Coordinates by rank: the smallest magnitudes of a tensor, or the principal ones of a matrix, an exact number of them.

Smallest magnitudes, among equal ones the first. bf16 has 32,768 magnitudes, so counting replaces sorting: a histogram
gives the magnitude at which the number is reached (the border), and how many coordinates of just that magnitude still
belong to it (the ties). A second pass finds the coordinate after the last of these (the cut).

    magnitudes 3 1 4 1 5 1, two of them: border 1, ties 2, cut 4: coordinates 1 and 3

The principal mask: where a matrix's low-rank approximation is largest. Source: "Dense Supervision, Sparse Updates"
(arXiv 2606.13657), "On the Geometry of OPD" (arXiv 2606.07082, appendix C.3) and "The Path Not Taken" (arXiv
2511.08567): with ``W = U S V^T``, a coordinate's score is ``|U_r S_r V_r^T|``, and coordinates with the highest
scores are taken.

In fp64, block by block of rows, without a singular value decomposition of the whole:

    tall matrix    G = W^T W = sum of the blocks' B^T B         [n, n], its leading eigenvectors are V_r
                   scores of a block: |B V_r V_r^T|
    wide matrix    G = W W^T, block by block                    [m, m], its leading eigenvectors are U_r
                   P = U_r^T W = sum over blocks                [r, n]; scores of a block: |U_r P|

The k-th highest score is found without sorting or keeping scores: as bits, positive fp32 numbers are in the order of
their values, so a histogram of their upper 16 bits tells the bin of the k-th, and one of the lower 15 bits within that
bin tells it exactly. Scores are computed again for each histogram and for the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import packed_bytes
from maskreg.native import library

if TYPE_CHECKING:
    import torch

MAGNITUDES = 1 << 15
"""Magnitudes of bf16 codes; infinities and NaNs are the largest."""

_MAGNITUDE = np.uint16(MAGNITUDES - 1)

Codes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]


class Smallest(NamedTuple):
    """Which coordinates of a tensor have the smallest magnitudes.

    Attributes:
        border: smaller magnitudes are taken.
        ties: how many of magnitude ``border`` are taken, the first ones.
        cut: ties of magnitude ``border`` are taken before this coordinate.
    """

    border: int
    ties: int
    cut: int = 0

    def packed(self, first: int, codes: Codes) -> npt.NDArray[np.uint8]:
        """Packed bits of the coordinates that are taken in a span of bf16 codes that begins at ``first``."""
        ties = max(self.cut - first, 0)
        compiled = library()
        packed = np.empty(packed_bytes(codes.size), np.uint8)
        compiled.lib.maskreg_pack_smallest(compiled.read(codes), codes.size, self.border, ties, compiled.write(packed))
        return packed


def count_magnitudes(codes: Codes, counts: Counts) -> None:
    """Add bf16 codes, uint16 ``[n]``, to the counts of their magnitudes, int64 ``[32768]``."""
    compiled = library()
    compiled.lib.maskreg_count_magnitudes(compiled.read(codes), codes.size, compiled.write(counts))


def smallest(counts: Counts, size: int) -> Smallest:
    """Border and ties for the ``size`` smallest of the coordinates that were counted; the cut is still 0."""
    upto = np.cumsum(counts)
    border = int(np.searchsorted(upto, size, side="right"))
    return Smallest(border, size - (int(upto[border - 1]) if border else 0))


def places_of(codes: Codes, magnitude: int) -> Counts:
    """Coordinates of a magnitude in a span, int64, ascending."""
    return np.flatnonzero((codes & _MAGNITUDE) == magnitude)


Rows = Callable[[int, int], npt.NDArray[np.float32]]
"""Rows ``[start, stop)`` of a matrix, fp32 ``[stop - start, n]``; called several times."""

ROWS_NUMEL = 1 << 22
"""Coordinates of the rows that are scored at once, about."""

_LOW_BITS = 15
_HIGH_BINS = 1 << 16


def default_rank(shape: tuple[int, int]) -> int:
    """A tenth of the shorter side, at least 1."""
    return max(1, round(0.1 * min(shape)))


def matrices_of(shape: tuple[int, ...]) -> tuple[int, tuple[int, int]]:
    """How many matrices are stacked in a tensor, and their shape; a vector or a number is a matrix of one row."""
    if len(shape) < 2:
        return 1, (1, math.prod(shape))
    return math.prod(shape[:-2]), (shape[-2], shape[-1])


def principal(rows: Rows, shape: tuple[int, int], rank: int, size: int) -> Iterator[npt.NDArray[np.bool_]]:
    """The ``size`` coordinates with the highest scores, among equal ones the first: booleans, span by span.

    Scores are compared in fp32. Another machine or number of threads can round differently, so that coordinates whose
    scores are almost equal can change places. Values that are not finite count as 0.
    """
    count, width = shape
    if not size or size == count * width:
        for start, stop in _blocks(shape):
            yield np.full((stop - start) * width, bool(size))
        return
    scores = _scores(rows, shape, min(rank, *shape))
    border, ties = _largest(scores, shape, size)
    for start, stop in _blocks(shape):
        ranks = scores(start, stop)
        taken, equal = ranks > border, np.flatnonzero(ranks == border)[:ties]
        taken[equal] = True
        ties -= equal.size
        yield taken


Scores = Callable[[int, int], npt.NDArray[np.uint32]]
"""Scores of rows ``[start, stop)``, as the bits of fp32 numbers, which are in the same order."""


def _scores(rows: Rows, shape: tuple[int, int], rank: int) -> Scores:
    import torch

    def numbers(start: int, stop: int) -> torch.Tensor:
        return torch.from_numpy(np.nan_to_num(rows(start, stop), nan=0.0, posinf=0.0, neginf=0.0)).double()

    tall = shape[0] >= shape[1]
    gram = _gram_of_columns(numbers, shape) if tall else _gram_of_rows(numbers, shape)
    basis: torch.Tensor = torch.linalg.eigh(gram).eigenvectors[:, -rank:].contiguous()  # of the largest eigenvalues
    if tall:

        def part(start: int, stop: int) -> torch.Tensor:
            return numbers(start, stop) @ basis @ basis.T
    else:
        projected = torch.zeros(basis.shape[1], shape[1], dtype=torch.float64)
        for start, stop in _blocks(shape):
            projected += basis[start:stop].T @ numbers(start, stop)

        def part(start: int, stop: int) -> torch.Tensor:
            return basis[start:stop] @ projected

    def scores(start: int, stop: int) -> npt.NDArray[np.uint32]:
        return np.asarray(part(start, stop).abs().float().reshape(-1)).view(np.uint32)

    return scores


def _gram_of_columns(numbers: Callable[[int, int], torch.Tensor], shape: tuple[int, int]) -> torch.Tensor:
    import torch

    gram = torch.zeros(shape[1], shape[1], dtype=torch.float64)
    for start, stop in _blocks(shape):
        block = numbers(start, stop)
        gram += block.T @ block
    return gram


def _gram_of_rows(numbers: Callable[[int, int], torch.Tensor], shape: tuple[int, int]) -> torch.Tensor:
    import torch

    gram = torch.zeros(shape[0], shape[0], dtype=torch.float64)
    for start, stop in _blocks(shape):
        block = numbers(start, stop)
        for left, right in _blocks(shape):
            if left <= start:
                product = block @ (block if left == start else numbers(left, right)).T
                gram[start:stop, left:right] = product
                gram[left:right, start:stop] = product.T
    return gram


def _largest(scores: Scores, shape: tuple[int, int], size: int) -> tuple[int, int]:
    """The score above which all coordinates are taken, and how many of that very score."""
    border = -1
    for bins in (_HIGH_BINS, 1 << _LOW_BITS):
        counts = np.zeros(bins, np.int64)
        for start, stop in _blocks(shape):
            _count(scores(start, stop), counts, border)
        found, size = _from_above(counts, size)
        border = found if border < 0 else border << _LOW_BITS | found
    return border, size


def _count(ranks: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], upper: int = -1) -> None:
    """Count scores by their upper 16 bits; or, if those are given, the scores that have them by their lower 15."""
    compiled = library()
    compiled.lib.maskreg_count_scores(compiled.read(ranks), ranks.size, upper, compiled.write(counts))


def _from_above(counts: npt.NDArray[np.int64], k: int) -> tuple[int, int]:
    """The bin of the ``k``-th from above, and which of that bin: with counts 3 4 2, the 5th is the 3rd of bin 1."""
    upto = np.cumsum(counts[::-1])
    skipped = int(np.searchsorted(upto, k))
    return counts.size - 1 - skipped, k - (int(upto[skipped - 1]) if skipped else 0)


def _blocks(shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    step = max(1, ROWS_NUMEL // max(shape[1], 1))
    for start in range(0, shape[0] if shape[1] else 0, step):
        yield start, min(start + step, shape[0])
