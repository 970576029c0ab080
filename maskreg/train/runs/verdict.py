"""What a run changed, against the mask of what it was allowed to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import PairMismatchError
from maskreg.mask.packed import Mask, nnz_of, overlap, pack
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.rules import parse_rule
from maskreg.tensors.blocks import blocks_of, numel_of
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo

_MAX_NAMED = 5


@dataclass(frozen=True)
class Verdict:
    """Counts over the floating-point tensors of a model.

    Attributes:
        numel: all coordinates.
        trained: those in the mask.
        visible: those whose bf16 code changed, under the rule ``exact``.
    """

    numel: int
    trained: int
    visible: int

    @property
    def density(self) -> float:
        """Share of coordinates in the mask."""
        return self.trained / max(self.numel, 1)

    @property
    def visible_density(self) -> float:
        """Share of coordinates that changed visibly."""
        return self.visible / max(self.numel, 1)


class _Block(NamedTuple):
    info: TensorInfo
    start: int
    stop: int
    bits: npt.NDArray[np.uint8]


class _Counts(NamedTuple):
    info: TensorInfo
    trained: int
    visible: int
    outside: int
    size: int


def verify(
    source: Checkpoint, result: Checkpoint, mask: Mask, *, progress: Progress = SILENT, jobs: int | None = None
) -> Verdict:
    """Verify that stored bits outside the mask did not change, and count what did inside.

    Args:
        source: where training began.
        result: where it ended; has the source's tensors.
        mask: of what was trained; tensors that it does not have were not.
        progress: progress callback, in bytes of both checkpoints.
        jobs: threads; by default one per core.

    Raises:
        PairMismatchError: stored bits outside the mask differ; names the tensors.
    """
    exact = parse_rule("exact")

    def count(block: _Block) -> _Counts:
        info = block.info
        before, after = (side.read(info.name, block.start, block.stop) for side in (source, result))
        changed = pack(before != after)
        outside = nnz_of(changed) - overlap(changed, block.bits)
        visible = 0
        if info.dtype in FLOAT:
            visible = int(np.count_nonzero(exact.moved(to_bf16(before, info.dtype), to_bf16(after, info.dtype))))
        return _Counts(info, nnz_of(block.bits), visible, outside, 2 * before.nbytes)

    progress.start("verify", sum(2 * info.nbytes for info in source.tensors.values()))
    trained = visible = 0
    outside: dict[str, int] = {}
    with closing(ordered(count, _blocks(source, mask), jobs=worker_count(jobs), size=numel_of)) as results:
        for counts in results:
            trained, visible = trained + counts.trained, visible + counts.visible
            if counts.outside:
                outside[counts.info.name] = outside.get(counts.info.name, 0) + counts.outside
            progress.advance(counts.size)
    if outside:
        worst = sorted(outside, key=lambda name: -outside[name])[:_MAX_NAMED]
        raise PairMismatchError(
            f"{sum(outside.values()):,} coordinates outside the mask have other bits than in the source, in "
            + ", ".join(f"{name} ({outside[name]:,})" for name in worst),
            tuple(outside),
            hint="keep the run's folder and report this: no step may change them",
        )
    numel = sum(info.numel for info in source.tensors.values() if info.dtype in FLOAT)
    return Verdict(numel, trained, visible)


def _blocks(source: Checkpoint, mask: Mask) -> Iterator[_Block]:
    for info in source.tensors.values():
        packed = mask[info.name].packed if info.dtype in FLOAT and info.name in mask else None
        for start, stop in blocks_of(info.numel):
            size = -(-(stop - start) // 64) * 8
            bits = np.zeros(size, np.uint8) if packed is None else packed[start // 8 : start // 8 + size]
            yield _Block(info, start, stop, bits)
