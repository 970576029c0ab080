"""Size and speed of maskreg's codec and of its peers on the same blocks in turns, beside the entropy limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import CHUNK_BYTES
from maskreg.artifact.shards import pack_frame
from maskreg.codec import DEFAULT_CODEC
from maskreg.codec.base import Codes
from maskreg.mask import pack
from maskreg.native import available, using
from scripts.bench.figures import Coding, Limits, Pair, Sample
from scripts.bench.pairs import Block, CodecPair
from scripts.bench.peers import Coder, coders
from scripts.bench.timing import Cost, Stopwatch, take_turns, timed

AVX2 = "avx2"

LARGEST = 8
"""ULP steps up to this size have a symbol each; longer ones share symbols by size class."""

_CLASSES, _FLIP_BITS = 15, 15
_FLIP = 2 * (LARGEST + _CLASSES) + 1

Counts = npt.NDArray[np.int64]


@dataclass
class _Runner:
    """One way to code all blocks of a pair: on so many threads, with a build of the kernels (empty for the best)."""

    coder: Coder
    blocks: list[Block]
    passes: int
    threads: int = 1
    kernels: str = ""
    coded: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads)
        self.name = f"{self.coder.name}, {self.threads} threads, {self.kernels}"

    def check(self) -> None:
        """Code everything once, and compare."""
        with self._level():
            self._encode()
            for block, data in zip(self.blocks, self.coded, strict=True):
                if not np.array_equal(self.coder.decode(block.source, data), block.target):
                    raise SystemExit(f"{self.name}: the target of a block of {block.shape} is not restored")

    def repetition(self) -> Mapping[str, Cost]:
        """Encode, then decode; small pairs several times."""
        watch = Stopwatch()
        with self._level():
            for name, work in (("encode", self._encode), ("decode", self._decode)):
                with watch(name):
                    for _ in range(self.passes):
                        work()
        return {
            f"{self.name}, {direction}": Cost(cost.cpu / self.passes, cost.wall / self.passes)
            for direction, cost in watch.costs.items()
        }

    def coding(self, samples: Mapping[str, Sample]) -> Coding:
        """Its figures."""
        encode, decode = (samples[f"{self.name}, {direction}"] for direction in ("encode", "decode"))
        size = sum(map(len, self.coded))
        return Coding(self.coder.name, self.coder.ours, self.kernels, self.threads, size, encode, decode)

    def _encode(self) -> None:
        self.coded[:] = self._each(self.coder.encode, self.blocks)

    def _decode(self) -> None:
        items = list(zip(self.blocks, self.coded, strict=True))
        self._each(lambda item: self.coder.decode(item[0].source, item[1]) is None, items)

    def _each(self, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [work(item) for item in items] if self.threads == 1 else list(self._pool.map(work, items))

    def _level(self) -> Any:
        return using(self.kernels) if self.kernels else nullcontext()


def measure(pair: CodecPair, rounds: int, enough: int) -> Pair:
    """Every codec in turn, ``rounds`` times; a repetition codes a pair below ``enough`` bytes several times."""
    blocks, ways = list(pair.blocks()), coders()
    passes = max(1, enough // (2 * pair.params))
    runners = [_Runner(coder, blocks, passes) for coder in ways if not coder.missing]
    (own,) = [coder for coder in ways if coder.name == DEFAULT_CODEC]
    runners.append(_Runner(own, blocks, passes, threads=2))
    if AVX2 in available():
        runners.append(_Runner(own, blocks, passes, kernels=AVX2))
    for runner in runners:
        runner.check()
    into = np.empty(max(block.target.size for block in blocks), np.uint16)

    def copy() -> None:
        for block in blocks:
            np.copyto(into[: block.target.size], block.target)

    samples = take_turns([*(runner.repetition for runner in runners), timed("memcpy", copy)], rounds)
    return Pair(
        name=pair.name,
        origin=pair.what,
        params=pair.params,
        density=pair.density,
        limits=limits(pair),
        mask_bits=_mask_bits(blocks),
        memcpy=samples["memcpy"],
        codings=(
            *(runner.coding(samples) for runner in runners),
            *(Coding(coder.name, coder.ours, missing=coder.missing) for coder in ways if coder.missing),
        ),
    )


def _mask_bits(blocks: list[Block]) -> float:
    """The mask as artifacts store it, in bits for each coordinate: packed bits, compressed where that is smaller."""
    packed = np.concatenate([pack(block.source != block.target) for block in blocks])
    params = sum(block.source.size for block in blocks)
    chunks = (packed[start : start + CHUNK_BYTES] for start in range(0, packed.size, CHUNK_BYTES))
    return 8 * sum(min(chunk.size, len(pack_frame(chunk, 1))) for chunk in chunks) / params


def limits(pair: CodecPair) -> Limits:
    """Plug-in entropies of the pair's own counts by exponent; a codec that models more can end below them."""
    counts: Counts = np.zeros((256, _FLIP + 1), np.int64)
    for block in pair.blocks():
        cells = (block.source >> 7 & 0xFF).astype(np.int64) * (_FLIP + 1) + _symbols(block.source, block.target)
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    same = counts[:, 0]
    raw = np.zeros(_FLIP + 1, np.int64)  # uncoded bits that follow each symbol
    for size in range(LARGEST + 1, LARGEST + _CLASSES + 1):
        raw[2 * size - 1] = raw[2 * size] = size - LARGEST - 1
    raw[_FLIP] = _FLIP_BITS
    mask = np.stack([same, counts.sum(1) - same], axis=1)
    return Limits(_entropy(mask) / pair.params, (_entropy(counts) + int(counts.sum(0) @ raw)) / pair.params)


def _symbols(source: Codes, target: Codes) -> npt.NDArray[np.int64]:
    """One symbol for each coordinate, int64 ``[n]``.

    0 if nothing changed, else the difference of the magnitudes' bits: 1 to 8 one by one, then exp-Golomb classes, each
    upwards or downwards. The last symbol is a change of sign.
    """
    step = (target & 0x7FFF).astype(np.int32) - (source & 0x7FFF).astype(np.int32)
    size = np.abs(step)
    beyond = np.maximum(size - LARGEST, 1)
    # frexp returns the exponent of the next power of two, so a class is one less.
    kind = np.where(size <= LARGEST, size, LARGEST + np.frexp(beyond.astype(np.float64))[1]).astype(np.int64)
    symbol = 2 * kind - (step > 0)
    symbol[step == 0] = 0
    symbol[(source ^ target) & 0x8000 != 0] = _FLIP
    return symbol


def _entropy(counts: Counts) -> float:
    """Of all symbols in bits, with separate probabilities for each row of counts."""
    used = counts[counts > 0].astype(np.float64)
    rows = counts.sum(1)
    rows = rows[rows > 0].astype(np.float64)
    return float((rows * np.log2(rows)).sum() - (used * np.log2(used)).sum())
