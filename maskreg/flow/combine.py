"""Mask algebra on artifacts: a new mask from several masks of one source, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Group, groups_of, require_one_source
from maskreg.artifact.writer import ArtifactWriter
from maskreg.digest import FINGERPRINT_BYTES, Digest
from maskreg.engine import ordered
from maskreg.errors import PairMismatchError, UsageError
from maskreg.flow.storing import add_span, artifact_space, finish_mask
from maskreg.mask import packed_bytes
from maskreg.mask.algebra import OPERATIONS, PAIRWISE, at_least
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import TensorInfo, blocks_of, numel_of
from maskreg.update.verified import RecordedSide
from maskreg.words import listed


class _Block(NamedTuple):
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
    jobs: int | None = None,
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

    def work(block: _Block) -> tuple[_Block, npt.NDArray[np.uint8]]:
        return block, operation(block.bits)

    progress.start("combine", size * len(masks))
    threads, source = worker_count(jobs), RecordedSide(masks[0])
    with (
        artifact_space(root, size + leaves),
        ArtifactWriter(root, ["mask"], jobs=threads) as writer,
        closing(ordered(work, _blocks(masks, groups), jobs=threads, size=numel_of)) as results,
    ):
        for (group, start, stop, _), packed in results:
            (name, *aliases), row = group.names, group.rows[0]
            info, last = TensorInfo(name, row.source_dtype, row.source_shape or ()), stop == row.numel
            hashes = source.leaves(row.name) if last else None
            add_span(writer, info, (start, stop), packed, hashes, aliases if last else None)
            progress.advance(packed.size * len(masks))
        first, parents = masks[0].manifest, [artifact.digest for artifact in masks]
        return finish_mask(writer, first.source, first.rule, parents=parents, recipe=_recipe(masks, how, k))


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
                hint="extract both under one rule, or add --allow-different",
            )


def _blocks(masks: Sequence[Artifact], groups: Sequence[Group]) -> Iterator[_Block]:
    for group in groups:
        # A tensor without compared coordinates has one empty block, which carries its leaves.
        for start, stop in list(blocks_of(group.rows[0].numel)) or [(0, 0)]:
            pairs = zip(masks, group.rows, strict=True)
            yield _Block(group, start, stop, [mask.mask_bits(row, start, stop) for mask, row in pairs])
