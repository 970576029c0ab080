"""A delta: what an artifact makes of each tensor of a checkpoint, from source to target or back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.codec import Codec
from maskreg.digest import LeafHashes
from maskreg.errors import CorruptError, FormatError, PartAbsentError
from maskreg.parallel import Buffers
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo, blocks_of
from maskreg.tensors.leaves import check_after, leaves_between
from maskreg.update.verified import RecordedSide

Bits = npt.NDArray[Any]
Decode = Callable[[Bits, memoryview, Bits], Bits]


class Payload(Protocol):
    """Bytes of an artifact, read when they are needed."""

    def __call__(self, buffers: Buffers) -> npt.NDArray[np.uint8]:
        """Read and verify them, into a buffer."""


class Change(Enum):
    """What applying does to a tensor."""

    KEEP = "its bytes stay"
    DECODE = "coded blocks turn it into the result"
    REPLACE = "the artifact holds the result's bytes"
    ADD = "the checkpoint at hand lacks it; the artifact holds the result's bytes"
    REMOVE = "the result lacks it"


class Stored(NamedTuple):
    """Bytes ``[start, stop)`` of an array of an artifact, as a :class:`Payload`."""

    artifact: Artifact
    array: str
    start: int
    stop: int

    def __call__(self, buffers: Buffers) -> npt.NDArray[np.uint8]:
        """Read and verify them, into a buffer."""
        data = buffers.bytes("payload", self.stop - self.start)
        self.artifact.read_bytes(self.array, self.start, self.stop, data)
        return data


class SpanDelta(NamedTuple):
    """What becomes of elements ``[start, stop)`` of a tensor; at most one of ``coded`` and ``stored`` is present.

    It holds no payload, so that any thread can read it, and only those spans take memory that are worked on.

    Attributes:
        name: of the tensor.
        start, stop: elements of the result.
        leaves: uint8 ``[k, 16]``, hashes of the result.
        item_bytes: width of an element of the result.
        coded: reads the block that turns the elements at hand into the result.
        stored: reads the bytes of the result itself.
    """

    name: str
    start: int
    stop: int
    leaves: LeafHashes
    item_bytes: int
    coded: Payload | None = None
    stored: Payload | None = None

    def result(self, at_hand: Bits | None, decode: Decode, buffers: Buffers, phase: int = 0) -> Bits:
        """The result's elements, checked; they can lie in the buffers, at an address of this phase.

        ``decode`` is given the elements at hand, a block, and memory for the result.
        The coder turns a wrong context into silent garbage. So the caller checks ``at_hand``, the same elements of the
        checkpoint at hand, before; and this function checks what comes out, after. Stored results need no elements.
        """
        if self.stored is not None:
            values = self.stored(buffers).view(np.dtype(f"<u{self.item_bytes}"))
        else:
            assert at_hand is not None
            if self.coded is None:  # kept: same leaves on both sides
                return at_hand
            into = buffers.array("values", at_hand.size, np.uint16, phase)
            values = decode(at_hand, self.coded(buffers).data, into)
        check_after(self.name, self.start, values, self.leaves)
        return values


@dataclass(frozen=True, eq=False)
class TensorDelta:
    """What becomes of one tensor, by one of its names.

    ``before`` is its form at hand, None when it is added; ``after`` the one in the result, None when it is removed.
    """

    name: str
    row: Tensor
    change: Change
    before: TensorInfo | None
    after: TensorInfo | None
    _delta: Delta = field(repr=False)

    @property
    def recorded_before(self) -> LeafHashes:
        """Leaf hashes of the tensor at hand, uint8 ``[k, 16]``."""
        return self._delta.before.leaves(self.name)

    def spans(self) -> Iterator[SpanDelta]:
        """What becomes of each block, in order; of the payload only leaves are read. None for a removed tensor."""
        for number, _ in enumerate(blocks_of(self.after.numel) if self.after is not None else ()):
            yield self.span(number)

    def span(self, number: int) -> SpanDelta:
        """What becomes of a block of a tensor that the result has; of the payload only leaves are read."""
        assert self.after is not None
        leaves = self._delta.after.leaves(self.name)
        if self.change is Change.KEEP and not np.array_equal(leaves, self._delta.before.leaves(self.name)):
            raise CorruptError(f"tensor {self.name}", "recorded as unchanged, but its leaves differ")
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, self.after.numel)
        width, artifact, coded, stored = self.after.item_bytes, self._delta.artifact, None, None
        if self.change is Change.DECODE:
            part = self._delta.part
            coded = Stored(artifact, part, *artifact.block_span(part, self.row.first_block + number))
        elif self.change is not Change.KEEP:
            array, first = ("whole", self.row.whole_offset)
            if self._delta.revert:
                array, first = ("reverse_whole", self.row.reverse_whole_offset)
            stored = Stored(artifact, array, first + start * width, first + stop * width)
        return SpanDelta(self.name, start, stop, leaves_between(leaves, start, stop), width, coded, stored)


class Delta(dict[str, TensorDelta]):
    """An artifact's change by tensor name, tied names included, in the order of the tensor table.

    Values know their form and what happens; payload is read only by :meth:`TensorDelta.spans`. ``part`` is ``delta`` or
    ``reverse``; ``before`` is the side that it applies to, ``after`` the one that it gives.
    """

    def __init__(self, artifact: Artifact, *, revert: bool = False) -> None:
        """Work out what becomes of each tensor."""
        self.artifact = artifact
        self.revert = revert
        self.part = "reverse" if revert else "delta"
        if artifact.manifest.kind == "analysis":
            raise PartAbsentError(
                f"artifact {artifact.digest.short} is an analysis: it holds figures, and no values to apply",
                hint="apply the artifact that was analyzed",
            )
        if artifact.manifest.kind != "delta":
            again = {"hint": "extract it again with its values", "absent": "delta", "artifact": artifact.digest}
            raise PartAbsentError(
                f"artifact {artifact.digest.short} is a {artifact.manifest.kind}: it holds which coordinates move, "
                "but no values to apply",
                **({} if artifact.manifest.kind == "baseline" else again),
            )
        artifact.require(self.part)
        source, target = RecordedSide(artifact, "source"), RecordedSide(artifact, "target")
        self.before, self.after = (target, source) if revert else (source, target)
        super().__init__((name, self._tensor(name, row)) for name, row in artifact.by_name.items())

    @property
    def codec(self) -> Codec:
        """Decodes the blocks."""
        return self.artifact.codec(self.part)

    def _tensor(self, name: str, row: Tensor) -> TensorDelta:
        before, after = self.before.tensors.get(name), self.after.tensors.get(name)
        return TensorDelta(name, row, self._change(row, before, after), before, after, self)

    def _change(self, row: Tensor, before: TensorInfo | None, after: TensorInfo | None) -> Change:
        stored = row.reverse_whole_bytes if self.revert else row.whole_bytes
        if after is None:
            return Change.REMOVE
        if before != after or stored:
            if stored != after.nbytes:
                raise FormatError(f"tensors.json: {row.name}: {stored} of {after.nbytes} bytes are stored")
            return Change.ADD if before is None else Change.REPLACE
        if row.source_fingerprint == row.target_fingerprint:
            return Change.KEEP
        if not row.blocks or after.item_bytes != 2:
            raise FormatError(f"tensors.json: {row.name}: it changes, but its values are not stored")
        return Change.DECODE
