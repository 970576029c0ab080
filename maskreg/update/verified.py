"""The one place that decides whether a checkpoint is the one that an artifact applies to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.leafwise import LeafReader
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import WrongCheckpointError
from maskreg.parallel import Buffers, ordered
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.leaves import check_before, leaves_between
from maskreg.update.recorded import RecordedSide, SideName, require_tensors

TaskT = TypeVar("TaskT")


class VerifiedSource:
    """A checkpoint that an artifact applies to, verified as such. Safe to use from several threads.

    Opening checks what is cheap and shows nearly every wrong checkpoint: names, dtypes and shapes of all tensors, and
    the first and the last leaf of each. Reading checks every leaf that is read, so nothing is used unverified.

    Attributes:
        checkpoint: the checkpoint.
        recorded: what the artifact records of it.
    """

    def __init__(
        self,
        artifact: Artifact,
        checkpoint: Checkpoint,
        *,
        side: SideName = "source",
        only: Collection[str] | None = None,
        jobs: int = 1,
    ) -> None:
        """Check the forms of all tensors, then the first and the last leaf of each.

        Args:
            artifact: the artifact.
            checkpoint: what should be its source.
            side: ``target`` to verify the checkpoint that is turned back into the source.
            only: names of the tensors that will be read; the checkpoint may then lack others and have more. None for
                the whole checkpoint.
            jobs: threads.

        Raises:
            WrongCheckpointError: another checkpoint; the hint says which one is needed.
        """
        self.checkpoint = checkpoint
        self.recorded = RecordedSide(artifact, side)
        self._opposite = RecordedSide(artifact, "target" if side == "source" else "source")
        tensors = self.recorded.tensors
        expected = tensors if only is None else {name: info for name, info in tensors.items() if name in only}
        require_tensors(checkpoint, expected, hint=self.recorded.hint, allow_surplus=only is not None)
        buffers = Buffers()

        def check(leaf: tuple[str, int, int]) -> None:
            name, start, stop = leaf
            self.read(name, start, stop, buffers.bytes("leaf", (stop - start) * tensors[name].item_bytes))

        leaves = self.ahead(self._end_leaves(expected), lambda leaf: leaf)
        for _ in ordered(check, leaves, jobs=jobs, size=lambda leaf: leaf[2] - leaf[1]):
            pass

    def ahead(self, tasks: Iterable[TaskT], span: Callable[[TaskT], tuple[str, int, int] | None]) -> Iterator[TaskT]:
        """Tasks in their order, with what they read on its way where the checkpoint is in a bucket.

        Args:
            tasks: may be a generator.
            span: tensor and elements that a task reads; None for nothing.
        """
        return ahead(tasks, span, self.checkpoint)

    def read(self, name: str, start: int, stop: int, into: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor as stored, each leaf checked.

        Args:
            name: of the tensor.
            start: first element, a multiple of 2^18.
            stop: one past the last: the tensor's end or a multiple of 2^18.
            into: uint8 of the span's size, in which the result may lie.

        Returns:
            Unsigned integers of the element's width.

        Raises:
            WrongCheckpointError: a leaf differs.
        """
        reader, recorded = LeafReader(self.checkpoint, name, start, stop, into), self.recorded.leaves(name)
        for first, values in reader.leaves():
            last = first + values.size
            try:
                check_before(name, first, values, leaves_between(recorded, first, last))
            except WrongCheckpointError as error:
                error.hint = self.recorded.hint
                if self._opposite.holds(name, first, last, values):
                    fault = f"has the values of the artifact's {self._opposite.name}, not of its {self.recorded.name}"
                    raise WrongCheckpointError(name, fault, hint=error.hint) from error
                raise
        return reader.values

    def codes(self, name: str, start: int, stop: int, *, checked: bool = True) -> npt.NDArray[np.uint16]:
        """bf16 codes of elements ``[start, stop)`` of a tensor; wider dtypes are cast.

        Args:
            name: of the tensor.
            start: first element.
            stop: one past the last.
            checked: compare leaves, as :meth:`read` does. Without, the span may begin and end anywhere: for data that
                was checked by an earlier pass.

        Raises:
            WrongCheckpointError: a leaf differs.
        """
        values = self.read(name, start, stop) if checked else self.checkpoint.read(name, start, stop)
        return to_bf16(values, self.recorded.tensors[name].dtype)

    def codes_within(self, name: str, start: int, stop: int) -> npt.NDArray[np.uint16]:
        """The same of elements that may begin and end within a leaf: the leaves that they lie in are read and checked.

        Args:
            name: of the tensor.
            start: first element.
            stop: one past the last.

        Raises:
            WrongCheckpointError: a leaf differs.
        """
        first = start // LEAF_NUMEL * LEAF_NUMEL
        last = min(-(-stop // LEAF_NUMEL) * LEAF_NUMEL, self.recorded.tensors[name].numel)
        return self.codes(name, first, last)[start - first : stop - first]

    def _end_leaves(self, names: Collection[str]) -> Iterator[tuple[str, int, int]]:
        for name in names:
            numel = self.recorded.tensors[name].numel
            if numel:
                for start in sorted({0, (numel - 1) // LEAF_NUMEL * LEAF_NUMEL}):
                    yield name, start, min(start + LEAF_NUMEL, numel)
