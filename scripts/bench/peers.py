"""Other ways to store a target given its source, measured beside maskreg's codecs on the same blocks.

Each has the interface of a maskreg codec. One that cannot be imported is reported with the reason.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from numcodecs import Blosc
from numcodecs.zstd import compress, decompress

from maskreg.codec import CODECS, Codec, get_codec, grid_at
from maskreg.codec.base import Codes
from maskreg.parallel import Buffers
from scripts.bench.pairs import Block

Bytes = npt.NDArray[np.uint8]

_SIZES = struct.Struct("<II")


@dataclass(frozen=True)
class Coder:
    """One way to code blocks.

    Attributes:
        name: short, for tables and plots.
        ours: whether it is a codec of maskreg.
        encode: a block to bytes.
        decode: the source, uint16 ``[n]``, and those bytes to the target, uint16 ``[n]``.
        missing: why it cannot run; empty if it can.
    """

    name: str
    ours: bool
    encode: Callable[[Block], bytes]
    decode: Callable[[Codes, bytes], Codes]
    missing: str = ""


def coders() -> list[Coder]:
    """Every codec of maskreg, then every peer."""
    results = [_ours(codec) for codec in map(get_codec, CODECS)]
    for level in (1, 3):
        results.append(Coder(f"XOR planes zstd-{level}", False, partial(_encode_planes, level), _decode_planes))
    blosc = Blosc(cname="zstd", clevel=3, shuffle=Blosc.SHUFFLE)
    results.append(Coder("XOR Blosc zstd-3", False, partial(_encode_blosc, blosc), partial(_decode_blosc, blosc)))
    results.append(Coder("gaps + values zstd-3", False, partial(_encode_gaps, 3), _decode_gaps))
    for name, module, make in (("zipnn", "zipnn", _zipnn), ("lmzip", "lmz", _lmzip)):
        try:
            encode, decode = make(importlib.import_module(module))
        except ImportError as error:
            results.append(Coder(f"{name} on XOR", False, _none, _none, missing=f"not available: {error}"))
        else:
            results.append(Coder(f"{name} {version(name)} on XOR", False, encode, decode))
    return results


def _ours(codec: Codec) -> Coder:
    buffers = Buffers()

    def decode(source: Codes, block: bytes) -> Codes:
        # Into memory that the thread uses again, as apply does it; the peers have no such function.
        values = buffers.array("values", source.size, np.uint16)
        return codec.decode(source, block, values)

    return Coder(codec.name, True, partial(_encode_ours, codec), decode)


def _none(*_: Any) -> Any:
    raise AssertionError("a missing codec was run")


def _encode_ours(codec: Codec, block: Block) -> bytes:
    return codec.encode(block.source, block.target, grid_at(block.shape, block.start))


def _encode_planes(level: int, block: Block) -> bytes:
    planes = (block.source ^ block.target).view(np.uint8).reshape(-1, 2)
    low, high = (compress(np.ascontiguousarray(planes[:, i]), level) for i in (0, 1))
    return _SIZES.pack(len(low), 0) + bytes(low) + bytes(high)


def _decode_planes(source: Codes, block: bytes) -> Codes:
    low_size, _ = _SIZES.unpack_from(block)
    body = memoryview(block)[_SIZES.size :]
    planes = np.empty((source.size, 2), np.uint8)
    planes[:, 0] = np.frombuffer(decompress(bytes(body[:low_size])), np.uint8)
    planes[:, 1] = np.frombuffer(decompress(bytes(body[low_size:])), np.uint8)
    return planes.reshape(-1).view(np.uint16) ^ source


def _encode_blosc(blosc: Any, block: Block) -> bytes:
    return bytes(blosc.encode(block.source ^ block.target))


def _decode_blosc(blosc: Any, source: Codes, block: bytes) -> Codes:
    return np.frombuffer(blosc.decode(block), np.uint16) ^ source


def _encode_gaps(level: int, block: Block) -> bytes:
    """Gaps between changed coordinates, one byte each with 255 as an escape for longer ones, then the new values."""
    changed = np.flatnonzero(block.source != block.target)
    gaps = np.diff(changed, prepend=-1) - 1
    longer = gaps // 255
    ends = np.cumsum(longer + 1) - 1
    small = np.full(changed.size + int(longer.sum()), 255, np.uint8)
    small[ends] = gaps % 255
    indices, values = compress(small, level), compress(block.target[changed], level)
    return _SIZES.pack(len(indices), changed.size) + bytes(indices) + bytes(values)


def _decode_gaps(source: Codes, block: bytes) -> Codes:
    size, count = _SIZES.unpack_from(block)
    target = source.copy()
    if count:
        small = np.frombuffer(decompress(block[_SIZES.size : _SIZES.size + size]), np.uint8)
        # A byte below 255 ends a gap: it counts its own length and the changed coordinate after it.
        reached = np.cumsum(np.where(small == 255, 255, small + np.int64(1)))
        target[reached[small != 255] - 1] = np.frombuffer(decompress(block[_SIZES.size + size :]), np.uint16)
    return target


def _zipnn(module: Any) -> tuple[Callable[[Block], bytes], Callable[[Codes, bytes], Codes]]:
    def encode(block: Block) -> bytes:
        coder = module.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
        # It changes its input in place, so it gets a copy.
        return bytes(coder.compress(bytearray((block.source ^ block.target).data)))

    def decode(source: Codes, block: bytes) -> Codes:
        coder = module.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
        return np.frombuffer(coder.decompress(block), np.uint16) ^ source

    return encode, decode


def _lmzip(module: Any) -> tuple[Callable[[Block], bytes], Callable[[Codes, bytes], Codes]]:
    """Its delta chunks without the archive, which would hold the source too. Blocks are its chunks of 8 MiB."""
    kernel = module.backends()["kernel"]
    if not kernel.startswith("native"):
        # Without one it is slow and has no entropy coder, so the comparison would be unfair.
        raise ImportError(f"it found no C compiler ({kernel})")
    module = importlib.import_module("lmz.codec")
    plain = _SIZES.size

    def encode(block: Block) -> bytes:
        target, source = block.target.tobytes(), block.source.tobytes()
        parts, flags, _ = module.encode_delta(target, source, 2, checksum=False, kind=module.KIND_BF16)
        return b"".join([_SIZES.pack(flags, 0), *parts])

    def decode(source: Codes, block: bytes) -> Codes:
        flags, _ = _SIZES.unpack_from(block)
        target = module.decode_delta(block[plain:], 2, flags, source.nbytes, source.tobytes(), 0, False)
        return np.frombuffer(target, np.uint16)

    return encode, decode
