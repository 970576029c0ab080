"""Leaf hashes on the GPU that holds the tensors: xxh3-128 of many leaves in one launch, bit for bit as on the CPU.

A program takes a leaf, 1,024 bytes at a time. Of these, 16 *stripes* of 8 *lanes* add up in any order; only between
blocks of 1,024 bytes are lanes scrambled, so the program's threads work on the stripes of one block side by side::

    lane i   += data[i ^ 1] + low half of (data[i] ^ secret[i]) * high half       16 stripes at once
    lane i    = (lane i ^ lane i >> 47 ^ secret[i]) * a prime                     after each block of 1,024 bytes

The leaves of a model are many, so a GPU is busy with as many programs. Leaves of 240 bytes or less are hashed in
another way, and left to the CPU: a tensor has one at most, at its end.

This module alone imports Triton here, and only :mod:`maskreg.live.memory` imports it. With ``TRITON_INTERPRET=1`` in
the environment Triton runs the kernel on the CPU, slowly; tests use that. The algorithm is
https://github.com/Cyan4973/xxHash (doc/xxhash_spec.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, LeafHashes, leaf_hashes
from maskreg.tensors.bus import down, up
from maskreg.tensors.leaves import leaf_count

SHORT_BYTES = 240
"""Leaves of so many bytes or less are hashed on the CPU."""

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""The secret of a hash without one, up to byte 191; stripe s takes it from byte 8 s on."""

_PRIMES_32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIMES_64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_AVALANCHE = 0x165667919E3779F9

_LANES = 8
_STRIPES = 16
_BLOCK_BYTES = 1024

_OF_LAST, _OF_LOW, _OF_HIGH, _FIRST_LANES, _CONSTANTS = 24, 32, 40, 48, 56
"""Where the table has the secret of the last stripe and of both halves of the hash, the first lanes, and primes."""

PROGRAM_LEAVES = 1  # leaves of a program
_LOCK = threading.Lock()  # so that nothing is compiled twice; and Triton's interpreter is not thread-safe


def leaves_on_device(spans: Sequence[torch.Tensor]) -> list[LeafHashes]:
    """Hashes of the leaves of each span, which starts at a leaf: uint8 ``[k, 16]`` each.

    What crosses the bus is an address and a length for each leaf, its hash, and leaves of :data:`SHORT_BYTES` or less.
    """
    results = [np.empty((leaf_count(span.numel()), FINGERPRINT_BYTES), np.uint8) for span in spans]
    # Words of 8 bytes are read; a view can begin between them.
    aligned = [span if span.data_ptr() % 8 == 0 else span.clone() for span in spans]
    rows: list[tuple[int, int]] = []
    of_row: list[npt.NDArray[np.uint8]] = []
    for span, result in zip(aligned, results, strict=True):
        width = span.element_size()
        for number, first in enumerate(range(0, span.numel(), LEAF_NUMEL)):
            n_bytes = min(LEAF_NUMEL, span.numel() - first) * width
            if n_bytes <= SHORT_BYTES:
                result[number] = leaf_hashes(down(span[first:], "short leaves"))[0]
            else:
                rows.append((span.data_ptr() + first * width, n_bytes))
                of_row.append(result[number])
    if rows:
        for hashed, result in zip(launch(np.array(rows, np.int64), spans[0].device), of_row, strict=True):
            result[:] = hashed
    return results


def launch(rows: npt.NDArray[np.int64], device: torch.device) -> LeafHashes:
    """Hashes of spans of memory, uint8 ``[k, 16]``, by address, a multiple of 8, and bytes, over 240."""
    count = len(rows)
    hashes = torch.empty((count, 2), dtype=torch.int64, device=device)
    table = _table(device)
    at = up(rows, device, "addresses")
    # Triton launches on the current device, not on the tensors'.
    with _LOCK, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        leaf_kernel[(-(-count // PROGRAM_LEAVES),)](
            at, table, hashes, count,
            LEAVES=PROGRAM_LEAVES, LANES=_LANES, STRIPES=_STRIPES, BLOCK_BYTES=_BLOCK_BYTES, OF_LAST=_OF_LAST,
            OF_LOW=_OF_LOW, OF_HIGH=_OF_HIGH, FIRST_LANES=_FIRST_LANES, CONSTANTS=_CONSTANTS,
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    big_endian = down(hashes, "hashes").astype(">i8")
    return big_endian.view(np.uint8).reshape(count, FINGERPRINT_BYTES)


@cache
def _table(device: torch.device) -> torch.Tensor:
    """Numbers that every hash takes, int64 ``[62]``; a few hundred bytes, once per device."""
    secret = np.frombuffer(_SECRET, "<u8")
    at = (len(_SECRET) - 64 - 7, 11, len(_SECRET) - 64 - 11)
    unaligned = [np.frombuffer(_SECRET, "<u8", _LANES, offset) for offset in at]
    (a, b, c), (p, q, r, s, t) = _PRIMES_32, _PRIMES_64
    numbers = np.array([c, p, q, r, s, b, t, a, a, p, q, _AVALANCHE], np.uint64)
    return up(np.concatenate([secret, *unaligned, numbers]).view(np.int64), device, "constants")


def _kernel(function: Callable[..., None]) -> Any:
    """Have Triton compile a function when it is first launched."""
    return triton.jit(function)


@_kernel
def _word(table: tl.tensor, at: tl.tensor) -> tl.tensor:
    """Unsigned numbers of the table."""
    return tl.load(table + at).to(tl.uint64, bitcast=True)


@_kernel
def _product(words: tl.tensor, secret: tl.tensor) -> tl.tensor:
    """Low half times high half of data under a secret."""
    keyed = words ^ secret
    return (keyed & 0xFFFFFFFF) * (keyed >> 32)


@_kernel
def _last_words(end: tl.tensor, lane: tl.tensor, inside: tl.tensor, LANES: tl.constexpr) -> tl.tensor:
    """The last 64 bytes of each leaf as 8 words, which can begin at any byte."""
    byte = tl.arange(0, LANES)[None, None, :]
    at = (end[:, None, None] - 64 + 8 * lane[None, :, None] + byte).to(tl.pointer_type(tl.uint8))
    data = tl.load(at, mask=inside[:, None, None], other=0).to(tl.uint64)
    return tl.sum(data << (8 * byte).to(tl.uint64), axis=2)


@_kernel
def _half(
    lanes: tl.tensor, secret: tl.tensor, start: tl.tensor, avalanche: tl.tensor,
    LEAVES: tl.constexpr, LANES: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """64 bits of the hash: products of neighboring lanes, 128 bits wide, both halves xored, added up and mixed."""
    left, right = tl.split(tl.reshape(lanes ^ secret, [LEAVES, LANES // 2, 2]))
    mixed = start + tl.sum((left * right) ^ tl.umulhi(left, right), axis=1)
    mixed = (mixed ^ (mixed >> 37)) * avalanche
    return mixed ^ (mixed >> 32)


@_kernel
def leaf_kernel(
    leaves: tl.tensor, table: tl.tensor, hashes: tl.tensor, count: tl.tensor,
    LEAVES: tl.constexpr, LANES: tl.constexpr, STRIPES: tl.constexpr, BLOCK_BYTES: tl.constexpr,
    OF_LAST: tl.constexpr, OF_LOW: tl.constexpr, OF_HIGH: tl.constexpr, FIRST_LANES: tl.constexpr,
    CONSTANTS: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``hashes``, int64 ``[count, 2]``: the high and the low half.

    program: leaves [LEAVES], of which lanes are [LEAVES, 8] and the words of a block [LEAVES, 16, 8]
    for each whole block but the one that holds the last byte: 16 stripes, then scramble
    the whole stripes that are left but the one that holds the last byte; then the last 64 bytes, once more or not
    """
    number = tl.program_id(0) * LEAVES + tl.arange(0, LEAVES)
    inside = number < count
    address = tl.load(leaves + 2 * number, mask=inside, other=0)
    size = tl.load(leaves + 2 * number + 1, mask=inside, other=1)
    lane = tl.arange(0, LANES)
    stripe = tl.arange(0, STRIPES)
    offset = 8 * stripe[None, :, None]
    words = address.to(tl.pointer_type(tl.uint64))[:, None, None] + offset + lane[None, None, :]
    neighbors = address.to(tl.pointer_type(tl.uint64))[:, None, None] + offset + (lane ^ 1)[None, None, :]
    secret = _word(table, stripe[:, None] + lane[None, :])[None, :, :]
    scramble = _word(table, STRIPES + lane)[None, :]
    prime = _word(table, CONSTANTS)
    lanes = tl.zeros([LEAVES, LANES], tl.uint64) + _word(table, FIRST_LANES + lane)[None, :]
    blocks = (size - 1) // BLOCK_BYTES
    most = tl.max(blocks, axis=0)
    block = most * 0
    while block < most:
        active = inside & (block < blocks)
        loaded = active[:, None, None] & (stripe < STRIPES)[None, :, None]
        data = tl.load(words + block * (BLOCK_BYTES // 8), mask=loaded, other=0)
        crossed = tl.load(neighbors + block * (BLOCK_BYTES // 8), mask=loaded, other=0)
        added = lanes + tl.sum(crossed + _product(data, secret), axis=1)
        scrambled = (added ^ (added >> 47) ^ scramble) * prime
        lanes = tl.where(active[:, None], scrambled, lanes)
        block += 1
    rest = (size - 1 - blocks * BLOCK_BYTES) // 64
    loaded = inside[:, None, None] & (stripe[None, :] < rest[:, None])[:, :, None]
    position = (blocks * (BLOCK_BYTES // 8))[:, None, None]
    data = tl.load(words + position, mask=loaded, other=0)
    crossed = tl.load(neighbors + position, mask=loaded, other=0)
    lanes += tl.sum(tl.where(loaded, crossed + _product(data, secret), 0), axis=1)
    end = address + size
    data = _last_words(end, lane, inside, LANES)
    lanes += _last_words(end, lane ^ 1, inside, LANES) + _product(data, _word(table, OF_LAST + lane)[None, :])
    length = size.to(tl.uint64)
    avalanche = _word(table, CONSTANTS + 3)
    low = _half(
        lanes, _word(table, OF_LOW + lane)[None, :], length * _word(table, CONSTANTS + 1), avalanche, LEAVES, LANES
    )
    high_start = ~(length * _word(table, CONSTANTS + 2))
    high = _half(lanes, _word(table, OF_HIGH + lane)[None, :], high_start, avalanche, LEAVES, LANES)
    tl.store(hashes + 2 * number, high.to(tl.int64, bitcast=True), mask=inside)
    tl.store(hashes + 2 * number + 1, low.to(tl.int64, bitcast=True), mask=inside)
