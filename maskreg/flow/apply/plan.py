"""Which process decodes which block of a sharded model: one that holds of it, so that all have the same work.

A block is decoded by one of the processes that hold its coordinates, and those that it lacks are sent to it::

    [6, 4] over 3 processes, Shard(0), in blocks of 8       process 0 holds a, 1 holds b, 2 holds c
    aaaaaaaa  bbbbbbbb  cccccccc                            nothing is sent
    [6, 4] in blocks of 16
    aaaaaaaabbbbbbbb  cccccccc                              process 0 or 1 decodes the first, with 8 of the other's

All processes that share a tensor make the same plan, so nothing has to be said about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from maskreg.flow.apply.matching import Live
from maskreg.live.held import pieces
from maskreg.update.delta import Stored
from maskreg.update.route import SpanRoute

_ELEMENTS_PER_BYTE = 256
"""Elements that take as long to check as a coded byte takes to decode, about."""

_SHARE = 0.5
"""A process that holds this share of what the one with most holds may decode a block."""


class Work(NamedTuple):
    """A block, and who decodes it.

    Attributes:
        item: the tensor, by its number in the list of all.
        start, stop: elements.
        owner: the process that decodes it.
        slices: what each process holds of it, by rank.
        span: what becomes of it; for its owner alone.
    """

    item: int
    start: int
    stop: int
    owner: int
    slices: dict[int, slice]
    span: SpanRoute | None


class _Block(NamedTuple):
    item: int
    span: SpanRoute
    slices: dict[int, slice]
    cost: float


def needs_of(span: SpanRoute) -> Iterator[Stored]:
    """What has to be read for a block."""
    for step in span.steps:
        for payload in (step.coded, step.stored):
            if isinstance(payload, Stored):
                yield payload


def plan(live: Sequence[Live], rank: int) -> dict[tuple[int, ...], list[Work]]:
    """The blocks of the tensors that this process shares, by the processes that share them.

    Args:
        live: the same tensors in the same order on all processes that share them.
        rank: this process.

    Raises:
        CorruptError: an artifact is damaged.
    """
    blocks: dict[tuple[int, ...], list[_Block]] = {}
    for number, item in enumerate(live):
        if not item.held.of:  # this process is not in the mesh of that tensor
            continue
        shared_by = tuple(item.held.of)
        for span in item.route.spans():
            slices = dict(pieces(item.held, span.start, span.stop))
            cost = (
                sum(need.stop - need.start for need in needs_of(span)) + (span.stop - span.start) / _ELEMENTS_PER_BYTE
            )
            blocks.setdefault(shared_by, []).append(_Block(number, span, slices, cost))
    # In one order everywhere, so that no process waits for one that waits for it.
    return {shared_by: list(_assigned(blocks[shared_by], rank)) for shared_by in sorted(blocks)}


def _assigned(blocks: Sequence[_Block], rank: int) -> Iterator[Work]:
    """The most costly blocks first, each for the process with the least to do among those that hold enough of it."""
    load: dict[int, float] = {}
    owners: dict[int, int] = {}
    for number in sorted(range(len(blocks)), key=lambda number: (-blocks[number].cost, number)):
        block = blocks[number]
        sizes = {holder: taken.stop - taken.start for holder, taken in block.slices.items()}
        enough = _SHARE * max(sizes.values())
        owner = min((holder for holder, size in sizes.items() if size >= enough), key=lambda h: (load.get(h, 0), h))
        load[owner] = load.get(owner, 0) + block.cost
        owners[number] = owner
    for number, block in enumerate(blocks):
        span = block.span if owners[number] == rank else None
        yield Work(block.item, block.span.start, block.span.stop, owners[number], block.slices, span)


def rounds(works: Iterable[Work], size: int) -> Iterator[list[Work]]:
    """Blocks that are worked on at once: the next ``size`` of each owner; the same for all who share them."""
    queues: dict[int, list[Work]] = {}
    for work in works:
        queues.setdefault(work.owner, []).append(work)
    longest = max(map(len, queues.values()), default=0)
    for first in range(0, longest, size):
        yield [work for queue in queues.values() for work in queue[first : first + size]]
