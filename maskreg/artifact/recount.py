"""Counting again what a publisher counted: moved coordinates from the mask's bits, fingerprints from the leaf hashes.

The manifest's figures follow from the tensor table (checked on every reading), and the table's counts from the
payload (checked here, block by block, because it takes reading all of it)::

    mask    popcount of each tensor's bits = nnz; padding bits = 0; where the mask is present
    leaves  hash of each side's leaf hashes = fingerprint

``differing`` and ``energy`` compare values of both checkpoints, and no artifact holds those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.digest import fingerprint
from maskreg.mask import nnz_of, packed_bytes
from maskreg.mask.packed import PAD_BITS
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import blocks_of, shown
from maskreg.tensors.leaves import leaf_count


def recount(artifact: Artifact, *, progress: Progress = SILENT, jobs: int | None = None) -> Iterator[str]:
    """What of the tensor table's counts and fingerprints does not match the payload, a sentence each, in their order.

    Each thread holds one block of the mask. An analysis has nothing to count.
    """
    if artifact.manifest.kind == "analysis":
        return
    is_masked = "mask" in artifact.present()
    progress.start("recount", sum(packed_bytes(row.numel) for row in artifact.tensors))
    for row in artifact.tensors[:1]:
        # Opens the arrays once, before threads need them.
        artifact.leaves(row)
        if is_masked:
            artifact.mask_bits(row, 0, 0)

    def faults(row: Tensor) -> tuple[int, list[str]]:
        return packed_bytes(row.numel), [*(_of_mask(artifact, row) if is_masked else ()), *_of_leaves(artifact, row)]

    with closing(ordered(faults, artifact.tensors, jobs=worker_count(jobs), size=attrgetter("numel"))) as results:
        for size, of_tensor in results:
            progress.advance(size)
            yield from of_tensor


def _of_mask(artifact: Artifact, row: Tensor) -> Iterator[str]:
    nnz, padding = _count(artifact, row)
    if nnz != row.nnz:
        yield f"{shown(row.name)}: the table states {row.nnz} moved coordinates; the mask has {nnz}"
    if padding:
        yield f"{shown(row.name)}: padding bits of the mask that are not 0: {padding}"


def _of_leaves(artifact: Artifact, row: Tensor) -> Iterator[str]:
    leaves = artifact.leaves(row)
    for side, shape, stated, hashes in (
        ("source", row.source_shape, row.source_fingerprint, leaves[0]),
        ("target", row.target_shape, row.target_fingerprint, leaves[1]),
    ):
        if shape is not None and fingerprint(hashes[: leaf_count(math.prod(shape))]) != stated:
            yield f"{shown(row.name)}: its {side} fingerprint does not follow from the stored leaf hashes"


def _count(artifact: Artifact, row: Tensor) -> tuple[int, int]:
    nnz = padding = 0
    for start, stop in blocks_of(row.numel):
        bits = artifact.mask_bits(row, start, stop)
        nnz += nnz_of(bits)
        if surplus := -(stop - start) % PAD_BITS:
            # Little bit order: the last word's upper bits belong to no coordinate.
            padding = (int.from_bytes(bits[-PAD_BITS // 8 :].tobytes(), "little") >> (PAD_BITS - surplus)).bit_count()
    return nnz - padding, padding
