"""What is merged: what becomes of every tensor, and the bits of the source and of every target, every leaf checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Group, groups_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import Device
from maskreg.errors import PairMismatchError
from maskreg.flow.merge.methods.arithmetic import Bits, replace
from maskreg.mask import unpack
from maskreg.parallel import Buffers
from maskreg.tensors.info import BLOCK_NUMEL, FLOAT, TensorInfo
from maskreg.update.delta import Change, Delta, TensorDelta
from maskreg.update.verified import VerifiedSource

SOURCE = -1
"""In place of an artifact's index: the tensor is as in the source."""


class Outcome(NamedTuple):
    """What becomes of a tensor.

    Attributes:
        group: its names and its row in each artifact.
        info: its form in the result; None when it is removed.
        merged: values of all artifacts are merged.
        owner: otherwise, the artifact that it is taken from, or :data:`SOURCE`.
    """

    group: Group
    info: TensorInfo | None
    merged: bool
    owner: int = SOURCE

    @property
    def name(self) -> str:
        """The first name."""
        return self.group.names[0]


def outcomes_of(deltas: Sequence[Delta]) -> list[Outcome]:
    """Decide for every tensor, in the order of the source, then for those that artifacts add.

    Values are merged where all artifacts keep the form and it is one of numbers. Any other tensor can be changed by one
    artifact, or by several in the same way; anything else is refused.
    """
    outcomes = []
    for group in groups_of([delta.artifact for delta in deltas]):
        tensors = [delta[group.names[0]] for delta in deltas]
        form = tensors[0].before
        if all(tensor.change is Change.KEEP for tensor in tensors):
            outcomes.append(Outcome(group, form, merged=False))
        elif form is not None and form.dtype in FLOAT and form.numel and all(t.after == form for t in tensors):
            outcomes.append(Outcome(group, form, merged=True))
        else:
            outcomes.append(_taken(group, tensors, deltas))
    return [*outcomes, *_added(deltas)]


def _added(deltas: Sequence[Delta]) -> Iterator[Outcome]:
    names = dict.fromkeys(name for delta in deltas for name, t in delta.items() if t.before is None)
    for name in names:
        having = [delta for delta in deltas if name in delta]
        group = Group((name,), tuple(delta[name].row for delta in having))
        outcome = _taken(group, [delta[name] for delta in having], having)
        yield outcome._replace(owner=deltas.index(having[outcome.owner]))


def _taken(group: Group, tensors: Sequence[TensorDelta], deltas: Sequence[Delta]) -> Outcome:
    changing = [index for index, tensor in enumerate(tensors) if tensor.change is not Change.KEEP]
    first = changing[0]
    for index in changing[1:]:
        if _result(tensors[index]) != _result(tensors[first]):
            names = [deltas[n].artifact.digest.short for n in (first, index)]
            raise PairMismatchError(
                f"{group.names[0]}: {names[0]} makes it {_form(tensors[first])}, {names[1]} makes it "
                f"{_form(tensors[index])}; only numbers of one form can be merged",
                (group.names[0],),
                hint="merge artifacts of which only one changes that tensor's form",
            )
    return Outcome(group, tensors[first].after, merged=False, owner=first)


def _result(tensor: TensorDelta) -> tuple[TensorInfo | None, str]:
    return tensor.after, tensor.row.target_fingerprint


def _form(tensor: TensorDelta) -> str:
    after = tensor.after
    return "absent" if after is None else f"{after.dtype} {list(after.shape)} of other values"


class Span(NamedTuple):
    """Elements ``[start, stop)`` of a tensor: a block, or for methods by row all rows that a block has a part of."""

    tensor: TensorInfo
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Of the tensor."""
        return self.tensor.name


class SpanBits(NamedTuple):
    """The same elements on every side, as stored: unsigned integers of the dtype's width."""

    source: Bits
    targets: Sequence[Bits]


class Inputs:
    """The source and the artifacts. Safe to use from several threads, each of which reads into memory of its own.

    Outside ``mask``, targets are the source.
    """

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        source: Checkpoint,
        device: Device,
        *,
        mask: Artifact | None = None,
        jobs: int = 1,
    ) -> None:
        """Check that every artifact has values, and that the checkpoint is their source."""
        self.artifacts = tuple(artifacts)
        self.deltas = [Delta(artifact) for artifact in artifacts]
        self.source = VerifiedSource(artifacts[0], source, jobs=jobs)
        self.mask = mask
        if mask is not None:
            mask.require("mask")
        self._device = device
        self._buffers = [Buffers() for _ in range(len(artifacts) + 1)]

    def bits(self, span: Span) -> SpanBits:
        """All sides of a span; valid until the thread's next call."""
        first, last = span.start // BLOCK_NUMEL, max(span.start, span.stop - 1) // BLOCK_NUMEL
        # For methods that do not go by row: the decoded block itself, without a copy.
        if first == last and span.start == first * BLOCK_NUMEL:
            block, count = self._block(span.name, first), span.stop - span.start
            return SpanBits(block.source[:count], [side[:count] for side in block.targets])
        # Rows reach into neighboring blocks: those parts are copied out of each block before the next is decoded.
        parts = []
        for number in range(first, last + 1):
            block, offset = self._block(span.name, number), number * BLOCK_NUMEL
            own = slice(max(0, span.start - offset), span.stop - offset)
            parts.append([side[own].copy() for side in (block.source, *block.targets)])
        source, *targets = (np.concatenate(sides) for sides in zip(*parts, strict=True))
        return SpanBits(source, targets)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce reads of the blocks that these elements lie in; returns bytes on their way."""
        first, last = start // BLOCK_NUMEL * BLOCK_NUMEL, -(-stop // BLOCK_NUMEL) * BLOCK_NUMEL
        spans = ((at, at + BLOCK_NUMEL) for at in range(first, last, BLOCK_NUMEL))
        return sum(self.source.checkpoint.expect(name, *span) for span in spans)

    def taken(self, index: int, name: str, number: int) -> Bits:
        """A block of a tensor as one artifact has it, in memory of its own."""
        tensor = self.deltas[index][name]
        source = self._source(name, number) if tensor.change in (Change.KEEP, Change.DECODE) else None
        return self._target(index, name, number, source).copy()

    def _block(self, name: str, number: int) -> SpanBits:
        source = self._source(name, number)
        targets = [self._target(index, name, number, source) for index in range(len(self.deltas))]
        if self.mask is not None:
            row, start = self.mask.by_name[name], number * BLOCK_NUMEL
            bits = self.mask.mask_bits(row, start, start + source.size) if row.numel else np.zeros(0, np.uint8)
            inside = unpack(bits, source.size) if row.numel else np.zeros(source.size, np.bool_)
            targets = [target.copy() for target in targets]
            for target in targets:
                replace(target, source, ~inside)
        return SpanBits(source, targets)

    def _source(self, name: str, number: int) -> Bits:
        info = self.source.recorded.tensors[name]
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, info.numel)
        into = self._buffers[-1].bytes("source", (stop - start) * info.item_bytes)
        return self.source.read(name, start, stop, into)

    def _target(self, index: int, name: str, number: int, source: Bits | None) -> Bits:
        # Memory by artifact: what one has decoded stays while the next one decodes.
        buffers, delta = self._buffers[index], self.deltas[index]
        return delta[name].span(number).result(source, partial(self._device.decode, delta.codec), buffers)
