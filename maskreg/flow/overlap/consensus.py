"""Maps of the consensus of masks: for every coordinate of some tensors in how many masks it is."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from maskreg.analysis.comparison import ConsensusMap, ConsensusPicture
from maskreg.analysis.contingency import MAX_MASKS
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import scope_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.errors import UsageError
from maskreg.flow.overlap.counting import BITS_NUMEL, MASKS_BYTES
from maskreg.mask.packed import unpack
from maskreg.progress import SILENT, Progress

MASKS = "masks"
"""Name of the array that holds R, the number of masks; tensors have their own names."""

MOST_PICTURES = 4
"""Matrices whose consensus is looked at together."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_consensus(
    artifacts: Sequence[Artifact],
    file: BinaryIO,
    *,
    allow_different: bool = False,
    selection: Selection = ALL,
    progress: Progress = SILENT,
) -> tuple[ConsensusMap, ...]:
    """Write the number of masks that hold each coordinate, one array for each tensor; divided by R it is C.

    The file is what ``numpy.savez_compressed`` writes, and the same for the same masks. One tensor is in memory at a
    time, at a byte a coordinate::

        with np.load("consensus.npz") as maps:
            consensus = maps["model.layers.13.self_attn.q_proj.weight"] / maps["masks"]

    Raises:
        UsageError: more masks than a byte can count.
    """
    if len(artifacts) > MAX_MASKS:
        raise UsageError(f"{len(artifacts)} masks; a map counts {MAX_MASKS} at most")
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    maps: list[ConsensusMap] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _write(archive, MASKS, np.asarray(len(artifacts)))
        for rows, counts in _counted(artifacts, scope.rows, progress):
            shape = rows[0].source_shape or ()
            _write(archive, rows[0].name, counts.reshape(shape))
            maps.append(ConsensusMap.of(rows[0].name, shape, counts, [row.nnz for row in rows]))
    return tuple(maps)


def picture_consensus(
    artifacts: Sequence[Artifact],
    *,
    allow_different: bool = False,
    selection: Selection = ALL,
    progress: Progress = SILENT,
) -> tuple[ConsensusPicture, ...]:
    """The consensus of every matrix in blocks, where the selection leaves so few that all can be looked at."""
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    matrices = [rows for rows in scope.rows if len(rows[0].source_shape or ()) == 2]
    if len(matrices) > MOST_PICTURES:
        return ()
    pictures = []
    for rows, counts in _counted(artifacts, matrices, progress):
        height, width = rows[0].source_shape or (0, 0)
        pictures.append(ConsensusPicture.of(rows[0].name, (height, width), counts, [row.nnz for row in rows]))
    return tuple(pictures)


def _counted(
    artifacts: Sequence[Artifact], tensors: Sequence[Sequence[Tensor]], progress: Progress
) -> Iterator[tuple[Sequence[Tensor], npt.NDArray[np.uint8]]]:
    """Tensors by their row in each artifact, and in how many masks each coordinate is, one tensor at a time."""
    for artifact in artifacts:
        artifact.require("mask")
        artifact.hold_at_most(MASKS_BYTES // len(artifacts))
    progress.start("map consensus", sum(rows[0].numel for rows in tensors) * len(artifacts) // 8)
    for rows in tensors:
        counts = np.zeros(rows[0].numel, np.uint8)
        for artifact, row in zip(artifacts, rows, strict=True):
            for start in range(0, row.numel, BITS_NUMEL):
                stop = min(start + BITS_NUMEL, row.numel)
                counts[start:stop] += unpack(artifact.mask_bits(row, start, stop), stop - start)
        yield rows, counts
        progress.advance(rows[0].numel * len(artifacts) // 8)


def _write(archive: zipfile.ZipFile, name: str, array: npt.NDArray[np.generic]) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(entry, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)
