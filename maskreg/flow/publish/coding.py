"""Coding blocks where they are owned, and bringing them to the first process, which writes them in order.

Processes go through the same windows of spans. In each, all owners code their blocks at once, and the first process
waits for all of them before it writes. So a window is as long as what it gives fits into memory::

    spans       0 1 2 3 4 5 | 6 7 ...       owners   0 0 1 1 1 2
    process 0   codes 0 1, receives 2..5, writes 0..5
    process 1   codes 2 3 4, sends them
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from maskreg.artifact.writer import BlockRecord
from maskreg.codec import grid_at
from maskreg.codec.base import Movers
from maskreg.codec.movers import changed
from maskreg.device import open_device
from maskreg.flow.extract.differ import BlockDiff, Differ, PairSpan, compare_movers, spans_of
from maskreg.flow.extract.extraction import Extraction, ExtractResult, Provenance, Writing
from maskreg.flow.extract.pairing import StoredAs
from maskreg.flow.publish.baseline import Baseline, Changed, Facts, Key
from maskreg.flow.publish.division import Block
from maskreg.live.alone import Alone
from maskreg.mask import Counts, pack
from maskreg.parallel import ordered, threads
from maskreg.tensors.cast import is_finite
from maskreg.tensors.info import batches, numel_of

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy.typing as npt

    from maskreg.live.processes import Processes

    Bytes = npt.NDArray[np.uint8]

WINDOW_BYTES = 64 << 20
"""What the first process holds of all others at a time, about."""

SPAN_BYTES = 1 << 12
"""What a span takes in which nothing moved."""


class Shared(ABC):
    """Codes spans of pairs, each in the process that owns it."""

    def __init__(self, extraction: Extraction, blocks: Sequence[Block]) -> None:
        """``blocks``: of all pairs, by the process that owns them."""
        self.extraction = extraction
        self._owners = {block.key: block.owner for block in blocks}

    @abstractmethod
    def __call__(self, span: PairSpan) -> BlockDiff:
        """Code a span that this process owns; on any thread."""

    @abstractmethod
    def size_of(self, span: PairSpan) -> int:
        """What is coded of a span takes so many bytes, about; the same in all processes."""

    def window(self, spans: Sequence[PairSpan]) -> AbstractContextManager[None]:
        """Owners have what these spans need, inside; called by all processes."""
        return nullcontext()

    def write(
        self,
        processes: Processes | Alone,
        root: Path,
        jobs: int,
        most: int,
        provenance: Provenance,
        check: Callable[[], None] = lambda: None,
    ) -> ExtractResult | None:
        """Code all spans into an artifact, which the first process writes and returns; called by all.

        Args:
            root: the folder of the registry.
            most: bytes of a window, about.
            provenance: where the weights come from.
            check: called at the end, by each process.
        """
        with ExitStack() as stack:

            def begin() -> Writing | None:
                is_first = processes.rank == processes.ranks[0]
                return stack.enter_context(self.extraction.writing(root, jobs)) if is_first else None

            writing, spans = processes.together(begin), spans_of(self.extraction.pairs)
            if isinstance(processes, Alone):
                assert writing is not None
                for diff in ordered(self, spans, jobs=jobs, size=numel_of):
                    writing.add(diff)
            else:
                # The same threads for all windows, as each keeps the memory that the codec works in.
                with threads(jobs) as pool:
                    for some in batches(spans, most, self.size_of):
                        with self.window(some):
                            self._add(writing, processes, pool, some)
            processes.together(check)
            return processes.together(lambda: None if writing is None else writing.finish(provenance))

    def _add(
        self, writing: Writing | None, processes: Processes, pool: ThreadPoolExecutor, spans: Sequence[PairSpan]
    ) -> None:
        first = processes.ranks[0]
        owned = defaultdict[int, list[PairSpan]](list)
        for span in spans:
            owned[self.owner(span, first)].append(span)
        diffs = processes.together(lambda: [*pool.map(self, owned[processes.rank])])
        coded = {rank: iter(part) for rank, part in processes.deliver({first: diffs}).items()}

        def write() -> None:
            for span in spans if writing else ():
                writing.add(next(coded[self.owner(span, first)]))  # type: ignore[union-attr]

        processes.together(write)

    def owner(self, span: PairSpan, first: int) -> int:
        """The process that codes a span; an empty tensor, which has no block, is the first one's."""
        return self._owners.get((span.pair.name, span.start), first)


class Coding(Shared):
    """Codes spans of a baseline and what it was changed into, each in the process that owns it."""

    def __init__(
        self,
        extraction: Extraction,
        baseline: Baseline,
        changed: Changed,
        moved: Mapping[Key, int],
        facts: dict[Key, Facts],
    ) -> None:
        """``moved``: how many coordinates of each block moved, in all processes.

        ``facts`` becomes what is known of blocks that are coded here, as they are afterwards.
        """
        super().__init__(extraction, baseline.blocks)
        assert extraction.codec is not None
        self._codec, self._facts = extraction.codec, facts
        self._baseline, self._changed, self._moved = baseline, changed, moved
        # Raw bits of tensors that are stored whole if any bit differs, which is known before they are read.
        self._changing = {name for name, _ in moved}
        device = open_device("cpu")
        self._diff = Differ(baseline, changed, extraction.rule, extraction.codec, extraction.reversible, device)

    def __call__(self, span: PairSpan) -> BlockDiff:
        """Code a span."""
        pair = span.pair
        if pair.stored_as is StoredAs.CAST:
            # The baseline has the artifact's dtype, and what was changed has been cast.
            span = span._replace(pair=replace(pair, stored_as=StoredAs.DELTA, target=pair.recorded_target))
        if span.stop and all(info and info.dtype == "BF16" for info in (pair.source, pair.recorded_target)):
            return self._of_movers(span)
        diff = self._diff(span)
        if not self._is_whole(span):
            return diff
        before, after = (side.read(pair.name, span.start, span.stop) for side in (self._baseline, self._changed))
        return replace(
            diff, target_bytes=after.tobytes(), source_bytes=before.tobytes() if self.extraction.reversible else b""
        )

    def _of_movers(self, span: PairSpan) -> BlockDiff:
        """What comparing two blocks of bf16 codes gives, from what is known of the first and where they differ."""
        pair, start, stop = span
        key, of, grid = (pair.name, start), self.extraction, grid_at(pair.source.shape if pair.source else (), start)
        before, movers, facts = (
            self._baseline.read(pair.name, start, stop),
            self._changed.movers(key),
            self._baseline.facts(key),
        )
        after, replaced = facts.after(before, movers)
        moved, energy = compare_movers(movers, replaced)
        if replaced.size:
            self._facts[key] = after
        mask = reverse = None
        if of.masked:
            marks = np.zeros(before.size, np.bool_)
            marks[movers.positions[moved]] = True
            mask = pack(marks)
        if of.reversible:
            reverse = self._codec.encode(changed(before, movers), Movers(movers.positions, replaced), grid)
        nonfinite = facts.nan + facts.inf + int(np.count_nonzero(is_finite(replaced) & ~is_finite(movers.codes)))
        nnz = int(np.count_nonzero(moved))
        counts = Counts(before.size, nnz, replaced.size, energy, nonfinite, after.nan, after.inf)
        record = BlockRecord(mask, counts, self._codec.encode(before, movers, grid), reverse)
        return BlockDiff(span, facts.leaves, after.leaves, bool(movers.positions.size), record)

    def size_of(self, span: PairSpan) -> int:
        """See :class:`Shared`."""
        size = SPAN_BYTES + 4 * self._moved.get((span.pair.name, span.start), 0)
        if self._is_whole(span) and span.pair.source:
            size += numel_of(span) * span.pair.source.item_bytes * (1 + self.extraction.reversible)
        return size

    def _is_whole(self, span: PairSpan) -> bool:
        return span.pair.stored_as in (StoredAs.WIDE, StoredAs.OPAQUE) and span.pair.name in self._changing
