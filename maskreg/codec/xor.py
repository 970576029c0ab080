"""``xor1``: the exclusive or of both sides as two byte planes, each one Zstandard frame.

Block: ``n`` (u32), kind of the low plane (u8), kind of the high plane (u8), two zero bytes, size of the low
plane's coded bytes (u32), low plane, high plane; all little-endian. Kinds: 0 all zero (no bytes), 1 stored as it
is, 2 one Zstandard frame. Lossless for every bit pattern; no float arithmetic anywhere.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.zstd import pack_frame, unpack_frame
from maskreg.errors import CorruptError

if TYPE_CHECKING:
    import torch

_HEAD = struct.Struct("<IBBHI")
_ZERO, _STORED, _ZSTD = 0, 1, 2
_LEVEL = 1


class Xor:
    """The first codec: simple, symmetric, about twice the size of the entropy limit."""

    name = "xor1"

    def encode(self, context: Codes, values: Codes) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``."""
        planes = (context ^ values).view(np.uint8).reshape(-1, 2)
        (low_kind, low), (high_kind, high) = (_pack(np.ascontiguousarray(planes[:, i])) for i in (0, 1))
        return _HEAD.pack(values.size, low_kind, high_kind, 0, len(low)) + low + high

    def decode(self, context: Codes, block: bytes) -> Codes:
        """The values, uint16 ``[n]``.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """
        return _difference(block, context.size) ^ context

    def decode_tensor(self, context: torch.Tensor, block: bytes) -> torch.Tensor:
        """Like :meth:`decode`, for int16 ``[n]`` on any device.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """
        import torch

        difference = torch.from_numpy(_difference(block, context.numel()).view(np.int16))
        return difference.to(context.device) ^ context


def _pack(plane: npt.NDArray[np.uint8]) -> tuple[int, bytes]:
    if not plane.any():
        return _ZERO, b""
    frame = pack_frame(plane, _LEVEL)
    return (_ZSTD, frame) if len(frame) < plane.size else (_STORED, plane.tobytes())


def _difference(block: bytes, n: int) -> Codes:
    if len(block) < _HEAD.size:
        raise CorruptError("block", f"{len(block)} bytes are no block")
    numel, low_kind, high_kind, zero, low_size = _HEAD.unpack_from(block)
    if numel != n or zero != 0 or low_size > len(block) - _HEAD.size:
        raise CorruptError("block", f"its header does not describe {n} values")
    body = memoryview(block)[_HEAD.size :]
    planes = np.empty((n, 2), np.uint8)
    planes[:, 0] = _unpack(low_kind, body[:low_size], n)
    planes[:, 1] = _unpack(high_kind, body[low_size:], n)
    return planes.reshape(-1).view(np.uint16)


def _unpack(kind: int, coded: memoryview, n: int) -> npt.NDArray[np.uint8] | int:
    if kind == _ZERO and not coded:
        return 0
    if kind == _STORED and len(coded) == n:
        return np.frombuffer(coded, np.uint8)
    if kind == _ZSTD:
        return unpack_frame(coded, n, "block")
    raise CorruptError("block", f"a plane of kind {kind} with {len(coded)} bytes is no plane of {n}")
