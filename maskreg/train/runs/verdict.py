"""What a run changed, compared with what it was allowed to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import PairMismatchError
from maskreg.mask.packed import Mask, pack
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.rules import parse_rule
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo

_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Verdict:
    """Coordinates of the floating-point tensors of a model.

    Attributes:
        numel: all of them.
        trained: those in the mask.
        visible: those whose bf16 code training changed, under the rule ``exact``.
    """

    numel: int
    trained: int
    visible: int

    @property
    def density(self) -> float:
        """Share that was trained."""
        return self.trained / max(self.numel, 1)

    @property
    def visible_density(self) -> float:
        """Share that changed visibly."""
        return self.visible / max(self.numel, 1)


class _Run(NamedTuple):
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


def judge(
    source: Checkpoint, result: Checkpoint, mask: Mask, *, progress: Progress = SILENT, jobs: int | None = None
) -> Verdict:
    """Compare a result with its source, bit by bit outside the mask.

    Args:
        source: where training began.
        result: where it ended; has the source's tensors.
        mask: what was trained; a tensor that it does not have was not.
        progress: told about bytes of both sides.
        jobs: threads; by default what the machine has.

    Raises:
        PairMismatchError: stored bits outside the mask differ, and in which tensors.
    """
    exact = parse_rule("exact")

    def work(run: _Run) -> _Counts:
        info = run.info
        before, after = (side.read(info.name, run.start, run.stop) for side in (source, result))
        outside = np.bitwise_count(pack(before != after) & ~run.bits).sum(dtype=np.int64)
        visible = 0
        if info.dtype in FLOAT:
            visible = int(np.count_nonzero(exact.moved(to_bf16(before, info.dtype), to_bf16(after, info.dtype))))
        return _Counts(
            info, int(np.bitwise_count(run.bits).sum(dtype=np.int64)), visible, int(outside), 2 * before.nbytes
        )

    progress.start("verify", sum(2 * info.nbytes for info in source.tensors.values()))
    trained = visible = 0
    outside: dict[str, int] = {}
    with closing(ordered(work, _runs(source, mask), jobs=worker_count(jobs))) as results:
        for info, ours, seen, wrong, size in results:
            trained, visible = trained + ours, visible + seen
            if wrong:
                outside[info.name] = outside.get(info.name, 0) + wrong
            progress.advance(size)
    if outside:
        worst = sorted(outside, key=lambda name: -outside[name])[:_NAMED_AT_MOST]
        raise PairMismatchError(
            f"{sum(outside.values()):,} coordinates outside the mask have other bits than in the source, in "
            + ", ".join(f"{name} ({outside[name]:,})" for name in worst),
            tuple(outside),
            hint="keep the run's folder and report it: no step may move them",
        )
    numel = sum(info.numel for info in source.tensors.values() if info.dtype in FLOAT)
    return Verdict(numel, trained, visible)


def _runs(source: Checkpoint, mask: Mask) -> Iterator[_Run]:
    for info in source.tensors.values():
        packed = mask[info.name].packed if info.dtype in FLOAT and info.name in mask else None
        for start, stop in blocks_of(info.numel):
            size = -(-(stop - start) // 64) * 8
            bits = np.zeros(size, np.uint8) if packed is None else packed[start // 8 : start // 8 + size]
            yield _Run(info, start, stop, bits)
