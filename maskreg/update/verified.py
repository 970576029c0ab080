"""The source that an artifact was made from, found to be that and read as bf16 codes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import WrongCheckpointError
from maskreg.parallel import ordered
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.leaves import check_before, leaf_count, leaves_between

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes


def source_leaves(artifact: Artifact, row: Tensor) -> LeafHashes:
    """Leaf hashes of a tensor's source alone, uint8 ``[k, 16]``; not safe to call from several threads."""
    numel = 0 if row.source_shape is None else math.prod(row.source_shape)
    return artifact.leaves(row)[0][: leaf_count(numel)]


class Origin:
    """An artifact's source. Reading is safe from several threads."""

    def __init__(self, artifact: Artifact, checkpoint: Checkpoint, *, jobs: int = 1) -> None:
        """Check names, dtypes and shapes, and the first and the last leaf of every tensor.

        Args:
            artifact: the artifact.
            checkpoint: what should be its source.
            jobs: threads.

        Raises:
            WrongCheckpointError: it is another checkpoint.
        """
        self._checkpoint = checkpoint
        side = artifact.manifest.source
        self._wanted = "give the source that the artifact was made from: " + (side.hub or f"root {side.root[:19]}")
        rows = {name: row for name, row in artifact.by_name.items() if row.source_shape is not None}
        self._check_form(rows)
        with closing(ordered(lambda end: self._checked(*end), self._ends(artifact, rows), jobs=jobs)) as ends:
            for _ in ends:
                pass

    def codes(self, row: Tensor, start: int, stop: int, leaves: LeafHashes | None = None) -> npt.NDArray[np.uint16]:
        """bf16 codes of elements ``[start, stop)`` of a tensor; wider ones are cast.

        Args:
            row: the tensor.
            start: the first element.
            stop: one past the last.
            leaves: uint8 ``[k, 16]``, what the run's leaves must be; the run then starts at a leaf, and ends with one.

        Raises:
            WrongCheckpointError: a leaf differs.
        """
        if leaves is None:
            return to_bf16(self._checkpoint.read(row.name, start, stop), row.source_dtype)
        return to_bf16(self._checked(row.name, start, stop, leaves), row.source_dtype)

    def _checked(self, name: str, start: int, stop: int, leaves: LeafHashes) -> npt.NDArray[Any]:
        values = self._checkpoint.read(name, start, stop)
        try:
            check_before(name, start, values, leaves)
        except WrongCheckpointError as error:
            error.hint = self._wanted
            raise
        return values

    def _ends(self, artifact: Artifact, rows: dict[str, Tensor]) -> Iterator[tuple[str, int, int, LeafHashes]]:
        for name, row in rows.items():
            numel = self._checkpoint.tensors[name].numel
            if numel:
                leaves = source_leaves(artifact, row)
                for start in sorted({0, (numel - 1) // LEAF_NUMEL * LEAF_NUMEL}):
                    stop = min(start + LEAF_NUMEL, numel)
                    yield name, start, stop, leaves_between(leaves, start, stop)

    def _check_form(self, rows: dict[str, Tensor]) -> None:
        for name, row in rows.items():
            found = self._checkpoint.tensors.get(name)
            if found is None:
                raise WrongCheckpointError(name, "missing in this checkpoint", hint=self._wanted)
            if (found.dtype, found.shape) != (row.source_dtype, row.source_shape):
                here, there = f"{found.dtype} {list(found.shape)}", f"{row.source_dtype} {list(row.source_shape or ())}"
                raise WrongCheckpointError(name, f"{here} here, {there} expected", hint=self._wanted)
        for name in self._checkpoint.tensors:
            if name not in rows:
                raise WrongCheckpointError(name, "surplus in this checkpoint", hint=self._wanted)
