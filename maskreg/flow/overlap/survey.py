"""Many masks side by side: a survey of all their pairs, and maps of their consensus.

A survey reads every mask once, and counts all pairs of a span together on packed bits. A map has for every coordinate
of some tensors in how many masks it is.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.comparison import ConsensusMap, ConsensusPicture
from maskreg.analysis.contingency import IN_A, IN_B, Cells, count_classes, count_pairs
from maskreg.analysis.evidence import MATCHED, PER_TENSOR
from maskreg.analysis.survey import Survey, expected_by_class
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import scope_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.digest import LEAF_NUMEL
from maskreg.flow.overlap.counting import BITS_NUMEL, MASKS_BYTES, SharedSpan, SpanReader, Tile, operands_of
from maskreg.mask.packed import unpack
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import numel_of

SPAN_BYTES = 1 << 25
"""Memory for the bits of all masks in a span, and for the source's codes; a span has at least one leaf."""

MOST_MASKS = 1000
"""Masks in a survey: half a million pairs."""

_WAITING = 2
"""Spans that wait besides those that are counted."""

_ALL = Tile(0, 1, ())
"""One tile of all masks: a survey counts its pairs itself."""


class _Counts(NamedTuple):
    """Counts of a span: coordinates in both masks of every pair, of each mask by class, and all by class.

    They are int64 ``[masks, masks]``, ``[masks, classes]`` and ``[classes]``; of one class without the source.
    """

    span: SharedSpan
    both: Cells
    sizes: Cells
    members: Cells


def survey_overlaps(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    names: Sequence[str] = (),
    allow_different: bool = False,
    selection: Selection = ALL,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Survey:
    """Count what every two of many masks share, and what chance gives; no intervals, and no answers.

    Every mask is read once. Memory grows neither with the model nor with the number of masks, but for two numbers of
    every pair: ``SPAN_BYTES`` for each thread, and ``MASKS_BYTES`` for verified parts of all masks.
    """
    threads = worker_count(jobs)
    operands = operands_of(
        artifacts, source, allow_different=allow_different, selection=selection, jobs=threads, most=MOST_MASKS
    )
    scope, verified, _ = operands
    per_coordinate = len(artifacts) / 8 + (2 if verified else 0)
    length = max(1, int(SPAN_BYTES / per_coordinate) // LEAF_NUMEL) * LEAF_NUMEL

    def spans() -> Iterator[SharedSpan]:
        for rows in scope.rows:
            for start in range(0, rows[0].numel, length):
                yield SharedSpan(rows, start, min(start + length, rows[0].numel), _ALL)

    reader = SpanReader(artifacts, verified, scope)

    def work(span: SharedSpan) -> _Counts:
        masks, codes = list(reader.bits(span).values()), reader.codes(span)
        both = count_pairs(masks)
        if codes is None:
            return _Counts(span, both, np.diagonal(both)[:, None], np.array([span.stop - span.start]))
        # Counting two masks by class takes no longer than counting one.
        tables = [count_classes(masks[at], masks[min(at + 1, len(masks) - 1)], codes) for at in range(0, len(masks), 2)]
        sizes = [(table @ inside).astype(np.int64) for table in tables for inside in (IN_A, IN_B)]
        return _Counts(span, both, np.stack(sizes[: len(masks)]), tables[0].sum(1))

    progress.start("survey", int(scope.numel * per_coordinate))
    both = np.zeros((len(artifacts), len(artifacts)), np.int64)
    expected = np.zeros(both.shape)
    sizes = members = np.zeros(1, np.int64)
    with closing(ordered(work, spans(), jobs=threads, in_flight=threads + _WAITING, size=numel_of)) as results:
        for counts in results:
            both += counts.both
            first = not counts.span.start
            sizes = counts.sizes if first else sizes + counts.sizes
            members = counts.members if first else members + counts.members
            if counts.span.ends_tensor:
                expected += expected_by_class(sizes, members)
            progress.advance(int(numel_of(counts.span) * per_coordinate))
    return Survey(
        tuple(names) or tuple(artifact.digest.short for artifact in artifacts),
        scope.numel,
        both,
        expected,
        MATCHED if verified else PER_TENSOR,
        operands.notes,
    )


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
    """
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
