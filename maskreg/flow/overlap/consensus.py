"""Pictures of the consensus of masks: in how many masks the coordinates of a few matrices are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.analysis.comparison import ConsensusPicture
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import scope_of
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.flow.overlap.counting import BITS_NUMEL, MASKS_BYTES
from maskreg.mask.packed import unpack
from maskreg.progress import SILENT, Progress

MOST_PICTURES = 4
"""Matrices whose consensus is looked at together."""


def picture_consensus(
    artifacts: Sequence[Artifact],
    *,
    allow_different: bool = False,
    selection: Selection = ALL,
    progress: Progress = SILENT,
) -> tuple[ConsensusPicture, ...]:
    """The consensus of every matrix in blocks, where the selection leaves so few that all can be looked at.

    Counts of one matrix are in memory at a time, at a byte a coordinate.
    """
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    matrices = [rows for rows in scope.rows if rows[0].numel and len(rows[0].source_shape or ()) == 2]
    if len(matrices) > MOST_PICTURES:
        return ()
    for artifact in artifacts:
        artifact.require("mask")
        artifact.hold_at_most(MASKS_BYTES // len(artifacts))
    progress.start("map consensus", sum(rows[0].numel for rows in matrices) * len(artifacts) // 8)
    pictures = []
    for rows in matrices:
        counts = np.zeros(rows[0].numel, np.uint8)
        for artifact, row in zip(artifacts, rows, strict=True):
            for start in range(0, row.numel, BITS_NUMEL):
                stop = min(start + BITS_NUMEL, row.numel)
                counts[start:stop] += unpack(artifact.mask_bits(row, start, stop), stop - start)
        height, width = rows[0].source_shape or (0, 0)
        pictures.append(ConsensusPicture.of(rows[0].name, (height, width), counts, [row.nnz for row in rows]))
        progress.advance(rows[0].numel * len(artifacts) // 8)
    return tuple(pictures)
