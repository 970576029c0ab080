"""Bytes that arrive in pieces of any size, handed on in whole blocks of elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import TensorInfo
from maskreg.codec import BLOCK_NUMEL


def rechunked(chunks: Iterable[bytes], tensor: TensorInfo) -> Iterator[npt.NDArray[Any]]:
    """A tensor's raw bytes as runs of 2^22 elements, the last one shorter.

    Args:
        chunks: its bytes, in pieces.
        tensor: says how wide an element is.

    Yields:
        Unsigned integers of the element's width, read-only.
    """
    dtype = np.dtype(f"<u{tensor.item_bytes}")
    room = BLOCK_NUMEL * tensor.item_bytes
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= room:
            yield np.frombuffer(bytes(held[:room]), dtype)
            del held[:room]
    if held:
        yield np.frombuffer(bytes(held), dtype)
