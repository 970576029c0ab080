"""Density of a mask by exponent of the source weights, beside what rounding alone would give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import count_classes
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.flow.storing import MaskedSpan
from maskreg.mask.rounding import CLASSES, fit_flips, hidden_flips
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import blocks_of, numel_of
from maskreg.update.verified import VerifiedSource

Counts = npt.NDArray[np.int64]

NumberT = TypeVar("NumberT", np.int64, np.float64)

EXPONENTS = CLASSES // 2
BIAS = 127
"""Exponent bias of bf16; field 0 is zeros and subnormals, 255 infinities and NaNs."""


@dataclass(frozen=True, eq=False)
class ByExponent:
    """Sums over the tensors of a mask that are stored in bf16.

    Attributes:
        members: int64 ``[256]``, coordinates by exponent field of the source's code.
        moved: int64 ``[256]``, of them in the mask.
        expected: float64 ``[256]``, coordinates that rounding alone would move, fitted per tensor to its nnz and
            summed; None where the null is undefined.
        elsewhere: share of the mask that lies in other classes of weights than rounding alone predicts: half the sum
            over tensors and classes of |moved - expected|, over nnz. A class is an exponent, with mantissa 0 apart.
        elsewhere_by_chance: expectation of that share for a mask that rounding alone made.
        left_out: tensors that are not stored in bf16.
        reason: why the null is undefined; empty where it is defined.
    """

    members: Counts
    moved: Counts
    expected: npt.NDArray[np.float64] | None
    elsewhere: float | None
    elsewhere_by_chance: float | None
    left_out: tuple[str, ...]
    reason: str


def by_exponent(
    artifact: Artifact,
    source: Checkpoint,
    *,
    selection: Selection = ALL,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ByExponent:
    """Count a mask by exponent of the source's codes, and fit the rounding null to each tensor.

    Memory is bounded by the blocks in flight. Every leaf of the source is checked as it is read.
    """
    artifact.require("mask")
    scope = (
        scope_of([artifact], selection=selection)
        if selection
        else Scope(tuple((row,) for row in artifact.tensors if row.numel), (), one_source=True)
    )
    rows = [row for (row,) in scope.rows]
    threads = worker_count(jobs)
    verified = VerifiedSource(artifact, source, jobs=threads)
    stored = [row for row in rows if row.source_dtype == "BF16"]

    def read(block: MaskedSpan) -> tuple[str, int, int]:
        tensor, first = scope.origin(block.row.name)
        return tensor, first + block.start, first + block.stop

    def work(block: MaskedSpan) -> tuple[str, Counts]:
        codes = verified.codes_within(*read(block))
        assert block.packed is not None
        # A mask beside itself: each coordinate is in neither, or in both.
        outside, _, _, moved = count_classes(block.packed, block.packed, codes).T
        return block.row.name, np.stack([outside + moved, moved])

    reason, apart, by_chance = hidden_flips(artifact.manifest.rule), 0.0, 0.0
    total, expected = np.zeros((2, CLASSES), np.int64), np.zeros(CLASSES)
    progress.start("count", sum(2 * row.numel for row in stored))
    blocks = verified.ahead(_blocks(artifact, stored), read)
    with closing(ordered(work, blocks, jobs=threads, size=numel_of)) as results:
        for name, counted in groupby(results, itemgetter(0)):
            tensor = np.zeros_like(total)
            for _, counts in counted:
                tensor += counts
                progress.advance(2 * int(counts[0].sum()))
            total += tensor
            members, moved = tensor
            try:
                chances = fit_flips(members, int(moved.sum()))
            except ValueError as error:
                reason = f"{name}: {error}"
                continue
            own = members * chances
            expected += own
            apart += float(np.abs(moved - own).sum())
            # The mean distance of a normal variable from its mean is sqrt(2 / pi) standard deviations.
            by_chance += float(np.sqrt(2 / np.pi * own * np.maximum(1 - chances, 0)).sum())
    nnz, left_out = int(total[1].sum()), tuple(row.name for row in rows if row.source_dtype != "BF16")
    sides = _folded(total[0]), _folded(total[1])
    if reason:
        return ByExponent(*sides, None, None, None, left_out, reason)
    elsewhere, elsewhere_by_chance = (apart / 2 / nnz, by_chance / 2 / nnz) if nnz else (None, None)
    return ByExponent(*sides, _folded(expected), elsewhere, elsewhere_by_chance, left_out, "")


def _blocks(artifact: Artifact, rows: list[Tensor]) -> Iterator[MaskedSpan]:
    for row in rows:
        for start, stop in blocks_of(row.numel):
            yield MaskedSpan(row, start, stop, artifact.mask_bits(row, start, stop))


def _folded(by_class: npt.NDArray[NumberT]) -> npt.NDArray[NumberT]:
    """Sums by exponent: the class with mantissa 0 and the class of the rest together."""
    pairs = by_class.reshape(EXPONENTS, 2)
    return pairs[:, 0] + pairs[:, 1]
