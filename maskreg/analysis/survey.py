"""What every two of hundreds of masks share, beside chance: figures without intervals, from counts that add up.

A comparison of two masks fits a null by class, row and column, and says how sure its answer is; it takes seconds for
each pair of large masks. Hundreds of masks have tens of thousands of pairs. A survey counts what they share, which is
quick, and expects what chance by exponent gives, which follows from each mask alone::

    masks                 read once, one after another
    both   [n, n]         coordinates in both, counted for every pair on packed bits
    sizes  [n, classes]   coordinates of each mask in every exponent class of a tensor
    expected [n, n]       sum over the classes of all tensors of  sizes_a * sizes_b / coordinates of the class

So a survey shows which masks are alike, and where to look. Whether two of them share more than rounding and chance give
is what a comparison of these two says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.verdict import null_sentence
from maskreg.words import counted, natural, percent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Survey:
    """Every pair of many masks.

    Attributes:
        both: int64 ``[masks, masks]``, coordinates in both; on the diagonal the sizes.
        expected: float64 ``[masks, masks]``, the same as chance gives it; of the diagonal without meaning.
        null: what chance is: ``exponent-matched`` with the source, else ``random-per-tensor``.
    """

    names: tuple[str, ...]
    numel: int
    both: Ints
    expected: Floats
    null: str
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> Ints:
        """Coordinates of each mask, int64 ``[masks]``."""
        return np.diagonal(self.both)

    @cached_property
    def coverage(self) -> Floats:
        """Share of each mask (row) that is in another (column), float64 ``[masks, masks]``; NaN for an empty mask."""
        return _divided(self.both, self.sizes[:, None])

    @cached_property
    def jaccard(self) -> Floats:
        """What both have of what either has, float64 ``[masks, masks]``; NaN for two empty masks."""
        return _divided(self.both, self.sizes[:, None] + self.sizes - self.both)

    @cached_property
    def headrooms(self) -> Floats:
        """Overlap beyond chance as a share of the room there is, float64 ``[masks, masks]``.

        Up to the most that masks of these sizes can share, or, where it is negative, down to the fewest; as in a
        comparison. NaN without room, and on the diagonal.
        """
        most = np.minimum(self.sizes[:, None], self.sizes)
        least = np.maximum(self.sizes[:, None] + self.sizes - self.numel, 0)
        difference = self.both - self.expected
        room = np.abs(np.where(difference >= 0, most, least) - self.expected)
        headrooms = _divided(difference, np.where(room > 1e-9 * most, room, 0))
        np.fill_diagonal(headrooms, np.nan)
        return headrooms

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the masks in the order of their names, step 2 before step 10."""
        return tuple(sorted(range(len(self.names)), key=lambda number: natural(self.names[number])))

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """bool ``[masks, masks]``: all, for figures without answers are as good as each other."""
        return np.ones(self.both.shape, bool)

    @property
    def nearest(self) -> Ints:
        """For each mask the one that it has most in common with, by headroom; int64 ``[masks]``."""
        nearest: Ints = np.argmax(np.nan_to_num(self.headrooms, nan=-np.inf), axis=1)
        return nearest

    @property
    def sentence(self) -> str:
        """What the pairs say together."""
        values = self.headrooms[np.triu_indices(len(self.names), 1)]
        known = values[~np.isnan(values)]
        pairs = counted(values.size, "pair")
        if not known.size:
            return f"No headroom is defined of {pairs}: the masks are empty, or full."
        low, middle, high = (percent(float(value)) for value in np.quantile(known, (0, 0.5, 1)))
        spread = f"{low} to {high}, in the median {middle}," if known.size > 1 else middle
        return (
            f"The overlap of {pairs} takes {spread} of the headroom over "
            f"{null_sentence(self.null)} ({self.null}). Whether two masks share more than rounding gives, a comparison "
            "of these two answers."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "sentence": self.sentence,
            "null": self.null,
            "numel": self.numel,
            "sizes": self.sizes.tolist(),
            "both": self.both.tolist(),
            "expected": self.expected.tolist(),
            "jaccard": _plain(self.jaccard),
            "headrooms": _plain(self.headrooms),
            "notes": list(self.notes),
        }


def expected_by_class(sizes: Ints, members: Ints) -> Floats:
    """Coordinates that chance puts into both masks of every pair, in the classes of one tensor.

    Example: a class of 100 coordinates, of which two masks have 40 and 30, expects 40 * 30 / 100 = 12 in both.

    Args:
        sizes: int64 ``[masks, classes]``, coordinates of each mask by class.
        members: int64 ``[classes]``, all coordinates of each class.
    """
    known = members > 0
    own = sizes[:, known].astype(np.float64)
    expected: Floats = (own / members[known]) @ own.T
    return expected


def _divided(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> Floats:
    by = np.broadcast_to(by, values.shape)
    shares: Floats = np.divide(values, by, out=np.full(values.shape, np.nan), where=by > 0)
    return shares


def _plain(square: Floats) -> list[list[float | None]]:
    return [[None if value != value else value for value in row] for row in square.tolist()]
