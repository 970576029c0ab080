"""Speed and size of every codec on one pair of checkpoints, and where the time of maskreg's goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from maskreg.codec import DEFAULT_CODEC
from maskreg.native import available, using
from scripts.bench.bars.figures import Coding, Pair, Sample
from scripts.bench.bars.kernels import shares
from scripts.bench.bars.sampling import Stopwatch, Work, take_turns, timed
from scripts.bench.codec import mask_bits
from scripts.bench.limits import limits
from scripts.bench.pairs import Block, CodecPair
from scripts.bench.peers import Coder, coders
from scripts.bench.processes import Cost

AVX2 = "avx2"


@dataclass
class _Runner:
    """One way to code all blocks of a pair.

    Attributes:
        coder: codes a block.
        blocks: of the pair.
        threads: that code blocks in parallel.
        kernels: level of the compiled kernels; empty for the best.
        passes: over all blocks in a repetition.
        coded: the blocks, once :meth:`encode` has run.
    """

    coder: Coder
    blocks: list[Block]
    threads: int
    kernels: str
    passes: int
    coded: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads)

    @property
    def name(self) -> str:
        """Tells it from other runners."""
        return f"{self.coder.name}, {self.threads} threads, {self.kernels}"

    def check(self) -> None:
        """Code everything once.

        Raises:
            SystemExit: the target is not restored.
        """
        with self._level():
            self.encode()
            for block, data in zip(self.blocks, self.coded, strict=True):
                if not np.array_equal(self.coder.decode(block.source, data), block.target):
                    raise SystemExit(f"{self.name}: the target of a block of {block.shape} is not restored")

    def repetition(self) -> Mapping[str, Cost]:
        """Encode, then decode."""
        watch = Stopwatch()
        with self._level():
            for name, work in (("encode", self.encode), ("decode", self.decode)):
                with watch(name):
                    for _ in range(self.passes):
                        work()
        return {
            f"{self.name}, {direction}": Cost(cost.cpu / self.passes, cost.wall / self.passes)
            for direction, cost in watch.costs.items()
        }

    def encode(self) -> None:
        """Encode all blocks."""
        self.coded[:] = self._each(self.coder.encode, self.blocks)

    def decode(self) -> None:
        """Decode all blocks."""
        self._each(self._decode, list(zip(self.blocks, self.coded, strict=True)))

    def coding(self, samples: Mapping[str, Sample]) -> Coding:
        """Its figures."""
        return Coding(
            codec=self.coder.name,
            ours=self.coder.ours,
            kernels=self.kernels,
            threads=self.threads,
            bytes=sum(map(len, self.coded)),
            encode=samples[f"{self.name}, encode"],
            decode=samples[f"{self.name}, decode"],
        )

    def _decode(self, item: tuple[Block, bytes]) -> None:
        self.coder.decode(item[0].source, item[1])

    def _each(self, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [work(item) for item in items] if self.threads == 1 else list(self._pool.map(work, items))

    def _level(self) -> Any:
        return using(self.kernels) if self.kernels else nullcontext()


def measure(pair: CodecPair, kind: str, rounds: int, enough: int) -> Pair:
    """Every codec in turn.

    Args:
        pair: the checkpoints.
        kind: see :class:`Pair`.
        rounds: repetitions of each.
        enough: bytes; a repetition codes a smaller pair several times.

    Raises:
        SystemExit: a codec does not restore the target.
    """
    blocks = list(pair.blocks())
    ways = coders()
    runners = [_runner(coder, blocks, enough) for coder in ways if not coder.missing]
    (own,) = [runner for runner in runners if runner.coder.name == DEFAULT_CODEC]
    runners.append(_runner(own.coder, blocks, enough, threads=2))
    if AVX2 in available():
        runners.append(_runner(own.coder, blocks, enough, kernels=AVX2))
    for runner in runners:
        runner.check()
    works: list[Work] = [runner.repetition for runner in runners]
    samples = take_turns([*works, timed("memcpy", partial(_copy, blocks, _room(blocks)))], rounds)
    codings = [runner.coding(samples) for runner in runners]
    codings += [Coding(coder.name, coder.ours, missing=coder.missing) for coder in ways if coder.missing]
    return Pair(
        name=pair.name,
        origin=pair.what,
        kind=kind,
        params=pair.params,
        largest=max(leaf.source.size for leaf in pair.leaves),
        density=pair.density,
        limits=limits(pair),
        mask_bits=mask_bits(blocks),
        memcpy=samples["memcpy"],
        codings=tuple(codings),
        encode_shares=shares(own.encode),
        decode_shares=shares(own.decode),
    )


def _runner(coder: Coder, blocks: list[Block], enough: int, threads: int = 1, kernels: str = "") -> _Runner:
    size = sum(block.source.nbytes for block in blocks)
    return _Runner(coder, blocks, threads, kernels, max(1, enough // size))


def _room(blocks: list[Block]) -> Any:
    return np.empty(max(block.target.size for block in blocks), np.uint16)


def _copy(blocks: list[Block], into: Any) -> None:
    for block in blocks:
        np.copyto(into[: block.target.size], block.target)
