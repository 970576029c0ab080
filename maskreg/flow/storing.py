"""Storing an artifact in a registry: room on its disk, and masks without a target.

Where the format requires a target, such a mask repeats the source; energy and differing bits are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from maskreg.artifact.manifest import Side
from maskreg.artifact.writer import ArtifactWriter, BlockRecord
from maskreg.checkpoint import layer_of, role_of
from maskreg.digest import Digest
from maskreg.disk import filling, require_space
from maskreg.mask import nnz_of
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from maskreg.digest import LeafHashes


@contextmanager
def artifact_space(root: Path, needed: int) -> Iterator[None]:
    """Write an artifact of ``needed`` bytes inside: room is checked before, and reported when it runs out."""
    require_space(root, needed, what="the artifact", registry=str(root))
    with filling(root, needed, what="the artifact", registry=str(root)):
        yield


def add_span(
    writer: ArtifactWriter,
    info: TensorInfo,
    span: tuple[int, int],
    packed: npt.NDArray[np.uint8] | None,
    leaves: LeafHashes | None,
    aliases: Iterable[str] | None,
) -> int:
    """Add the next coordinates of a mask; returns how many of them moved.

    Args:
        writer: of the artifact.
        info: the tensor, as the source has it.
        span: first coordinate and one past the last; empty for the row of a tensor without any.
        packed: the mask's bits.
        leaves: of the source: the span's, or all of the tensor's with any one of its spans.
        aliases: with the last span of the tensor, its other names.
    """
    (start, stop), nnz = span, 0
    if start == 0:
        writer.begin(info.name, role=role_of(info.name), layer=layer_of(info.name), source=info, target=info)
    if packed is not None and stop:
        nnz = nnz_of(packed)
        writer.add_block(BlockRecord(packed, numel=stop - start, nnz=nnz))
    if leaves is not None:
        writer.add_leaves(leaves, leaves)
    if aliases is not None:
        writer.end(aliases)
    return nnz


def finish_mask(
    writer: ArtifactWriter,
    source: Side,
    rule: str,
    *,
    kind: Literal["mask", "baseline"] = "mask",
    parents: Sequence[Digest],
    recipe: Mapping[str, Any] | None,
) -> Digest:
    """Write the manifest of a mask without a target."""
    return writer.finish(
        kind=kind, rule=rule, exact=False, source=source, target=source, parents=parents, recipe=recipe
    )
