"""Sub-blocks: spans of a block that are coded, and decode, on their own.

Encoding takes two passes, because tokens are coded last to first, with tables that are made of all of them::

    classify_all          a key (cell << 6 | token) per coordinate; from their counts, tables are made
    encode_sub_blocks     keys to words and extra bits, last to first, up to four sub-blocks side by side

Tokens become words by rANS (J. Duda, "Asymmetric numeral systems", arXiv:1311.2540): FORMAT.md section 5.5. Decoding is
one call: header, model and directory, then tile by tile cells, tokens and values, with up to eight sub-blocks side by
side, so that everything about a tile stays in the first-level cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Bits, Block, Codes
from maskreg.codec.contexts import Contexts
from maskreg.codec.layout import (
    BAD_DIRECTORY,
    BAD_MODEL,
    ENTRY_BYTES,
    MODEL_START,
    SHORT_DIRECTORY,
    STATE_BYTES,
    CodedHead,
)
from maskreg.codec.tables import SLOTS
from maskreg.codec.ulp_steps import COUNTERS, TOKENS
from maskreg.errors import CorruptError
from maskreg.native import library
from maskreg.parallel import Buffers

_ABREAST = 4  # sub-blocks that the kernel codes side by side

Keys = npt.NDArray[np.uint16]

_BUFFERS = Buffers()

_INVERSES = (1 + 2.0**-40) / np.maximum(np.arange(SLOTS + 1), 1)
"""What kernels multiply by instead of dividing by a frequency."""


class Pair(NamedTuple):
    """A block to be coded.

    Attributes:
        keys: of :func:`classify_all`; tokens that a table lacks are replaced by literals.
        length: coordinates of each sub-block but the last, which has the rest, and no more than that.
    """

    source: Codes
    target: Codes
    keys: Keys
    length: int


def most_bytes(n: int, length: int) -> int:
    """Bytes that :func:`encode_sub_blocks` needs room for: a word and 16 extra bits for each coordinate, and 8 more."""
    return -(-n // length) * (ENTRY_BYTES + STATE_BYTES) + 4 * n + 8


def classify_all(
    source: Codes, position: int, contexts: Contexts, tokens: npt.NDArray[np.uint8] | None, keys: Keys
) -> npt.NDArray[np.int64]:
    """Fill the keys of a block, cell << 6 | token, flipped where the cell says so; their counts, ``[cells, 64]``.

    ``tokens``: can be the second half of the keys' memory; None for the tokens of the keys in it, made without factors.
    """
    compiled = library()
    structure, _arrays = contexts.structure(compiled)
    counts = np.zeros((contexts.cells, TOKENS), np.int64)
    scratch = compiled.write(_BUFFERS.array("counters", COUNTERS * counts.size, np.uint32))
    compiled.lib.maskreg_classify_all(
        compiled.read(source), source.size, position, structure,
        compiled.ffi.NULL if tokens is None else compiled.read(tokens), compiled.write(keys),
        contexts.cells, compiled.write(counts), scratch,
    )  # fmt: skip
    return counts


def encode_sub_blocks(pair: Pair, slots: npt.NDArray[np.uint32], out: Bits) -> int:
    """Write directory and sub-blocks as they are stored, into as much room as :func:`most_bytes` says; their bytes."""
    compiled = library()
    length = min(pair.length, pair.keys.size)
    words_room, bits_room = length + 8, length // 2 + 2
    words = _BUFFERS.array("words", _ABREAST * words_room, np.uint16)
    bits = _BUFFERS.array("bits", _ABREAST * bits_room, np.uint32)
    fields = (
        compiled.read(pair.source), compiled.read(pair.target), compiled.write(pair.keys), pair.keys.size, pair.length,
        compiled.read(slots), compiled.read(_INVERSES),
        compiled.write(words), words_room, compiled.write(bits), bits_room,
    )  # fmt: skip
    structure = compiled.ffi.new("maskreg_coding *", fields)
    size: int = compiled.lib.maskreg_encode_sub_blocks(structure, compiled.write(out))
    return size


_DAMAGE = (BAD_MODEL, SHORT_DIRECTORY, BAD_DIRECTORY)
"""What the kernel returns as -3, -2 and -1: it did not come to the sub-blocks."""


def decode_coded(block: Block, source: Codes, values: Codes) -> None:
    """Fill the values of a block of which :meth:`maskreg.codec.layout.Head.read` was right; uint16 ``[n]`` each."""
    compiled = library()
    head = CodedHead.read(block)
    (width, column), shape = head.shape.grid, head.shape
    fields = (
        compiled.ffi.from_buffer("uint8_t[]", block), len(block), head.n, head.sub_blocks, head.size, width, column,
        shape.base, shape.scaled, shape.rank, shape.tables, MODEL_START, head.model_bytes,
    )  # fmt: skip
    structure = compiled.ffi.new("maskreg_coded *", fields)
    # Room for models, and for decoding tables.
    scratch = _BUFFERS.bytes("scratch", compiled.lib.maskreg_decode_room(structure))
    damaged = compiled.lib.maskreg_decode_coded(
        structure, compiled.read(source), 0, source.size, compiled.write(scratch), compiled.write(values)
    )
    if damaged < 0:
        raise CorruptError("block", _DAMAGE[damaged])
    if damaged:
        raise CorruptError("block", f"its sub-block {damaged - 1} does not decode")
