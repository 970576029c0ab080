"""What flows share: room for an artifact on a disk, masks without a target, and tensors computed block by block.

Where the format requires a target, such a mask repeats the source; energy and differing bits are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.artifact.tensors import Tensor
from maskreg.artifact.writer import ArtifactWriter, BlockRecord
from maskreg.checkpoint import layer_of, role_of
from maskreg.checkpoint.base import Memory
from maskreg.digest import LeafHashes
from maskreg.disk import filling, require_space
from maskreg.mask import Counts, nnz_of
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo


class MaskedSpan(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor. A worker can get the mask's bits and the source's bf16 codes."""

    row: Tensor
    start: int
    stop: int
    packed: npt.NDArray[np.uint8] | None
    codes: npt.NDArray[np.uint16] | None = None

    @property
    def numel(self) -> int:
        """How many coordinates."""
        return self.stop - self.start


def artifact_space(root: Path, needed: int) -> AbstractContextManager[None]:
    """Write an artifact of ``needed`` bytes inside: room is checked before, and reported when it runs out."""
    require_space(root, needed, what="the artifact", registry=str(root))
    return filling(root, needed, what="the artifact", registry=str(root))


def add_span(
    writer: ArtifactWriter,
    info: TensorInfo,
    span: tuple[int, int],
    packed: npt.NDArray[np.uint8] | None,
    leaves: LeafHashes | None,
    aliases: Iterable[str] | None,
) -> int:
    """Add the next coordinates of a mask; returns how many of them moved.

    ``span`` is empty for the row of a tensor without coordinates. Leaves are the source's: the span's, or all of
    the tensor's with any one of its spans. With the last span come the tensor's other names.
    """
    (start, stop), nnz = span, 0
    if start == 0:
        writer.begin(info.name, role=role_of(info.name), layer=layer_of(info.name), source=info, target=info)
    if packed is not None and stop:
        nnz = nnz_of(packed)
        writer.add_block(BlockRecord(packed, Counts(stop - start, nnz)))
    if leaves is not None:
        writer.add_leaves(leaves, leaves)
    if aliases is not None:
        writer.end(aliases)
    return nnz


def from_blocks(
    info: TensorInfo, start: int, stop: int, into: Memory | None, block: Callable[[int], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """Elements of a tensor whose blocks are computed one by one, by their numbers."""
    if not 0 <= start <= stop <= info.numel:
        raise ValueError(f"{info.name}: elements {start} to {stop} of {info.numel}")
    dtype = np.dtype(f"<u{info.item_bytes}")
    result = np.empty(stop - start, dtype) if into is None else into[: (stop - start) * info.item_bytes].view(dtype)
    for number in range(start // BLOCK_NUMEL, -(-stop // BLOCK_NUMEL)):
        first, values = number * BLOCK_NUMEL, block(number)
        low, high = max(start, first), min(stop, first + values.size)
        result[low - start : high - start] = values[low - first : high - first]
    return result
