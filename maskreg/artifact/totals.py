"""The manifest's totals, from the rows of the tensor table; and the checks of a table that was read.

Offsets follow from counts, and tensors must not overlap. A manifest's digest proves that it was not changed, not that
its publisher counted right. So every figure that follows from the tensor table is computed again, by the functions
that wrote it::

    numel, nnz, differing, energy, role, layer of each tensor   -> totals: sums, roles, layers, FFN ratios
    names, shapes, dtypes, fingerprints of each side            -> params, tensors, dtypes, root

What only the mask's bits can tell is the business of :mod:`maskreg.artifact.recount`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from maskreg.artifact.manifest import FfnRatios, Group, Manifest, Side, Totals, require_same
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import ROLES, module_of
from maskreg.digest import LEAF_NUMEL, fingerprint_root
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS
from maskreg.mask import Counts, packed_bytes, summarize
from maskreg.tensors.info import BLOCK_NUMEL, ITEM_BYTES, check_name, shown


def six_digits(value: float) -> float:
    """Round to six significant digits: the last bits of sums of squares differ between machines."""
    return float(f"{value:.5e}")


def rounded(counts: Counts) -> dict[str, Any]:
    """Counts by name, the energy as :func:`six_digits` has it."""
    return {**vars(counts), "energy": six_digits(counts.energy)}


def totals_of(rows: Iterable[Tensor]) -> Totals:
    """Sums over all tensors, by role, by layer, and the FFN ratios (rounded to six digits)."""
    summary = summarize(
        (t.role, t.layer, Counts(t.numel, t.nnz, t.differing, t.energy, t.nonfinite, t.nan, t.inf)) for t in rows
    )
    ratios = {k: None if v is None else six_digits(v) for k, v in summary.ffn.items()}
    return Totals(
        **rounded(summary.all),
        roles={k: Group(numel=c.numel, nnz=c.nnz) for k, c in summary.roles.items()},
        layers={k: Group(numel=c.numel, nnz=c.nnz) for k, c in summary.layers.items()},
        ffn=FfnRatios(**ratios),
    )


def grouped(rows: Iterable[Tensor], by: str) -> dict[str, Group]:
    """Coordinates by module or tensor, in the order of the table; tensors without a mask are left out.

    ``by``: ``tensor``; or ``module``, which joins the tensors of all layers that have one name within their layer.
    """
    groups: dict[str, Group] = {}
    for row in rows:
        if row.numel:
            label = row.name if by == "tensor" else module_of(row.name, row.layer)
            before = groups.get(label, Group(numel=0, nnz=0))
            groups[label] = Group(numel=before.numel + row.numel, nnz=before.nnz + row.nnz)
    return groups


def check_figures(tensors: tuple[Tensor, ...], manifest: Manifest) -> None:
    """Check every figure of a manifest that follows from its tensor table."""
    expected = totals_of(tensors)
    for name in expected.__struct_fields__:
        require_same(f"totals.{name}", getattr(manifest.totals, name), getattr(expected, name), "the tensor table")
    _check_side(tensors, manifest, "source")
    _check_side(tensors, manifest, "target")


def _check_side(tensors: tuple[Tensor, ...], manifest: Manifest, name: Literal["source", "target"]) -> None:
    side: Side = getattr(manifest, name)
    rows = list(side_tensors(tensors, name))
    dtypes: dict[str, int] = {}
    for _, dtype, shape, _ in rows:
        dtypes[dtype] = dtypes.get(dtype, 0) + math.prod(shape)
    figures: dict[str, Any] = {"tensors": len(rows), "params": sum(dtypes.values()), "dtypes": dtypes}
    if side.cast:
        # The table has the dtype of the stored values, the side the checkpoint's.
        del figures["dtypes"]
    if manifest.kind == "delta":
        for figure, value in figures.items():
            require_same(f"{name}.{figure}", getattr(side, figure), value, "the tensor table")
        require_same(f"{name}.root", side.root, fingerprint_root(rows), "the tensor table")
    elif side.tensors < figures["tensors"] or side.params < figures["params"]:
        # A combination of masks has the tensors that can have a mask, and its side is the whole checkpoint.
        raise FormatError(f"manifest.json: {name}: fewer tensors or parameters than the tensor table has")


def side_tensors(tensors: Iterable[Tensor], side: str) -> Iterator[tuple[str, str, tuple[int, ...], str]]:
    """Name, dtype, shape and fingerprint of each tensor of one side, tied ones under each of their names."""
    for row in tensors:
        shape, dtype, digest = (getattr(row, f"{side}_{field}") for field in ("shape", "dtype", "fingerprint"))
        if shape is not None:
            yield from ((name, dtype, shape, digest) for name in (row.name, *row.aliases))


_FINGERPRINT = re.compile(r"[0-9a-f]{32}", re.ASCII)


def check_table(tensors: tuple[Tensor, ...], manifest: Manifest) -> None:
    """Check every row, so that no offset computed from it lies outside an array."""
    bit = block = leaf = whole = reverse_whole = 0
    for row in tensors:
        _check_names(row)
        _check_counts(row)
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


def _check_names(row: Tensor) -> None:
    for name in (row.name, *row.aliases):
        check_name(name, "tensors.json")
    if row.role not in ROLES:
        raise FormatError(f"tensors.json: {row.name}: {shown(row.role)} is not a role: {', '.join(ROLES)}")
    if row.layer:
        check_name(row.layer, "tensors.json")
    for shape, dtype, digest in (
        (row.source_shape, row.source_dtype, row.source_fingerprint),
        (row.target_shape, row.target_dtype, row.target_fingerprint),
    ):
        # An absent side lacks all three.
        if (dtype not in ITEM_BYTES, not _FINGERPRINT.fullmatch(digest)) != (shape is None, shape is None):
            raise FormatError(f"tensors.json: {row.name}: dtype {shown(dtype)}, fingerprint {shown(digest)}")


def _check_counts(row: Tensor) -> None:
    sides = [math.prod(s) for s in (row.source_shape, row.target_shape) if s is not None]
    if not sides or max(sides) > LIMITS.numel:
        raise LimitError(f"tensors.json: {row.name}: without a shape, or with more than {LIMITS.numel} elements")
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
