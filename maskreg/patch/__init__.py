"""Patching one block: check what it is applied to, decode, check what came out; no files, no network."""

from maskreg.patch.block import (
    check_after,
    check_before,
    differing_leaf,
    leaf_count,
    leaves_between,
    patch_block,
)

__all__ = [
    "check_after",
    "check_before",
    "differing_leaf",
    "leaf_count",
    "leaves_between",
    "patch_block",
]
