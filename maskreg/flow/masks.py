"""Masks without values: combined from masks of one source, or made by another tool; block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Group, groups_of, require_one_source
from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint import role_of
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.renaming import same_values
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, Digest, LeafHashes, leaf_hashes
from maskreg.errors import CorruptError, PairMismatchError, UsageError
from maskreg.exchange.base import Masks
from maskreg.flow.extract.extraction import require_root, side_of
from maskreg.flow.storing import add_span, artifact_space
from maskreg.mask import pack, packed_bytes
from maskreg.mask.algebra import OPERATIONS, PAIRWISE, at_least
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of, numel_of
from maskreg.update.verified import RecordedSide
from maskreg.words import listed


class _Combined(NamedTuple):
    group: Group
    start: int
    stop: int
    bits: Sequence[npt.NDArray[np.uint8]]


def combine(
    masks: Sequence[Artifact],
    root: Path,
    *,
    how: str = "",
    k: int = 0,
    allow_different: bool = False,
    progress: Progress = SILENT,
) -> Digest:
    """Combine masks: ``and``, ``or``, ``minus``, ``xor``, or the coordinates that at least ``k`` of them hold.

    The result is an artifact of kind ``mask`` without a target, with the operands as parents, in order, and the
    operation as lineage recipe. A tensor that is tied in some operands only becomes two.
    """
    operation = partial(at_least, k) if k else OPERATIONS[_checked(how, len(masks))]
    if k and (how or not 1 <= k <= len(masks)):
        raise UsageError(f"at least {k} of {len(masks)}: nothing to count", hint=f"choose 1 to {len(masks)}")
    _refuse_different(masks, allow_different)
    groups = groups_of(masks)
    size = sum(packed_bytes(group.rows[0].numel) for group in groups)
    leaves = sum(group.rows[0].leaves for group in groups) * 2 * FINGERPRINT_BYTES

    def work(block: _Combined) -> tuple[_Combined, npt.NDArray[np.uint8]]:
        return block, operation(block.bits)

    progress.start("combine", size * len(masks))
    threads, source = worker_count(None), RecordedSide(masks[0])
    with (
        artifact_space(root, size + leaves),
        ArtifactWriter(root, ["mask"], jobs=threads) as writer,
        closing(ordered(work, _combined(masks, groups), jobs=threads, size=numel_of)) as results,
    ):
        for (group, start, stop, _), packed in results:
            (name, *aliases), row = group.names, group.rows[0]
            info, last = TensorInfo(name, row.source_dtype, row.source_shape or ()), stop == row.numel
            hashes = source.leaves(row.name) if last else None
            add_span(writer, info, (start, stop), packed, hashes, aliases if last else None)
            progress.advance(packed.size * len(masks))
        first, parents = masks[0].manifest, [artifact.digest for artifact in masks]
        recipe = _recipe(masks, how, k)
        return writer.finish(kind="mask", rule=first.rule, source=first.source, parents=parents, recipe=recipe)


def _checked(how: str, count: int) -> str:
    if how not in OPERATIONS:
        raise UsageError(f"unknown operation on masks: {how!r}", hint=f"choose {', '.join(OPERATIONS)}, or a count")
    if count < 2:
        raise UsageError(f"{how} takes two masks, not {count}", hint="name another mask")
    if how in PAIRWISE and count != 2:
        raise UsageError(f"{how} takes exactly two masks, not {count}", hint="combine two, and the result with a third")
    return how


def _recipe(masks: Sequence[Artifact], how: str, k: int) -> dict[str, Any]:
    recipe: dict[str, Any] = {"kind": "at-least", "k": k, "of": len(masks)} if k else {"kind": how}
    rules = [artifact.manifest.rule for artifact in masks]
    return recipe if len(set(rules)) == 1 else {**recipe, "rules": rules}


def _refuse_different(masks: Sequence[Artifact], allow_different: bool) -> None:
    first = masks[0]
    names = set(first.mask)
    require_one_source(masks, "masks", "combine masks that were extracted from one source checkpoint")
    for mask in masks[1:]:
        alone = tuple(sorted(names ^ set(mask.mask)))
        if alone:
            raise PairMismatchError(
                f"{first.digest.short} and {mask.digest.short} are masks of different tensors: only one has "
                f"{listed(alone)}",
                alone,
                hint="extract both from checkpoints with the same tensors",
            )
        if mask.manifest.rule != first.manifest.rule and not allow_different:
            raise PairMismatchError(
                f"{first.digest.short} has rule {first.manifest.rule} and {mask.digest.short} has "
                f"{mask.manifest.rule}: their masks mean different things",
                hint="extract both under one rule, or take them as they are",
                options={"allow_different": True},
            )


def _combined(masks: Sequence[Artifact], groups: Sequence[Group]) -> Iterator[_Combined]:
    for group in groups:
        # A tensor without compared coordinates has one empty block, which carries its leaves.
        for start, stop in list(blocks_of(group.rows[0].numel)) or [(0, 0)]:
            pairs = zip(masks, group.rows, strict=True)
            yield _Combined(group, start, stop, [mask.mask_bits(row, start, stop) for mask, row in pairs])


RECIPE = {"kind": "imported"}
"""Lineage recipe of a mask that does not say where it comes from."""


class _Imported(NamedTuple):
    info: TensorInfo
    start: int
    stop: int
    packed: npt.NDArray[np.uint8] | None


def store_mask(masks: Masks, source: Checkpoint, root: Path, *, progress: Progress = SILENT) -> Digest:
    """Store masks of one source as an artifact of kind ``mask``, without a target.

    A mask that maskreg wrote, and that had no target either, gets its parents and its lineage recipe back, and so its
    digest. A tensor that the masks lack has no coordinates.
    """
    infos = source.tensors.values()
    leaves = sum(2 * FINGERPRINT_BYTES * (info.numel // LEAF_NUMEL + 1) for info in infos)
    size = leaves + sum(packed_bytes(info.numel) for info in infos if info.dtype in FLOAT)
    buffers, aliases, threads = Buffers(), _aliases(source, masks), worker_count(None)

    def work(block: _Imported) -> tuple[_Imported, LeafHashes]:
        room = buffers.bytes("source", (block.stop - block.start) * block.info.item_bytes)
        return block, leaf_hashes(source.read(block.info.name, block.start, block.stop, room))

    blocks = ahead(_imported(source, masks, aliases), lambda block: (block.info.name, block.start, block.stop), source)
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
            return writer.finish(kind="mask", rule=rule, source=side, recipe=RECIPE)
        kind: Literal["mask", "baseline"] = "baseline" if lineage.kind == "baseline" else "mask"
        parents = [Digest(parent) for parent in lineage.parents]
        return writer.finish(kind=kind, rule=rule, source=side, parents=parents, recipe=lineage.recipe)


def _imported(source: Checkpoint, masks: Masks, aliases: Mapping[str, str]) -> Iterator[_Imported]:
    for info in source.tensors.values():
        if info.name in aliases:
            continue
        has_mask = info.dtype in FLOAT
        bits = packed_blocks(info, masks) if has_mask else None
        # An empty tensor has one empty block, which carries its row.
        for start, stop in list(blocks_of(info.numel)) or [(0, 0)]:
            yield _Imported(info, start, stop, next(bits, None) if bits is not None else None)
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
