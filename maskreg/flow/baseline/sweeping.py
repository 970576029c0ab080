"""Going over masked tensors block by block, on threads, with what each block needs: source, mask, leaves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.mask.baseline import Choice
from maskreg.parallel import ordered
from maskreg.progress import Progress
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.leaves import leaves_between
from maskreg.update.verified import Origin, source_leaves

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes

ResultT = TypeVar("ResultT")


class Run(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor, as a worker gets them.

    Attributes:
        row: the tensor.
        start, stop: which of its coordinates.
        packed: bits of the mask, where they are wanted.
        codes: bf16 codes of the source, where there is one.
    """

    row: Tensor
    start: int
    stop: int
    packed: npt.NDArray[np.uint8] | None
    codes: npt.NDArray[np.uint16] | None

    @property
    def numel(self) -> int:
        """How many coordinates."""
        return self.stop - self.start


class Sweeper:
    """Hands runs to workers and what they make of them back in order."""

    def __init__(self, artifact: Artifact, origin: Origin | None, progress: Progress, jobs: int) -> None:
        """Remember where to read from.

        Args:
            artifact: has the mask.
            origin: its source; None when no codes are wanted.
            progress: told about two bytes a coordinate.
            jobs: threads.
        """
        self.origin = origin
        self._artifact = artifact
        self._progress = progress
        self._jobs = jobs

    def over(
        self, rows: Iterable[Tensor], work: Callable[[Run], ResultT], *, mask: bool = False, check: bool = False
    ) -> Generator[tuple[Run, ResultT], None, None]:
        """What ``work`` makes of every run of ``rows``, in order, with the run; its arrays are gone by then.

        Args:
            rows: tensors; one without coordinates has one empty run.
            work: called on several threads.
            mask: runs have the mask's bits.
            check: every leaf of the source is compared.

        Raises:
            WrongCheckpointError: a leaf differs.
            CorruptError: the mask is damaged.
        """

        def task(given: tuple[Run, LeafHashes | None]) -> tuple[Run, ResultT]:
            run, leaves = given
            if self.origin is not None and run.stop:
                run = run._replace(codes=self.origin.codes(run.row, run.start, run.stop, leaves))
            return run._replace(packed=None, codes=None), work(run)

        with closing(ordered(task, self._runs(rows, mask, check), jobs=self._jobs)) as results:
            for run, result in results:
                yield run, result
                self._progress.advance(2 * run.numel)

    def chosen(
        self, rows: Sequence[Tensor], choices: Mapping[str, Choice]
    ) -> Generator[tuple[Run, npt.NDArray[np.uint8]], None, None]:
        """Packed bits of every run of ``rows``, as ``choices`` has them by tensor name."""

        def work(run: Run) -> npt.NDArray[np.uint8]:
            if not run.stop:
                return np.empty(0, np.uint8)
            return choices[run.row.name](run.start, run.numel, run.codes, run.packed)

        return self.over(rows, work, mask=True)

    def _runs(self, rows: Iterable[Tensor], mask: bool, check: bool) -> Iterator[tuple[Run, LeafHashes | None]]:
        # In the caller's thread: artifacts are read by one at a time.
        for row in rows:
            leaves = source_leaves(self._artifact, row) if check and self.origin is not None else None
            for start, stop in blocks_of(row.numel) if row.numel else ((0, 0),):
                packed = self._artifact.mask_bits(row, start, stop) if mask else None
                mine = None if leaves is None else leaves_between(leaves, start, stop)
                yield Run(row, start, stop, packed, None), mine
