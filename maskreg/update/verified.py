"""The one place that decides whether an artifact applies to a checkpoint, by what the artifact records of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import eq
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Side
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.ahead import LeafReader, ahead, blocks_ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import LEAF_NUMEL, LeafHashes
from maskreg.errors import FormatError, WrongCheckpointError
from maskreg.parallel import Buffers, ordered
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import FLOAT, ITEM_BYTES, TensorInfo
from maskreg.tensors.leaves import check_before, differing_leaf, leaf_count, leaves_between

SideName = Literal["source", "target"]

_CACHED_TENSORS = 64
"""Tensors whose leaf hashes stay in memory: more than are ever worked on at once."""


class RecordedSide:
    """What an artifact records of its source or its target. Safe to use from several threads.

    ``tensors`` has every tensor of that checkpoint by name, tied names included, in the order of the tensor table.
    """

    def __init__(self, artifact: Artifact, name: SideName = "source") -> None:
        """Read the tensor table."""
        self.artifact = artifact
        self.name: SideName = name
        infos = ((tensor, _info(tensor, row, name)) for tensor, row in artifact.by_name.items())
        self.tensors: Mapping[str, TensorInfo] = {tensor: info for tensor, info in infos if info is not None}
        self.leaves: Callable[[str], LeafHashes] = lru_cache(_CACHED_TENSORS)(self._leaves)
        """Leaf hashes of a tensor on this side, uint8 ``[k, 16]``; none for a tensor that this side lacks."""

    @property
    def side(self) -> Side:
        """The identity of that checkpoint."""
        return self.artifact.manifest.source if self.name == "source" else self.artifact.manifest.target

    @property
    def hint(self) -> str:
        """A hint that says which checkpoint is needed."""
        identity = self.side.hub or f"with root {self.side.root[:19]}"
        return f"give the {self.name} that the artifact was made from: {identity}"

    def matches(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is this side, bit for bit; reads it up to the first difference."""
        return dict(self.tensors) == dict(checkpoint.tensors) and all(
            differing_leaf(checkpoint.read(name, *span), leaves_between(self.leaves(name), *span)) is None
            for name, info in self.tensors.items()
            for span in blocks_ahead(name, info.numel, checkpoint)
        )

    def holds(self, name: str, start: int, stop: int, values: npt.NDArray[Any]) -> bool:
        """Whether elements ``[start, stop)`` of a tensor are these values; both ends at a leaf or the tensor's end."""
        return name in self.tensors and differing_leaf(values, leaves_between(self.leaves(name), start, stop)) is None

    def _leaves(self, tensor: str) -> LeafHashes:
        if tensor not in self.tensors:
            return self.artifact.leaves(self.artifact.by_name[tensor])[0][:0]
        source, target = self.artifact.leaves(self.artifact.by_name[tensor])
        # The stored table is as long as the longer side.
        return (source if self.name == "source" else target)[: leaf_count(self.tensors[tensor].numel)]


def require_tensors(
    checkpoint: Checkpoint,
    expected: Mapping[str, TensorInfo],
    *,
    hint: str,
    fits: Callable[[TensorInfo, TensorInfo], bool] = eq,
    allow_surplus: bool = False,
) -> None:
    """Check names, dtypes and shapes of a checkpoint's tensors; no data is read. ``hint`` says which one is needed.

    ``fits`` tells whether a tensor, given first, can stand for the expected one.
    """
    for name, info in expected.items():
        present = checkpoint.tensors.get(name)
        if present is None:
            raise WrongCheckpointError(name, "missing in this checkpoint", hint=hint)
        if not fits(present, info):
            raise WrongCheckpointError(name, f"{_form(present)} here, {_form(info)} expected", hint=hint)
    surplus: Collection[str] = () if allow_surplus else [name for name in checkpoint.tensors if name not in expected]
    for name in surplus:
        raise WrongCheckpointError(name, "surplus in this checkpoint", hint=hint)


def _info(name: str, row: Tensor, side: SideName) -> TensorInfo | None:
    source = side == "source"
    dtype, shape = (row.source_dtype, row.source_shape) if source else (row.target_dtype, row.target_shape)
    if shape is None:
        return None
    if dtype not in ITEM_BYTES:
        raise FormatError(f"tensors.json: {name}: unknown dtype {dtype!r}")
    if row.numel and dtype not in FLOAT:
        raise FormatError(f"tensors.json: {name}: a mask of {dtype}, which is not a floating-point dtype")
    return TensorInfo(name, dtype, shape)


def _form(tensor: TensorInfo) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


TaskT = TypeVar("TaskT")


class VerifiedSource:
    """A checkpoint that an artifact applies to, verified as such. Safe to use from several threads.

    Opening checks what is cheap and shows nearly every wrong checkpoint: names, dtypes and shapes of all tensors, and
    the first and the last leaf of each. Reading checks every leaf that is read, so nothing is used unverified.
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

        With ``only``, just these tensors will be read: the checkpoint can lack others and have more. The side
        ``target`` verifies a checkpoint that is turned back into the source.
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
        """Tasks in their order.

        What ``span`` says that each reads is on its way where the checkpoint is in a bucket.
        """
        return ahead(tasks, span, self.checkpoint)

    def read(self, name: str, start: int, stop: int, into: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor as stored, each leaf checked.

        Unsigned integers of the element's width.

        Both ends are multiples of 2^18, or the tensor's end. The result can lie in ``into``, uint8 of the span's size.
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

        Without ``checked``, leaves are not compared, and the span can begin and end anywhere: for data that an earlier
        pass has checked.
        """
        values = self.read(name, start, stop) if checked else self.checkpoint.read(name, start, stop)
        return to_bf16(values, self.recorded.tensors[name].dtype)

    def codes_within(self, name: str, start: int, stop: int) -> npt.NDArray[np.uint16]:
        """The same of elements that begin and end anywhere: the leaves that they lie in are read and checked."""
        first = start // LEAF_NUMEL * LEAF_NUMEL
        last = min(-(-stop // LEAF_NUMEL) * LEAF_NUMEL, self.recorded.tensors[name].numel)
        return self.codes(name, first, last)[start - first : stop - first]

    def _end_leaves(self, names: Collection[str]) -> Iterator[tuple[str, int, int]]:
        for name in names:
            numel = self.recorded.tensors[name].numel
            if numel:
                for start in sorted({0, (numel - 1) // LEAF_NUMEL * LEAF_NUMEL}):
                    yield name, start, min(start + LEAF_NUMEL, numel)
