"""Checks of the tensor table: offsets follow from counts, nothing overlaps, and figures are the manifest's."""

from __future__ import annotations

import math
import re

from maskreg.artifact.figures import check_figures
from maskreg.artifact.manifest import Manifest
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import ROLES
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.mask import packed_bytes
from maskreg.tensors.blocks import BLOCK_NUMEL
from maskreg.tensors.dtypes import ITEM_BYTES
from maskreg.tensors.names import check_name, shown

_FINGERPRINT = re.compile(r"[0-9a-f]{32}", re.ASCII)


def check_table(tensors: tuple[Tensor, ...], manifest: Manifest, limits: Limits = LIMITS) -> None:
    """Check every row, so that no offset computed from it lies outside an array.

    Raises:
        FormatError: a row's offsets do not follow from the rows before it, a text in it is not one of the format, or
            the manifest states figures that the table does not give.
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
    check_figures(tensors, manifest)


def _check_names(row: Tensor, limits: Limits) -> None:
    for name in (row.name, *row.aliases):
        check_name(name, "tensors.json", limits)
    if row.role not in ROLES:
        raise FormatError(f"tensors.json: {row.name}: {shown(row.role)} is not a role: {', '.join(ROLES)}")
    if row.layer:
        check_name(row.layer, "tensors.json", limits)
    for shape, dtype, digest in (
        (row.source_shape, row.source_dtype, row.source_fingerprint),
        (row.target_shape, row.target_dtype, row.target_fingerprint),
    ):
        # An absent side has none of the three.
        if (dtype not in ITEM_BYTES, not _FINGERPRINT.fullmatch(digest)) != (shape is None, shape is None):
            raise FormatError(f"tensors.json: {row.name}: dtype {shown(dtype)}, fingerprint {shown(digest)}")


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
        and 0 <= row.energy < math.inf
        and row.nan + row.inf <= row.nonfinite <= row.numel
    )
    if not holds:
        raise FormatError(f"tensors.json: {row.name}: counts that contradict each other")
