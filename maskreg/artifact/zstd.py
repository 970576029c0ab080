"""Zstandard frames, and the size that one announces, so that none expands to more than expected."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MAGIC = b"\x28\xb5\x2f\xfd"


def pack_frame(data: npt.NDArray[np.uint8], level: int, *, checksum: bool = False) -> bytes:
    """One frame that holds ``data`` and announces its size."""
    # Late: it loads all codecs that there are, which takes longer than reading a small artifact.
    from numcodecs.zstd import compress

    frame: bytes = compress(data, level, checksum)
    return frame


def unpack_frame(frame: bytes | memoryview, into: npt.NDArray[np.uint8]) -> None:
    """Fill ``into`` with what a frame holds.

    Raises:
        ValueError: the frame is damaged, or holds another number of bytes.
    """
    from numcodecs.zstd import decompress

    try:
        decompress(frame, into)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def content_bytes(frame: bytes | memoryview) -> int | None:
    """Size that a frame's header announces (RFC 8878, section 3.1.1.1); None if it announces none or is not a frame."""
    head = bytes(frame[:18])
    if len(head) < 6 or head[:4] != _MAGIC:
        return None
    descriptor = head[4]
    single_segment, flag = descriptor >> 5 & 1, descriptor >> 6
    width = (1 if single_segment else 0, 2, 4, 8)[flag]
    offset = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(head) < offset + width:
        return None
    return int.from_bytes(head[offset : offset + width], "little") + (256 if width == 2 else 0)
