"""Applying to a model that several processes hold: each decodes its share of the blocks.

Every process goes through the same rounds. In each, an owner decodes a block of every queue::

    send what I hold of others' blocks  <->  receive what others hold of mine
    put my blocks together, check, decode, check
    pass 2 only: send others their part of the result  <->  receive mine, and write it
    staging: send others what changes of theirs        <->  receive and keep what changes of mine

A process that fails keeps on sending and receiving until the pass is over, so that no process waits for it; then all
fail. A block is decoded by one of the processes that hold its coordinates, and those that it lacks are sent to it::

    [6, 4] over 3 processes, Shard(0), in blocks of 8       process 0 holds a, 1 holds b, 2 holds c
    aaaaaaaa  bbbbbbbb  cccccccc                            nothing is sent
    [6, 4] in blocks of 16
    aaaaaaaabbbbbbbb  cccccccc                              process 0 or 1 decodes the first, with 8 of the other's

All processes that share a tensor make the same plan, so it is never sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from maskreg.flow.apply.blocks import Blocks, Live
from maskreg.flow.apply.moving import Changes, Patch, patch_of, swaps_between
from maskreg.flow.apply.shared_swaps import Swaps
from maskreg.flow.apply.sharing import Kept
from maskreg.live.memory import bits_of
from maskreg.live.processes import FAILURES, Processes
from maskreg.live.runs import Indexes, pieces
from maskreg.parallel import ordered
from maskreg.update.delta import Payload, Stored
from maskreg.update.route import Route, SpanRoute

_PLACE = torch.int32  # of movers in a block

_BLOCKS_ON_GPU = 16
"""Blocks that a process decodes at once on a GPU, about 20 MB each."""


def patch_sharded(route: Route, live: Sequence[Live], processes: Processes, jobs: int) -> Kept:
    """Patch what this process holds; every process must call it. Returns what it read and kept in memory."""
    works, kept = _prepared(route, live, processes)
    for kind in (_Pass, _Writing):
        passed = kind(route, live, processes, kept, jobs)
        for shared_by in works:
            passed.run([work for work in works[shared_by] if not kind.writes or live[work.item].route.changes])
        processes.together(passed.check)
    return kept


def stage_sharded(route: Route, live: Sequence[Live], processes: Processes, jobs: int) -> list[Patch]:
    """What changes of what this process holds; every process must call it. The model is only read."""
    works, kept = _prepared(route, live, processes)
    staging = _Staging(route, live, processes, kept, jobs)
    for shared_by in works:
        staging.run(works[shared_by])
    processes.together(staging.check)
    return staging.patches


def _prepared(
    route: Route, live: Sequence[Live], processes: Processes
) -> tuple[dict[tuple[int, ...], list[Work]], Kept]:
    """The plan, and what this process needs of the artifacts, read."""
    works = processes.together(lambda: plan(live, processes.rank))
    own = [work.span for each in works.values() for work in each if work.span is not None]
    kept = Kept((need for span in own for need in needs_of(span)), [delta.artifact for delta in route.deltas])
    kept.read(processes)
    return works, kept


class _Pass:
    """One pass over all blocks, which checks what becomes of them."""

    writes = False

    def __init__(self, route: Route, live: Sequence[Live], processes: Processes, kept: Kept, jobs: int) -> None:
        self._live = live
        self._processes = processes
        self._kept = kept
        self._jobs = jobs
        self._most = _BLOCKS_ON_GPU if any(item.held.local.is_cuda for item in live) else jobs
        self._blocks = Blocks(route, write=self.writes, most=self._most)
        self._memory = _Memory(live)
        self._failures: list[BaseException] = []

    @torch.no_grad()
    def run(self, works: Sequence[Work]) -> None:
        """Go through the blocks of tensors that the same processes share."""
        self._memory.expect([work for work in works if self._processes.rank in work.slices])
        for every in rounds(works, self._most):
            turn = [work for work in every if self._processes.rank in work.slices]
            self._finish(turn, self._results(self._gathered(turn)))
            self._memory.release(turn, write=self.writes)

    def check(self) -> None:
        """Raise the first error of this process, if there was one."""
        if self._failures:
            raise self._failures[0]

    def _gathered(self, turn: Sequence[Work]) -> list[tuple[Work, torch.Tensor]]:
        """This process's blocks, whole."""
        me = self._processes.rank
        sent, expected = defaultdict[int, list[torch.Tensor]](list), Counter[int]()
        for work in turn:
            if work.owner != me:
                sent[work.owner].append(_bytes(self._own(work)))
                continue
            for rank, taken in work.slices.items():
                if rank != me:
                    expected[rank] += (taken.stop - taken.start) * self._memory.of(work.item).element_size()
        received = _Stream(self._processes.exchange(sent, expected))
        return [(work, self._joined(work, received)) for work in turn if work.owner == me]

    def _joined(self, work: Work, received: _Stream) -> torch.Tensor:
        me, flat = self._processes.rank, self._memory.of(work.item)
        if set(work.slices) == {me}:
            return self._own(work)
        block = torch.empty(work.stop - work.start, dtype=flat.dtype, device=flat.device)
        for rank, taken in work.slices.items():
            part = self._own(work) if rank == me else received.next(rank, taken.stop - taken.start, flat)
            block[self._positions(work, rank)] = part
        return block

    def _results(self, gathered: Sequence[tuple[Work, torch.Tensor]]) -> list[tuple[Work, Any]]:
        """What is kept of each block; as if nothing changed where that failed, or something before."""
        if gathered and not self._failures:
            spans = [self._from_memory(work.span) for work, _ in gathered if work.span is not None]
            at_hand = [values for _, values in gathered]
            try:
                if at_hand[0].is_cuda:
                    kept = self._kept_of(spans, at_hand)
                else:
                    tasks = zip(spans, at_hand, strict=True)
                    kept = list(ordered(self._on_cpu, tasks, jobs=self._jobs, size=lambda task: task[1].numel()))
                return [(work, each) for (work, _), each in zip(gathered, kept, strict=True)]
            except FAILURES as error:
                self._failures.append(error)
        return [(work, self._unchanged(values)) for work, values in gathered]

    def _on_cpu(self, task: tuple[SpanRoute, torch.Tensor]) -> Any:
        span, values = task
        with torch.no_grad():
            return self._kept_of([span], [values])[0]

    def _kept_of(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> Sequence[Any]:
        """What the pass keeps of blocks."""
        return self._blocks(spans, at_hand)

    def _unchanged(self, values: torch.Tensor) -> Any:
        """What it keeps of a block that does not change."""
        return values

    def _finish(self, turn: Sequence[Work], results: Sequence[tuple[Work, Any]]) -> None:
        """Hand out what was kept, and take what others kept for this process."""

    def _own(self, work: Work) -> torch.Tensor:
        return self._memory.of(work.item)[work.slices[self._processes.rank]]

    def _positions(self, work: Work, rank: int) -> slice | torch.Tensor:
        positions: slice | Indexes = self._live[work.item].held.of[rank].positions(work.slices[rank], work.start)
        if isinstance(positions, np.ndarray):
            return torch.from_numpy(positions).to(self._memory.of(work.item).device)
        return positions

    def _from_memory(self, span: SpanRoute) -> SpanRoute:
        """The same, reading what was kept."""

        def kept(payload: Payload | None) -> Payload | None:
            return self._kept.payload(payload) if isinstance(payload, Stored) else None

        return span._replace(steps=tuple(s._replace(coded=kept(s.coded), stored=kept(s.stored)) for s in span.steps))


class _Writing(_Pass):
    """The pass that writes."""

    writes = True

    def _kept_of(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        # Copied on the CPU, because the next call of a thread takes the memory.
        return [each if each.is_cuda else each.clone() for each in self._blocks(spans, at_hand)]

    def _finish(self, turn: Sequence[Work], results: Sequence[tuple[Work, torch.Tensor]]) -> None:
        """Send the results to where they belong, and write this process's part."""
        me = self._processes.rank
        sent, expected = defaultdict[int, list[torch.Tensor]](list), Counter[int]()
        for work, result in results:
            for rank in work.slices:
                part = result[self._positions(work, rank)]
                if rank == me:
                    self._own(work).copy_(part)
                else:
                    sent[rank].append(_bytes(part))
        others = [work for work in turn if work.owner != me]
        for work in others:
            expected[work.owner] += _bytes(self._own(work)).numel()
        received = _Stream(self._processes.exchange(sent, expected))
        for work in others:
            own = self._own(work)
            own.copy_(received.next(work.owner, own.numel(), own))


class _Staging(_Pass):
    """The pass that keeps what changes of what this process holds."""

    def __init__(self, route: Route, live: Sequence[Live], processes: Processes, kept: Kept, jobs: int) -> None:
        super().__init__(route, live, processes, kept, jobs)
        self._changes = Changes(route, most=self._most)
        self.patches: list[Patch] = []

    def _kept_of(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> list[Swaps]:
        return self._changes(spans, at_hand)

    def _unchanged(self, values: torch.Tensor) -> Swaps:
        return swaps_between(values, values)

    def _finish(self, turn: Sequence[Work], results: Sequence[tuple[Work, Swaps]]) -> None:
        """Send the movers to where they belong, first how many, and keep this process's."""
        me = self._processes.rank
        counts, sent = defaultdict[int, list[int]](list), defaultdict[int, list[torch.Tensor]](list)
        for work, movers in results:
            for rank in work.slices:
                own = self._within(work, rank, movers)
                if rank == me:
                    self._keep(work, own)
                else:
                    counts[rank].append(own.at.numel())
                    sent[rank] += map(_bytes, own)
        others = [work for work in turn if work.owner != me]
        numbers = {rank: [torch.tensor(each).view(torch.uint8)] for rank, each in counts.items()}
        told = _Stream(self._processes.exchange(numbers, Counter(work.owner for work in others for _ in range(8))))
        sizes = [int(told.next(work.owner, 1, torch.empty(0, dtype=torch.int64))) for work in others]
        expected = Counter[int]()
        for work, size in zip(others, sizes, strict=True):
            expected[work.owner] += size * (_PLACE.itemsize + 2 * self._memory.of(work.item).element_size())
        received = _Stream(self._processes.exchange(sent, expected))
        for work, size in zip(others, sizes, strict=True):
            flat = self._memory.of(work.item)
            at = received.next(work.owner, size, flat.new_empty(0, dtype=_PLACE))
            self._keep(work, Swaps(at, *(received.next(work.owner, size, flat) for _ in range(2))))

    def _within(self, work: Work, rank: int, movers: Swaps) -> Swaps:
        """The movers among what a process holds of a block; places count from the first that it holds."""
        held, at = self._positions(work, rank), movers.at.long()
        if isinstance(held, slice):
            first, last = torch.searchsorted(at, torch.tensor([held.start, held.stop], device=at.device)).tolist()
            own = slice(first, last)
            return Swaps(movers.at[own] - held.start, movers.before[own], movers.after[own])
        places = torch.searchsorted(held, at).clamp_(max=held.numel() - 1)
        is_own = held[places] == at
        return Swaps(places[is_own].to(_PLACE), movers.before[is_own], movers.after[is_own])

    def _keep(self, work: Work, movers: Swaps) -> None:
        if movers.at.numel():
            start = work.slices[self._processes.rank].start
            self.patches.append(patch_of(self._live[work.item].route.name, self._memory.bits(work.item), start, movers))


class _Stream:
    """Bytes of each process, taken one after another."""

    def __init__(self, received: dict[int, torch.Tensor]) -> None:
        self._received, self._at = received, Counter[int]()

    def next(self, rank: int, count: int, like: torch.Tensor) -> torch.Tensor:
        """The next elements of a process, of the dtype and on the device of another tensor."""
        at, n = self._at[rank], count * like.element_size()
        self._at[rank] += n
        # Copied, because a part of 2-byte elements can begin anywhere between elements of 4 bytes.
        return self._received[rank][at : at + n].clone().to(like.device).view(like.dtype)


class _Memory:
    """What this process holds of each tensor, flattened: the memory itself, or a copy where that has gaps."""

    def __init__(self, live: Sequence[Live]) -> None:
        self._live = live
        self._flat: dict[int, torch.Tensor] = {}
        self._left = Counter[int]()

    def expect(self, works: Sequence[Work]) -> None:
        """Note how often each tensor will be used."""
        self._left.update(work.item for work in works)

    def of(self, item: int) -> torch.Tensor:
        """Integers of the elements' width, one-dimensional."""
        if item not in self._flat:
            self._flat[item] = self.bits(item).contiguous().reshape(-1)
        return self._flat[item]

    def release(self, works: Sequence[Work], *, write: bool) -> None:
        """Give up what is no longer used; write it back first, if it is a copy."""
        for work in works:
            self._left[work.item] -= 1
            if not self._left[work.item]:
                flat, bits = self._flat.pop(work.item), self.bits(work.item)
                if write and not bits.is_contiguous():
                    bits.copy_(flat.reshape(bits.shape))

    def bits(self, item: int) -> torch.Tensor:
        """The bits of a tensor, as they lie in the model."""
        return bits_of(self._live[item].held.local)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


_ELEMENTS_PER_BYTE = 256
"""Elements that take as long to check as a coded byte takes to decode, about."""

_SHARE = 0.5
"""A process that holds this share of the largest share can decode a block."""


class Work(NamedTuple):
    """Elements ``[start, stop)`` of the item-th tensor, and the process that decodes them.

    Attributes:
        slices: what each process holds of it, by rank.
        span: what becomes of it; for its owner alone.
        cost: how long it takes, about.
    """

    item: int
    start: int
    stop: int
    owner: int
    slices: dict[int, slice]
    span: SpanRoute | None
    cost: float


def needs_of(span: SpanRoute) -> Iterator[Stored]:
    """What has to be read for a block."""
    for step in span.steps:
        for payload in (step.coded, step.stored):
            if isinstance(payload, Stored):
                yield payload


def plan(live: Sequence[Live], rank: int) -> dict[tuple[int, ...], list[Work]]:
    """The blocks of the tensors that this process shares, by the processes that share them.

    ``live`` has the same tensors in the same order on all of these.
    """
    blocks = defaultdict[tuple[int, ...], list[Work]](list)
    for number, item in enumerate(live):
        if not item.held.of:  # this process is not in the mesh of that tensor
            continue
        shared_by = tuple(item.held.of)
        for span in item.route.spans():
            slices = dict(pieces(item.held.of, span.start, span.stop))
            coded = sum(need.stop - need.start for need in needs_of(span))
            cost = coded + (span.stop - span.start) / _ELEMENTS_PER_BYTE
            blocks[shared_by].append(Work(number, span.start, span.stop, rank, slices, span, cost))
    # In one order everywhere, so that no process waits for one that waits for it.
    return {shared_by: list(assigned(blocks[shared_by], rank)) for shared_by in sorted(blocks)}


def assigned(blocks: Sequence[Work], rank: int) -> Iterator[Work]:
    """Blocks with their owners.

    The most costly ones first, each for the process with the least to do among those that hold enough of it.
    """
    load, owners = defaultdict[int, float](float), dict[int, int]()
    for number in sorted(range(len(blocks)), key=lambda number: (-blocks[number].cost, number)):
        block = blocks[number]
        sizes = {holder: taken.stop - taken.start for holder, taken in block.slices.items()}
        enough = _SHARE * max(sizes.values())
        owner = min((holder for holder, size in sizes.items() if size >= enough), key=lambda h: (load[h], h))
        load[owner] += block.cost
        owners[number] = owner
    for number, block in enumerate(blocks):
        yield block._replace(owner=owners[number], span=block.span if owners[number] == rank else None)


def rounds(works: Iterable[Work], size: int) -> Iterator[list[Work]]:
    """Blocks that are worked on at once: the next ``size`` of each owner; the same for all who share them."""
    queues = defaultdict[int, list[Work]](list)
    for work in works:
        queues[work.owner].append(work)
    longest = max(map(len, queues.values()), default=0)
    for first in range(0, longest, size):
        yield [work for queue in queues.values() for work in queue[first : first + size]]
