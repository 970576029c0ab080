"""One publication: what moved since the baseline is taken at one moment, and coded as a link afterwards.

::

    take      every process     its coordinates and their baseline -> what moved; then the model can change
    link      every process     what moved of others' blocks -> their owners
              every owner       baseline and what moved -> compare, hash, code
              first process     coded blocks of all, in order -> artifact
    advance   every process     what moved -> baseline; only when the link is stored

Beside the baseline a process holds what moved, and a few blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.artifact.manifest import LINK_RECIPE
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.codec import DEFAULT_CODEC, get_codec
from maskreg.digest import Digest, LeafHashes, leaf_hashes
from maskreg.errors import PairMismatchError
from maskreg.flow.extract.extraction import Extraction, ExtractResult, Provenance
from maskreg.flow.extract.pairing import Pair, fold_tied, paired
from maskreg.flow.publish.baseline import Baseline, Changed, Facts, Key
from maskreg.flow.publish.coding import WINDOW_BYTES, Coding
from maskreg.flow.publish.division import Block
from maskreg.flow.publish.moved import Kept, Moved, moved_between
from maskreg.parallel import ordered
from maskreg.tensors.info import numel_of
from maskreg.tensors.rules import Exact

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.live.alone import Alone
    from maskreg.live.processes import Processes

    Among = Mapping[str, tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]


@dataclass(frozen=True)
class Publication:
    """What moved between a baseline and weights at one moment, as far as this process holds them.

    Attributes:
        target: the weights, for names, dtypes and small files alone.
        pairs: their tensors and the baseline's, tied ones apart.
        moved: by block; positions are those in a block that this process owns, otherwise numbers among the
            coordinates that it holds of the block.
        facts: of blocks that were coded here, as they are afterwards.
    """

    baseline: Baseline
    target: Checkpoint
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    moved: dict[Key, Kept]
    rank: int
    jobs: int
    facts: dict[Key, Facts] = field(default_factory=dict)

    @classmethod
    def take(
        cls, baseline: Baseline, target: Checkpoint, rank: int, jobs: int, among: Among = MappingProxyType({})
    ) -> Publication:
        """Find what moved; reads this process's part of the weights once, but for tensors that are ``among`` others.

        ``among``: coordinates that can have moved, numbered among those that this process holds, and their bits.

        Raises:
            PairMismatchError: tensors have other names, shapes or dtypes than the baseline's.
        """
        pairs, notes = paired(baseline, target, mask_only=False, allow_mismatch=False)
        for pair in pairs:
            if pair.source and pair.recorded_target and pair.source.dtype != pair.recorded_target.dtype:
                change = f"{pair.source.dtype} -> {pair.recorded_target.dtype}"
                raise PairMismatchError(
                    f"{pair.name} changes its dtype ({change}), which a link cannot",
                    (pair.name,),
                    hint="load the model in the dtypes of the source, or begin a new chain",
                )

        def compare(block: Block) -> tuple[Key, Kept | None]:
            taken = block.taken[rank]
            if block.name in among:
                numbers, values = among[block.name]
                here = slice(*np.searchsorted(numbers, [taken.start, taken.stop]))
                numbers, values = numbers[here] - taken.start, baseline.cast(block.name, values[here], target)
                where = np.flatnonzero(baseline.own(block)[numbers] != values)
                moved = Moved(numbers[where].astype(np.uint32), values[where])
            else:
                values = baseline.cast(block.name, target.read(block.name, taken.start, taken.stop), target)
                moved = moved_between(baseline.own(block), values)
            if not moved.positions.size:
                return block.key, None
            if block.owner == rank:
                moved = moved._replace(positions=block.positions(rank, moved.positions))
            return block.key, Kept.of(moved)

        tasks = ahead(baseline.held, lambda block: (block.name, block.start, block.stop), target)
        each = ordered(compare, tasks, jobs=jobs, size=numel_of)
        found = {key: kept for key, kept in each if kept is not None}
        return cls(baseline, target, pairs, notes, found, rank, jobs)

    def link(
        self,
        processes: Processes | Alone,
        root: Path,
        *,
        reversible: bool,
        masked: bool,
        head: Digest | None,
    ) -> ExtractResult | None:
        """Write a link as an artifact into the registry in the folder ``root``; every process must call it.

        ``head``: the link before it; None for the first. Afterwards ``moved`` has what others found in this process's
        blocks too. A link without a mask takes a third.

        Returns:
            The artifact, in the first process; None in the others.
        """
        self._take_from_others(processes)
        changed = Changed(self.baseline, self.moved)
        pairs = fold_tied(self.pairs, lambda *names: self._are_same(names, changed, processes))
        codec = get_codec(DEFAULT_CODEC)
        extraction = Extraction(self.baseline, self.target, pairs, self.notes, Exact(), codec, reversible, masked)
        provenance = Provenance() if head is None else Provenance((head,), LINK_RECIPE)
        coding = Coding(extraction, self.baseline, changed, self._counts(processes), self.facts)
        return coding.write(processes, root, self.jobs, WINDOW_BYTES, provenance)

    def advance(self) -> None:
        """Write what moved into the baseline, and take over small files."""
        self.baseline.advance(self.moved, self.facts)
        self.baseline.take_files(self.target)

    def _take_from_others(self, processes: Processes | Alone) -> None:
        """Exchange what moved in blocks that another process owns."""

        def of_others() -> dict[int, dict[Key, Kept]]:
            found: dict[int, dict[Key, Kept]] = defaultdict(dict)
            for block in self.baseline.held:
                if block.owner != self.rank and block.key in self.moved:
                    numbers, values = self.moved[block.key].moved
                    found[block.owner][block.key] = Kept.of(Moved(block.positions(self.rank, numbers), values))
            return found

        parts: dict[Key, list[Moved]] = defaultdict(list)
        for parcel in processes.deliver(processes.together(of_others)).values():
            for key, kept in parcel.items():
                parts[key].append(kept.moved)
        for key, found in parts.items():
            # In ascending order.
            own = [self.moved[key].moved] if key in self.moved else []
            positions, values = (np.concatenate(each) for each in zip(*own, *found, strict=True))
            order = np.argsort(positions)
            self.moved[key] = Kept.of(Moved(positions[order], values[order]))

    def _counts(self, processes: Processes | Alone) -> dict[Key, int]:
        """How much of each block moved."""
        keys = {block.key for block in self.baseline.owned} & self.moved.keys()
        own = {key: self.moved[key].values.size for key in keys}
        return {key: count for part in processes.gathered(own) for key, count in part.items()}

    def _are_same(self, names: Sequence[str], changed: Changed, processes: Processes | Alone) -> bool:
        """Whether two tensors hold the same bits, before and after."""
        left, right = names
        blocks = [block for block in self.baseline.owned if block.name in names]
        sides: tuple[Callable[[Block], LeafHashes], ...] = (
            lambda block: self.baseline.facts(block.key).leaves,
            lambda block: leaf_hashes(changed.read(block.name, block.start, block.stop)),
        )
        # Nearly always the first block decides.
        for some in ([each for each in blocks if not each.start], [each for each in blocks if each.start]):
            for leaves in sides:
                own = {each.key: leaves(each).tobytes() for each in some}
                hashes = {key: value for part in processes.gathered(own) for key, value in part.items()}
                if any(hashes[left, start] != hashes[right, start] for name, start in hashes if name == left):
                    return False
        return True
