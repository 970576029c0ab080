"""Figures of a manifest that follow from its tensor table: computed again, and compared exactly.

A manifest's digest proves that nobody changed it, not that its publisher counted right. So whatever can be computed
again from the tensor table is, by the functions that wrote it::

    numel, nnz, differing, energy, role, layer of each tensor   -> totals: sums, roles, layers, FFN ratios
    names, shapes, dtypes, fingerprints of each side            -> params, tensors, dtypes, root

What only the mask's bits can tell is the business of :mod:`maskreg.artifact.recount`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from maskreg.artifact.manifest import Manifest, Side, require_same
from maskreg.artifact.tensors import Tensor
from maskreg.artifact.totals import totals_of
from maskreg.digest import fingerprint_root
from maskreg.errors import FormatError


def check_figures(tensors: tuple[Tensor, ...], manifest: Manifest) -> None:
    """Check every figure of a manifest that follows from its tensor table.

    Raises:
        FormatError: a figure that is not the one that the table gives; it is named, with both values.
    """
    expected = totals_of(tensors)
    for name in expected.__struct_fields__:
        require_same(f"totals.{name}", getattr(manifest.totals, name), getattr(expected, name), "the tensor table")
    _check_side(tensors, manifest, "source")
    _check_side(tensors, manifest, "target")


def _check_side(tensors: tuple[Tensor, ...], manifest: Manifest, name: Literal["source", "target"]) -> None:
    side: Side = getattr(manifest, name)
    rows = list(_tensors_of(tensors, name))
    dtypes: dict[str, int] = {}
    for _, dtype, shape, _ in rows:
        dtypes[dtype] = dtypes.get(dtype, 0) + math.prod(shape)
    figures: dict[str, Any] = {"tensors": len(rows), "params": sum(dtypes.values()), "dtypes": dtypes}
    if side.cast:
        # The table has the dtype of the stored values, the side that of the checkpoint.
        del figures["dtypes"]
    if manifest.kind == "delta":
        for figure, value in figures.items():
            require_same(f"{name}.{figure}", getattr(side, figure), value, "the tensor table")
        require_same(f"{name}.root", side.root, fingerprint_root(rows), "the tensor table")
    elif side.tensors < figures["tensors"] or side.params < figures["params"]:
        # A combination of masks has the tensors that can have a mask, and its side is the whole checkpoint.
        raise FormatError(f"manifest.json: {name}: fewer tensors or parameters than the tensor table has")


def _tensors_of(tensors: Iterable[Tensor], side: str) -> Iterator[tuple[str, str, tuple[int, ...], str]]:
    for row in tensors:
        shape, dtype, digest = (getattr(row, f"{side}_{field}") for field in ("shape", "dtype", "fingerprint"))
        if shape is not None:
            yield from ((name, dtype, shape, digest) for name in (row.name, *row.aliases))
