"""The result of a training, coded from where it is: against a checkpoint on a disk, a window of blocks at a time.

::

    window of blocks    every process     its coordinates of others' blocks -> their owners
                        every owner       source from its disk, and weights -> compare, hash, code
                        first process     coded blocks of all, in order -> artifact

What is held does not grow with the model. What comes out is what an extraction of the saved model gives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.artifact.reader import Artifact
from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.renaming import same_values
from maskreg.codec import DEFAULT_CODEC, get_codec
from maskreg.device import open_device
from maskreg.digest import leaf_hashes
from maskreg.errors import PairMismatchError
from maskreg.flow.extract.differ import BlockDiff, Differ, PairSpan
from maskreg.flow.extract.extraction import Extraction, ExtractResult, Provenance
from maskreg.flow.extract.pairing import StoredAs, fold_tied, is_wide, paired
from maskreg.flow.publish.coding import SPAN_BYTES, WINDOW_BYTES, Shared
from maskreg.flow.publish.division import Block
from maskreg.mask import nnz_of, overlap, pack
from maskreg.parallel import system_memory
from maskreg.tensors.info import BLOCK_NUMEL, numel_of
from maskreg.tensors.rules import Exact

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.live.alone import Alone
    from maskreg.live.processes import Processes
    from maskreg.live.state import ModelState

    Bits = npt.NDArray[Any]

Key = tuple[str, int]

_WINDOWS, _LEAST_BYTES = 64, 1 << 18
"""Windows of a model, about, and bytes of each at least; of a large model each has WINDOW_BYTES, so there are more."""


def extract_shards(
    source: Checkpoint,
    model: ModelState,
    blocks: Sequence[Block],
    processes: Processes | Alone,
    root: Path,
    *,
    mask: Artifact | None = None,
    source_root: str = "",
    jobs: int = 1,
) -> ExtractResult | None:
    """Write what a training has made of its source as an artifact into the registry in the folder ``root``.

    Every process of the model must call it; all fail together. A source that is stored wide gives a mask only.

    Args:
        model: must not change meanwhile.
        blocks: of all tensors, by the process that owns them.
        mask: an artifact with a mask of what might have changed; None for all.
        source_root: an identity that the source must turn out to have.

    Returns:
        The artifact, in the first process; None in the others.

    Raises:
        PairMismatchError: tensors have other names, shapes or dtypes than the source's, or have changed outside the
            mask.
        TryAgainError: the weights changed meanwhile.
    """
    weights = Weights(model, blocks, processes)
    wide = is_wide(source)
    pairs, notes = processes.together(lambda: paired(source, weights, mask_only=wide, allow_mismatch=False))
    pairs = fold_tied(pairs, lambda left, right: _are_same(source, weights, (left, right), processes))
    codec = None if wide else get_codec(DEFAULT_CODEC)
    extraction = Extraction(source, weights, pairs, notes, Exact(), codec, reversible=False)
    most = min(WINDOW_BYTES, max(_LEAST_BYTES, sum(map(numel_of, blocks)) // 2 // _WINDOWS))
    coding = ShardCoding(extraction, weights, mask, processes)
    return coding.write(processes, root, jobs, most, Provenance(source_root=source_root), model.check_unchanged)


class Weights(Checkpoint):
    """A model's weights, of which a process reads the blocks that it owns; what others hold of them, in a window."""

    blockwise = True

    def __init__(self, model: ModelState, blocks: Sequence[Block], processes: Processes | Alone) -> None:
        """Nothing is read."""
        self.format, self.path, self.tensors = model.format, model.path, model.tensors
        self.blocks = {block.key: block for block in blocks}
        self.held = [block for block in blocks if processes.rank in block.taken]
        self._model, self._processes, self._rank = model, processes, processes.rank
        self._shared: dict[Key, Bits] = {}

    @contextmanager
    def window(self, keys: Sequence[Key]) -> Iterator[None]:
        """Owners can read these blocks, inside; called by all processes, with the same keys in the same order."""
        blocks = [block for block in map(self.blocks.get, keys) if block and self._rank in (block.owner, *block.taken)]

        def of_others() -> dict[int, list[Bits]]:
            parcels: dict[int, list[Bits]] = defaultdict(list)
            for block in blocks:
                if block.owner != self._rank:
                    parcels[block.owner].append(self._own(block))
            return parcels

        parcels = self._processes.together(of_others)
        received = {rank: iter(parts) for rank, parts in self._processes.deliver(parcels).items()}
        for block in blocks:
            if block.owner != self._rank or [*block.taken] == [self._rank]:
                continue
            width = self.tensors[block.name].item_bytes
            self._shared[block.key] = values = system_memory(numel_of(block) * width).view(f"<u{width}")
            for rank, taken in block.taken.items():
                part = self._own(block) if rank == self._rank else next(received[rank])
                values[block.runs[rank].positions(taken, block.start)] = part
        del received
        try:
            yield
        finally:
            self._shared.clear()

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> Bits:
        """Elements of a block that this process owns."""
        key = name, start // BLOCK_NUMEL * BLOCK_NUMEL
        first = start - key[1]
        if (values := self._shared.get(key)) is None:
            first += self.blocks[key].taken[self._rank].start if stop > start else 0
            return self._model.read(name, first, first + stop - start)
        return values[first : first + stop - start]

    def differ(self, block: Block, source: Checkpoint) -> bool:
        """Whether this process's coordinates of a block have other bits in another checkpoint."""
        before = source.read(block.name, block.start, block.stop)
        part = block.runs[self._rank].of_block(before, block.taken[self._rank], block.start)
        return not np.array_equal(part, self._own(block))

    def small_files(self) -> Mapping[str, Location]:
        """Small files of the checkpoint that names come from."""
        return self._model.small_files()

    def close(self) -> None:
        """Nothing: the model belongs to its owner."""

    def _own(self, block: Block) -> Bits:
        taken = block.taken[self._rank]
        return self._model.read(block.name, taken.start, taken.stop)


class ShardCoding(Shared):
    """Codes spans as an extraction does, where they are owned."""

    def __init__(
        self, extraction: Extraction, weights: Weights, mask: Artifact | None, processes: Processes | Alone
    ) -> None:
        """Find out which tensors that are stored whole have changed; called by all processes."""
        super().__init__(extraction, [*weights.blocks.values()])
        self._weights, self._mask = weights, mask
        if mask is not None:
            # No whole shards, each of which takes as much memory as half of the coding.
            mask.hold_at_most(0)
        self._differ = Differ(extraction.source, weights, extraction.rule, extraction.codec, False, open_device("cpu"))
        self._whole = self._changed(processes) if extraction.codec else set()

    def __call__(self, span: PairSpan) -> BlockDiff:
        """See :class:`Shared`.

        Raises:
            PairMismatchError: coordinates outside the mask have changed.
        """
        diff = self._differ(span)
        if self._mask is not None and diff.differs and (outside := self._outside(self._mask, span, diff)):
            raise PairMismatchError(
                f"{outside:,} coordinates of {span.pair.name} have changed outside the mask",
                (span.pair.name,),
                hint="give the mask that was trained; or none, and the source, where all coordinates can change",
            )
        if span.pair.name not in self._whole:
            return diff
        return replace(diff, target_bytes=self._weights.read(span.pair.name, span.start, span.stop).tobytes())

    def window(self, spans: Sequence[PairSpan]) -> AbstractContextManager[None]:
        """See :class:`Shared`."""
        return self._weights.window([(span.pair.name, span.start) for span in spans])

    def size_of(self, span: PairSpan) -> int:
        """See :class:`Shared`."""
        width = self._weights.tensors[span.pair.name].item_bytes if span.pair.name in self._whole else 0
        return SPAN_BYTES + numel_of(span) // 2 + numel_of(span) * width

    def _changed(self, processes: Processes | Alone) -> set[str]:
        """Which of the tensors that are stored whole, if any bit differs, do so in any process."""
        kinds = StoredAs.WIDE, StoredAs.OPAQUE
        pairs = {pair.name: pair for pair in self.extraction.pairs if pair.stored_as in kinds}
        recast = {name for name, pair in pairs.items() if pair.source != pair.target}

        def own() -> set[str]:
            mine = (block for block in self._weights.held if block.name in pairs)
            return {block.name for block in mine if self._weights.differ(block, self.extraction.source)}

        return recast.union(*processes.gathered(processes.together(own)))

    def _outside(self, mask: Artifact, span: PairSpan, diff: BlockDiff) -> int:
        """Coordinates outside the mask that have changed."""
        block, (pair, start, stop) = diff.block, span
        same_dtype = pair.source and pair.target and pair.source.dtype == pair.target.dtype
        if block is None or block.mask is None or (same_dtype and (block.counts.differing != block.counts.nnz)):
            # Bits that no rule sees count too.
            sides = (side.read(pair.name, start, stop) for side in (self.extraction.source, self._weights))
            moved = pack(np.not_equal(*sides))
        else:
            moved = np.asarray(block.mask)
        if pair.name not in mask.mask:
            return nnz_of(moved)
        return nnz_of(moved) - overlap(moved, mask.mask_bits(mask.by_name[pair.name], start, stop))


def _are_same(source: Checkpoint, weights: Weights, names: tuple[str, str], processes: Processes | Alone) -> bool:
    """Whether two tensors hold the same bits, before and after."""
    left, right = names
    is_first = processes.rank == processes.ranks[0]
    if not processes.gathered(processes.together(lambda: is_first and same_values(source, left, right)))[0]:
        return False
    for start in [start for name, start in weights.blocks if name == left]:
        keys = [(name, start) for name in names]
        with weights.window(keys):
            mine = [block for block in map(weights.blocks.__getitem__, keys) if block.owner == processes.rank]
            own = {block.name: leaf_hashes(weights.read(*block[:3])).tobytes() for block in mine}
            hashes = {name: value for part in processes.gathered(own) for name, value in part.items()}
        if hashes[left] != hashes[right]:
            return False
    return True
