"""One side of an artifact: the names, forms, leaf hashes and identity that it records of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from operator import eq
from typing import TYPE_CHECKING, Any, Literal

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.ahead import blocks_ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import FormatError, WrongCheckpointError
from maskreg.tensors.dtypes import FLOAT, ITEM_BYTES
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import differing_leaf, leaf_count, leaves_between

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.digest import LeafHashes

SideName = Literal["source", "target"]

_CACHED_TENSORS = 64
"""Tensors whose leaf hashes stay in memory: more than are ever worked on at once."""


class RecordedSide:
    """What an artifact records of its source or its target. Safe to use from several threads.

    Attributes:
        artifact: the artifact.
        name: which side.
        tensors: every tensor of that checkpoint by name, tied names included, in the order of the tensor table.
    """

    def __init__(self, artifact: Artifact, name: SideName = "source") -> None:
        """Read the tensor table.

        Raises:
            FormatError: a dtype of the table is unknown.
        """
        self.artifact = artifact
        self.name: SideName = name
        infos = ((tensor, _info(tensor, row, name)) for tensor, row in artifact.by_name.items())
        self.tensors: Mapping[str, TensorInfo] = {tensor: info for tensor, info in infos if info is not None}
        self.leaves: Callable[[str], LeafHashes] = lru_cache(_CACHED_TENSORS)(self._leaves)
        """Leaf hashes of a tensor on this side, uint8 ``[k, 16]``; none for a tensor that this side lacks."""

    def __reduce__(self) -> tuple[type[RecordedSide], tuple[Artifact, SideName]]:
        return RecordedSide, (self.artifact, self.name)

    @property
    def hint(self) -> str:
        """A hint that says which checkpoint is needed."""
        side = self.artifact.manifest.source if self.name == "source" else self.artifact.manifest.target
        identity = side.hub or f"with root {side.root[:19]}"
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
    """Check names, dtypes and shapes of a checkpoint's tensors; no data is read.

    Args:
        checkpoint: the checkpoint at hand.
        expected: the tensors that it must have, by name.
        hint: says which checkpoint is needed.
        fits: whether a tensor, given first, may stand for the expected one.
        allow_surplus: accept tensors that are not expected.

    Raises:
        WrongCheckpointError: the first tensor that is missing, surplus, or of another form.
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
