"""The checkpoint that several links give one after another, computed span by span as it is read.

A block goes through all links before the next one is read, so nothing that lies between is ever written::

    read -> leaves right? -> decode link 1 -> leaves right? -> decode link 2 -> leaves right? -> the result

The first check is against what link 1 records of its source. Where two links meet, the roots are equal, so the check
after the one is the check before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.artifact.layout import FILES, REVERSE_FILES, artifact_prefix
from maskreg.artifact.manifest import Link
from maskreg.artifact.reader import Artifact
from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.companions import can_run_code
from maskreg.device import Device, open_device
from maskreg.errors import UsageError
from maskreg.parallel import Buffers, worker_count
from maskreg.store import FileStore
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo
from maskreg.update.delta import Delta, SpanDelta
from maskreg.update.verified import VerifiedSource

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory

    Bits = npt.NDArray[Any]

_TENSORS = 64
"""Tensors whose spans are kept at hand; work goes through them in order."""

_REMOVED = Path()


class Chained(Checkpoint):
    """What links make of a checkpoint. Safe to read from several threads; closing it leaves the checkpoint open."""

    blockwise = True

    def __init__(
        self,
        source: Checkpoint,
        artifacts: Sequence[tuple[Artifact, bool]],
        *,
        with_code: bool = False,
        device: str | Device = "cpu",
        jobs: int | None = None,
    ) -> None:
        """Check that the links follow one another, and that the checkpoint is what the first applies to.

        Args:
            source: what the first link applies to.
            artifacts: the links in order, at least one, each with whether it is reverted.
            with_code: also their small files that can run code.
            device: where blocks are decoded.
            jobs: threads for the first check.

        Raises:
            BrokenChainError: two links do not follow one another.
            WrongCheckpointError: another checkpoint.
            PartAbsentError: the values of a link are not in the local registry.
            UsageError: a link adds, removes or reshapes a tensor.
        """
        self._deltas = [Delta(artifact, revert=revert) for artifact, revert in artifacts]
        _check_order(self._deltas)
        first = self._deltas[0]
        self._source = VerifiedSource(first.artifact, source, side=first.before.name, jobs=worker_count(jobs))
        self._device = open_device(device)
        self._buffers = Buffers(), Buffers()
        self._with_code = with_code
        last = self._deltas[-1].after.tensors
        self.format, self.path, self.hub = source.format, source.path, ""
        self.tensors: Mapping[str, TensorInfo] = {name: last[name] for name in source.tensors}
        self._spans = lru_cache(_TENSORS)(self._spans_of)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> Bits:
        """Elements of a tensor; every block that they lie in is checked and decoded whole."""
        info = self.tensors[name]
        if not 0 <= start <= stop <= info.numel:
            raise ValueError(f"{name}: elements {start} to {stop} of {info.numel}")
        dtype = np.dtype(f"<u{info.item_bytes}")
        result = np.empty(stop - start, dtype) if into is None else into.view(dtype)
        for number in range(start // BLOCK_NUMEL, -(-stop // BLOCK_NUMEL)):
            first = number * BLOCK_NUMEL
            values = self._block(name, number)
            low, high = max(start, first), min(stop, first + values.size)
            result[low - start : high - start] = values[low - first : high - first]
        return result

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on what is read soon."""
        return self._source.checkpoint.expect(name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """The source's small files, and over them those of the links, as they lie in the registry."""
        return {name: path for name, path in self._files.items() if path != _REMOVED}

    @cached_property
    def _files(self) -> Mapping[str, Location]:
        files = dict(self._source.checkpoint.small_files())
        for delta in self._deltas:
            brought = delta.artifact.files(delta.part)
            if delta.revert:
                files.update(dict.fromkeys(delta.artifact.files("delta").keys() - brought.keys(), _REMOVED))
            for name, data in brought.items():
                known = files[name].read_bytes() if files.get(name, _REMOVED) != _REMOVED else None
                if self._with_code or not can_run_code(name, data, known):
                    files[name] = _path(delta, name)
        return files

    def other_weights(self) -> tuple[str, ...]:
        """Those beside the source."""
        return self._source.checkpoint.other_weights()

    def close(self) -> None:
        """Nothing: the source belongs to whoever opened it."""

    def _block(self, name: str, number: int) -> Bits:
        spans = self._spans(name)
        start, stop = spans[0][number].start, spans[0][number].stop
        size = (stop - start) * self._source.recorded.tensors[name].item_bytes
        values = self._source.read(name, start, stop, self._buffers[1].bytes("source", size))
        for turn, (delta, levels) in enumerate(zip(self._deltas, spans, strict=True)):
            # In turns, since what is decoded must not lie over what it is decoded from.
            decode = partial(self._decode, delta, self._buffers[turn % 2])
            values = levels[number].result(values, decode, self._buffers[turn % 2])
        return values

    def _decode(self, delta: Delta, buffers: Buffers, context: Bits, block: memoryview) -> Bits:
        into = buffers.array("values", context.size, np.uint16)
        return self._device.decode(delta.codec, context, block, into)

    def _spans_of(self, name: str) -> list[list[SpanDelta]]:
        return [list(delta[name].spans()) for delta in self._deltas]


def _check_order(deltas: Sequence[Delta]) -> None:
    for delta in deltas:
        for tensor in delta.values():
            if tensor.before != tensor.after:
                raise UsageError(
                    f"link {delta.artifact.digest.short} adds, removes or reshapes {tensor.name}, which a chain cannot",
                    hint="begin a new chain from the new checkpoint",
                )
    for lower, upper in pairwise(deltas):
        if _root(lower, "after") != _root(upper, "before"):
            Link(upper.artifact.digest, upper.artifact.manifest).check_on(
                Link(lower.artifact.digest, lower.artifact.manifest)
            )


def _root(delta: Delta, side: str) -> str:
    name = delta.after.name if side == "after" else delta.before.name
    manifest = delta.artifact.manifest
    return (manifest.target if name == "target" else manifest.source).root


def _path(delta: Delta, name: str) -> Path:
    artifact = delta.artifact
    assert isinstance(artifact.store, FileStore)  # links are brought into the local registry before they are used
    prefix = REVERSE_FILES if delta.revert else FILES
    return artifact.store.path(artifact_prefix(artifact.digest) + prefix + name)
