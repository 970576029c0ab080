"""The work on one run of several masks: read their bits and the source's codes, check them, count. On any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import Cells, Packed, count_agreeing, count_both, count_classes, count_stripes
from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope
from maskreg.checkpoint.base import Checkpoint
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.leaves import check_before, leaves_between

BITS_NUMEL = 1 << 25
"""Coordinates at a time when only bits are read: 4 MiB of each mask."""


class Run(NamedTuple):
    """Coordinates ``[start, stop)`` of one tensor, by its row in each artifact."""

    rows: tuple[Tensor, ...]
    start: int
    stop: int

    @property
    def ends(self) -> bool:
        """Whether it is the tensor's last."""
        return self.stop == self.rows[0].numel


@dataclass(frozen=True, eq=False)
class Counted:
    """What came of a run; the sum of two is that of their coordinates together.

    Attributes:
        pairs: int64 for every pair of masks: ``[512, 4]``, 2x2 tables by class of the source's codes; without the
            source ``[1, 4]``.
        agreeing: int64 ``[masks + 1]``, coordinates by how many masks they are in; empty for two masks.
        stripes: for every mask coordinates by row and by column; empty where there are no stripes.
        nbytes: bytes that were read.
    """

    pairs: tuple[Cells, ...]
    agreeing: Cells
    stripes: tuple[tuple[Cells, Cells], ...]
    nbytes: int

    def __add__(self, other: Counted) -> Counted:
        both = zip(self.stripes, other.stripes, strict=True)
        return Counted(
            tuple(one + more for one, more in zip(self.pairs, other.pairs, strict=True)),
            self.agreeing + other.agreeing,
            tuple((one[0] + more[0], one[1] + more[1]) for one, more in both),
            self.nbytes + other.nbytes,
        )


@dataclass(frozen=True)
class Counter:
    """Counts runs. Safe to call from many threads.

    Attributes:
        artifacts: the masks.
        source: the checkpoint that they were made from; None when it is not at hand.
        stripes: count rows and columns too.
    """

    artifacts: Sequence[Artifact]
    source: Checkpoint | None
    stripes: bool

    def __call__(self, run: Run) -> Counted:
        """Count one run.

        Raises:
            WrongCheckpointError: the source's elements are not those that the masks were made from.
            DataError: an artifact is damaged.
        """
        numel = run.stop - run.start
        masks = [
            artifact.mask_bits(row, run.start, run.stop) for artifact, row in zip(self.artifacts, run.rows, strict=True)
        ]
        codes = self._codes(run)
        pairs = tuple(
            _bare(one, other, numel) if codes is None else count_classes(one, other, codes)
            for one, other in combinations(masks, 2)
        )
        return Counted(
            pairs,
            count_agreeing(masks, numel) if len(masks) > 2 else np.zeros(0, np.int64),
            tuple(_stripes(mask, run) for mask in masks) if self.stripes and has_stripes(run.rows[0]) else (),
            nbytes(run, len(masks), self.source),
        )

    def _codes(self, run: Run) -> npt.NDArray[np.uint16] | None:
        if self.source is None:
            return None
        row = run.rows[0]
        values = self.source.read(row.name, run.start, run.stop)
        expected, _ = self.artifacts[0].leaves(row)
        check_before(row.name, run.start, values, leaves_between(expected, run.start, run.stop))
        return to_bf16(values, row.source_dtype)


def runs_of(scope: Scope, source: Checkpoint | None) -> Iterator[Run]:
    """Runs of all tensors, in order."""
    for rows in scope.rows:
        numel = rows[0].numel
        if source is None:
            yield from (Run(rows, start, min(start + BITS_NUMEL, numel)) for start in range(0, numel, BITS_NUMEL))
        else:
            yield from (Run(rows, start, stop) for start, stop in blocks_of(numel))


def nbytes(run: Run, masks: int, source: Checkpoint | None) -> int:
    """Bytes that are read for a run."""
    numel = run.stop - run.start
    wide = 0 if source is None else source.tensors[run.rows[0].name].item_bytes
    return numel * masks // 8 + numel * wide


def has_stripes(row: Tensor) -> bool:
    """Whether a tensor is a matrix."""
    return row.source_shape is not None and len(row.source_shape) == 2


def _bare(one: Packed, other: Packed, numel: int) -> Cells:
    a, b, both = count_both(one, other)
    return np.array([[numel - a - b + both, a - both, b - both, both]], np.int64)


def _stripes(packed: Packed, run: Run) -> tuple[Cells, Cells]:
    height, width = run.rows[0].source_shape or (0, 0)
    rows, columns = np.zeros(height, np.int64), np.zeros(width, np.int64)
    count_stripes(packed, run.start, run.stop - run.start, rows, columns)
    return rows, columns
