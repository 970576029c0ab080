"""Size and speed of maskreg's codecs and their peers on the same blocks in the same run, beside the entropy limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskreg.artifact.metadata import CHUNK_BYTES
from maskreg.artifact.zstd import pack_frame
from maskreg.codec import DEFAULT_CODEC
from maskreg.mask import overlap, pack
from scripts.bench.limits import Limits, limits
from scripts.bench.pairs import Block, CodecPair
from scripts.bench.peers import Coder, coders

BASE = "XOR planes zstd-3"
"""The codec that ratios refer to."""

ENOUGH_S = 3.0
"""Repetitions of one direction stop after this long."""


@dataclass(frozen=True)
class Row:
    """One codec on one pair.

    Attributes:
        codec: its name.
        ours: whether it is one of maskreg's.
        threads: that code blocks in parallel.
        bytes: of all coded blocks.
        bits_per_param: ``bytes`` in bits / coordinates.
        over_limit: excess over the entropy limit of the ULP steps, in percent.
        encode_gb_per_s: 10^9 bytes of one checkpoint a second; the best repetition.
        decode_gb_per_s: likewise.
        missing: why it did not run, in which case all numbers are 0; empty if it ran.
    """

    codec: str
    ours: bool
    threads: int
    bytes: int = 0
    bits_per_param: float = 0.0
    over_limit: float = 0.0
    encode_gb_per_s: float = 0.0
    decode_gb_per_s: float = 0.0
    missing: str = ""


@dataclass(frozen=True)
class Result:
    """Everything about one pair.

    Attributes:
        pair: its name.
        what: how it was made.
        params: coordinates of one checkpoint.
        density: coordinates whose bits differ / coordinates.
        limits: entropies, in bits for each coordinate.
        default_codec: what maskreg writes.
        memcpy_gb_per_s: copying one checkpoint in memory, block by block, in the same process.
        mask_bits_per_param: the mask as artifacts store it: packed bits, compressed where that is smaller.
        overlap_gb_per_s: packed bytes that counting the overlap of two masks reads a second.
        rows: smallest first; those that did not run last.
    """

    pair: str
    what: str
    params: int
    density: float
    limits: Limits
    default_codec: str
    memcpy_gb_per_s: float
    mask_bits_per_param: float
    overlap_gb_per_s: float
    rows: tuple[Row, ...]


def bench(pair: CodecPair, threads: Sequence[int], repeat: int, say: Callable[[str], None]) -> Result:
    """Measure every codec on one pair; maskreg's with every number of threads.

    Raises:
        SystemExit: a codec did not restore the target.
    """
    blocks, limit = list(pair.blocks()), limits(pair)
    rows = []
    for coder in coders():
        for count in threads if coder.ours else [1]:
            say(f"{pair.name}: {coder.name}, {count} threads")
            rows.append(_row(coder, blocks, count, repeat, limit))
    rows.sort(key=lambda row: (bool(row.missing), row.bytes, row.threads))
    return Result(
        pair=pair.name,
        what=pair.what,
        params=pair.params,
        density=pair.density,
        limits=limit,
        default_codec=DEFAULT_CODEC,
        memcpy_gb_per_s=_memcpy(blocks),
        mask_bits_per_param=mask_bits(blocks),
        overlap_gb_per_s=_overlap(blocks),
        rows=tuple(rows),
    )


def _row(coder: Coder, blocks: list[Block], threads: int, repeat: int, limit: Limits) -> Row:
    if coder.missing:
        return Row(coder.name, coder.ours, threads, missing=coder.missing)
    params = sum(block.source.size for block in blocks)
    # Compile and initialize before timing.
    coder.decode(blocks[0].source, coder.encode(blocks[0]))
    with ThreadPoolExecutor(threads) as pool:

        def each(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
            return [work(item) for item in items] if threads == 1 else list(pool.map(work, items))

        coded: list[bytes] = []

        def encode() -> None:
            coded[:] = each(coder.encode, blocks)

        def decode() -> None:
            each(lambda pair: coder.decode(pair[0].source, pair[1]) is None, list(zip(blocks, coded, strict=True)))

        encode_s = _best(encode, threads, repeat)
        for block, data in zip(blocks, coded, strict=True):
            if not np.array_equal(coder.decode(block.source, data), block.target):
                raise SystemExit(f"{coder.name} does not restore the target of a block of {block.shape}")
        decode_s = _best(decode, threads, repeat)
    size = sum(map(len, coded))
    bits = 8 * size / params
    return Row(
        codec=coder.name,
        ours=coder.ours,
        threads=threads,
        bytes=size,
        bits_per_param=bits,
        over_limit=100 * (bits / limit.step - 1) if limit.step else 0.0,
        encode_gb_per_s=2 * params / encode_s / 1e9,
        decode_gb_per_s=2 * params / decode_s / 1e9,
    )


def _best(work: Callable[[], None], threads: int, repeat: int) -> float:
    """Seconds of the fastest repetition.

    CPU time of the whole process with one thread, which other load affects less; wall time with more threads.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: list[float] = []
    while len(seconds) < repeat and (not seconds or sum(seconds) < ENOUGH_S):
        start = clock()
        work()
        seconds.append(max(clock() - start, 1e-9))
    return min(seconds)


def _memcpy(blocks: list[Block]) -> float:
    out = np.empty(max(block.target.size for block in blocks), np.uint16)

    def copy() -> None:
        for block in blocks:
            np.copyto(out[: block.target.size], block.target)

    copy()
    return sum(block.target.nbytes for block in blocks) / _best(copy, 1, 10) / 1e9


def mask_bits(blocks: list[Block]) -> float:
    """The mask as artifacts store it, in bits for each coordinate: packed bits, compressed where that is smaller."""
    packed = np.concatenate([pack(block.source != block.target) for block in blocks])
    params = sum(block.source.size for block in blocks)
    chunks = (packed[start : start + CHUNK_BYTES] for start in range(0, packed.size, CHUNK_BYTES))
    return 8 * sum(min(chunk.size, len(pack_frame(chunk, 1))) for chunk in chunks) / params


def _overlap(blocks: list[Block]) -> float:
    left = np.concatenate([pack(block.source != block.target) for block in blocks])
    # As large as the memcpy, so that neither fits into a smaller cache than the other.
    left = np.tile(left, 16)
    right = left[::-1].copy()

    def count() -> None:
        overlap(left, right)

    return 2 * left.size / _best(count, 1, 10) / 1e9


def table(result: Result) -> str:
    """The figures of one pair as text."""
    limit = result.limits
    lines = [
        f"{result.pair}: {result.what}",
        f"  {result.params:,} params, {100 * result.density:.2f} % changed; given the source's exponent, "
        f"entropy of the mask {limit.mask:.3f} and of the ULP steps {limit.step:.3f} bits/param",
        f"  the stored mask takes {result.mask_bits_per_param:.3f} bits/param; counting an overlap runs at "
        f"{result.overlap_gb_per_s / result.memcpy_gb_per_s:.2f} of the speed of memcpy",
        f"  {'codec':<24}{'bits/param':>11}{'to limit':>10}{'size x':>8}"
        f"{'encode GB/s':>13}{'x':>6}{'decode GB/s':>13}{'x':>6}{'of memcpy':>11}",
    ]
    base = next(row for row in result.rows if row.codec == BASE)
    for row in result.rows:
        name = row.codec if row.threads == 1 else f"{row.codec}, {row.threads} threads"
        name = f"* {name}" if row.codec == result.default_codec else f"  {name}"
        if row.missing:
            lines.append(f"  {name:<24}  {row.missing}")
            continue
        lines.append(
            f"  {name:<24}{row.bits_per_param:>11.3f}{row.over_limit:>+9.1f}%{base.bytes / row.bytes:>8.2f}"
            f"{row.encode_gb_per_s:>13.3f}{row.encode_gb_per_s / base.encode_gb_per_s:>6.2f}"
            f"{row.decode_gb_per_s:>13.3f}{row.decode_gb_per_s / base.decode_gb_per_s:>6.2f}"
            f"{row.decode_gb_per_s / result.memcpy_gb_per_s:>11.3f}"
        )
    lines.append(f"    {'memcpy':<52}{result.memcpy_gb_per_s:>24.2f}")
    lines.append(f"  size x, x: times smaller, and times faster, than {BASE}")
    return "\n".join(lines)
