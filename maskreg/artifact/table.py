"""Checks of the tensor table: offsets follow from counts, nothing overlaps, and sums are the manifest's totals."""

from __future__ import annotations

import math

from maskreg.artifact.manifest import Manifest, Tensor
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.mask import packed_bytes
from maskreg.tensors.blocks import BLOCK_NUMEL
from maskreg.tensors.names import check_name


def check_table(tensors: tuple[Tensor, ...], manifest: Manifest, limits: Limits = LIMITS) -> None:
    """Check every row, so that no offset computed from it lies outside an array.

    Raises:
        FormatError: a row's offsets do not follow from the rows before it, or the totals are not the sums.
        LimitError: a name or a tensor beyond the limits.
    """
    bit = block = leaf = whole = reverse_whole = 0
    for row in tensors:
        _check_names(row, limits)
        _check_counts(row, limits)
        expected = (bit, block, leaf, whole, reverse_whole)
        offsets = (row.bit_offset, row.first_block, row.first_leaf, row.whole_offset, row.reverse_whole_offset)
        if offsets != expected:
            raise FormatError(f"tensors.json: {row.name}: offsets {offsets} instead of {expected}")
        bit += 8 * packed_bytes(row.numel)
        block += row.blocks
        leaf += row.leaves
        whole += row.whole_bytes
        reverse_whole += row.reverse_whole_bytes
    totals = manifest.totals
    sums = tuple(sum(getattr(t, f) for t in tensors) for f in ("numel", "nnz", "differing"))
    if sums != (totals.numel, totals.nnz, totals.differing):
        raise FormatError(f"tensors.json: sums {sums} are not the manifest's totals")


def _check_names(row: Tensor, limits: Limits) -> None:
    for name in (row.name, *row.aliases):
        check_name(name, "tensors.json", limits)


def _check_counts(row: Tensor, limits: Limits) -> None:
    sides = [math.prod(s) for s in (row.source_shape, row.target_shape) if s is not None]
    if not sides or max(sides) > limits.numel:
        raise LimitError(f"tensors.json: {row.name}: without a shape, or with more than {limits.numel} elements")
    holds = (
        row.numel in (0, *sides)
        and row.nnz <= row.numel
        and row.differing <= row.numel
        and row.blocks in (0, -(-row.numel // BLOCK_NUMEL))
        and row.leaves == -(-max(sides) // LEAF_NUMEL)
        and (not row.numel or row.source_shape == row.target_shape)
        and math.isfinite(row.energy)
    )
    if not holds:
        raise FormatError(f"tensors.json: {row.name}: counts that contradict each other")
