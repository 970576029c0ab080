"""Storing a mask that another tool made: an artifact of the source and of which coordinates the mask has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import xxhash

from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint import role_of
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.renaming import same_values
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, Digest, leaf_hashes
from maskreg.engine import ordered
from maskreg.errors import CorruptError
from maskreg.exchange.base import Masks
from maskreg.flow.extract.extraction import require_root, side_of
from maskreg.flow.storing import add_span, artifact_space, finish_mask
from maskreg.mask import pack, packed_bytes
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of, numel_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.digest import LeafHashes

RECIPE = {"kind": "imported"}
"""Lineage recipe of a mask that does not say where it comes from."""


class _Block(NamedTuple):
    info: TensorInfo
    start: int
    stop: int
    packed: npt.NDArray[np.uint8] | None


def store_mask(
    masks: Masks,
    source: Checkpoint,
    root: Path,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Digest:
    """Store masks of one source as an artifact of kind ``mask``, without a target.

    A mask that maskreg wrote, and that had no target either, gets its parents and its lineage recipe back, and so its
    digest. A tensor that the masks lack has no coordinates.
    """
    infos = source.tensors.values()
    leaves = sum(2 * FINGERPRINT_BYTES * (info.numel // LEAF_NUMEL + 1) for info in infos)
    size = leaves + sum(packed_bytes(info.numel) for info in infos if info.dtype in FLOAT)
    buffers, aliases, threads = Buffers(), _aliases(source, masks), worker_count(jobs)

    def work(block: _Block) -> tuple[_Block, LeafHashes]:
        room = buffers.bytes("source", (block.stop - block.start) * block.info.item_bytes)
        return block, leaf_hashes(source.read(block.info.name, block.start, block.stop, room))

    blocks = ahead(_blocks(source, masks, aliases), lambda block: (block.info.name, block.start, block.stop), source)
    progress.start("convert", sum(info.nbytes for info in infos))
    with (
        artifact_space(root, size),
        ArtifactWriter(root, ["mask"], jobs=threads) as writer,
        closing(ordered(work, blocks, jobs=threads, size=numel_of)) as results,
    ):
        for (info, start, stop, packed), hashes in results:
            tied = [alias for alias, owner in aliases.items() if owner == info.name] if stop == info.numel else None
            add_span(writer, info, (start, stop), packed, hashes, tied)
            progress.advance((stop - start) * info.item_bytes)
        side = side_of(source, writer.tensors, "source", cast="")
        lineage = masks.lineage
        require_root(source, side, lineage.source.root if lineage else "")
        rule = lineage.rule if lineage else "exact"
        if lineage is None or lineage.kind == "delta" or lineage.target.root != lineage.source.root:
            return finish_mask(writer, side, rule, parents=[], recipe=RECIPE)
        kind: Literal["mask", "baseline"] = "baseline" if lineage.kind == "baseline" else "mask"
        parents = [Digest(parent) for parent in lineage.parents]
        return finish_mask(writer, side, rule, kind=kind, parents=parents, recipe=lineage.recipe)


def _blocks(source: Checkpoint, masks: Masks, aliases: Mapping[str, str]) -> Iterator[_Block]:
    for info in source.tensors.values():
        if info.name in aliases:
            continue
        has_mask = info.dtype in FLOAT
        bits = packed_blocks(info, masks) if has_mask else None
        # An empty tensor has one empty block, which carries its row.
        for start, stop in list(blocks_of(info.numel)) or [(0, 0)]:
            yield _Block(info, start, stop, next(bits, None) if bits is not None else None)
        if bits is not None and next(bits, None) is not None:
            raise AssertionError(f"{info.name}: more blocks of bits than of elements")


def packed_blocks(info: TensorInfo, masks: Masks) -> Iterator[npt.NDArray[np.uint8]]:
    """Packed bits of every block of a tensor, checked against the lineage at the end."""
    blocks = masks.tensors[info.name]() if info.name in masks.tensors else None
    hasher = xxhash.xxh3_128()
    for start, stop in blocks_of(info.numel):
        packed = pack(np.zeros(stop - start, np.bool_) if blocks is None else next(blocks))
        hasher.update(packed.data)
        yield packed
    expected = masks.lineage.checks.get(info.name) if masks.lineage else None
    if expected not in (None, hasher.hexdigest()):
        raise CorruptError(f"tensor {info.name}", "its mask does not match its checksum", hint="copy the file again")


def _aliases(source: Checkpoint, masks: Masks) -> dict[str, str]:
    """Output heads that are an embedding by another name, with the same mask: by head, the embedding."""
    owners = [info for info in source.tensors.values() if role_of(info.name) == "embedding" and info.dtype in FLOAT]
    heads = [info for info in source.tensors.values() if role_of(info.name) == "lm_head"]
    return {
        head.name: owner.name
        for head in heads
        for owner in owners
        if (head.dtype, head.shape) == (owner.dtype, owner.shape)
        and same_values(source, head.name, owner.name)
        and all(map(np.array_equal, packed_blocks(head, masks), packed_blocks(owner, masks)))
    }
