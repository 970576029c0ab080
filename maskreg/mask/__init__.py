"""Masks: which coordinates of a tensor moved, as packed bits, with their statistics."""

from maskreg.mask.packed import Mask, TensorMask, flip, nnz_of, overlap, pack, pack_spans, packed_bytes, unpack
from maskreg.mask.summary import Counts, Summary, ffn_shares, summarize

__all__ = [
    "Counts",
    "Mask",
    "Summary",
    "TensorMask",
    "ffn_shares",
    "flip",
    "nnz_of",
    "overlap",
    "pack",
    "pack_spans",
    "packed_bytes",
    "summarize",
    "unpack",
]
