"""A merged model: a checkpoint whose weights are computed when they are read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import require_one_source
from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.code import can_run_code
from maskreg.checkpoint.roles import role_of
from maskreg.closing import Closing
from maskreg.device import Device, open_device
from maskreg.errors import prefixed
from maskreg.flow.merge.knowing import Sweeps
from maskreg.flow.merge.operands import Operands
from maskreg.flow.merge.outline import SOURCE, Fate, fates_of
from maskreg.flow.merge.recipe import Recipe
from maskreg.flow.merge.report import Report, RoleFigures
from maskreg.flow.merge.tiling import Arithmetic
from maskreg.flow.merge.varying import Depths
from maskreg.flow.merge.weights import BlockCounts, MergedWeights
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import TensorInfo
from maskreg.words import counted, listed

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory


@dataclass(frozen=True)
class _Files:
    taken: Mapping[str, bytes]
    left_out: tuple[str, ...]
    code: tuple[str, ...]


class MergedCheckpoint(Closing):
    """A merged model; see :class:`maskreg.checkpoint.base.Checkpoint`. Reading computes, in bounded memory.

    Attributes:
        source: the checkpoint that the artifacts were made from.
        recipe: how they are merged.
        notes: remarks, one sentence each.
    """

    blockwise = True

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        source: Checkpoint,
        recipe: Recipe,
        *,
        mask: Artifact | None = None,
        device: str | Device = "cpu",
        with_code: bool = False,
        progress: Progress = SILENT,
        jobs: int | None = None,
    ) -> None:
        """Verify the source, and sweep over what the method has to know before.

        Args:
            artifacts: with values, of one source.
            source: that checkpoint; stays open until this one is no longer read.
            recipe: how to merge.
            mask: for methods that take one; of the same source.
            device: ``cpu``, ``cuda`` or ``cuda:N``, where blocks are decoded; the result does not depend on it.
            with_code: take along small files that can run code too.
            progress: progress callback, in bytes of a sweep.
            jobs: threads; by default one per CPU, at most 16. The result does not depend on it.

        Raises:
            UsageError: the recipe does not fit the artifacts.
            PairMismatchError: artifacts of different sources, or that do different things to what cannot be merged.
            PartAbsentError: an artifact has no values, or they are not here.
            WrongCheckpointError: ``source`` is another checkpoint.
            DataError: an artifact is damaged.
        """
        recipe.check(len(artifacts), masked=mask is not None)
        every = [*artifacts, *([mask] if mask is not None else [])]
        require_one_source(every, "artifacts", "merge artifacts that were extracted from one source checkpoint")
        recipe.check_filters({*source.tensors, *(row.name for artifact in artifacts for row in artifact.tensors)})
        threads = worker_count(jobs)
        self.source, self.recipe = source, recipe
        self._artifacts = tuple(artifacts)
        operands = Operands(artifacts, source, open_device(device), mask=mask, jobs=threads)
        arithmetic = Arithmetic(recipe, [artifact.digest for artifact in artifacts], Depths(source.tensors))
        self._fates = fates_of(operands.deltas)
        merged = [fate.info for fate in self._fates if fate.merged and fate.info is not None]
        for info in merged:
            with prefixed(f"tensor {info.name}: "):
                arithmetic.here(info.name)
        known = Sweeps(operands, arithmetic, merged, threads, progress).known()
        self._weights = MergedWeights(operands, arithmetic, self._fates, known)
        self._files = _small_files(artifacts, source, with_code)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.format, self.path, self.hub = source.format, source.path, ""
        self.tensors = self._weights.tensors

    @property
    def notes(self) -> tuple[str, ...]:
        """See the class."""
        notes = [
            f"{artifact.digest.short} follows rule {artifact.manifest.rule}, which drops small changes: "
            "what is merged is not all of its target"
            for artifact in self._artifacts
            if not artifact.manifest.exact
        ]
        taken = [fate.name for fate in self._fates if not fate.merged and fate.owner != SOURCE]
        if taken:
            notes.append(f"{counted(len(taken), 'tensor', 'is')} taken from one artifact as a whole: {listed(taken)}")
        if self._files.left_out:
            notes.append(
                f"small files that the artifacts do not agree on stay as in the source: {listed(self._files.left_out)}"
            )
        if self._files.code:
            notes.append(f"left out, because it can run code: {listed(self._files.code)}")
        number = sum(self._weights.counts_of(fate).nonfinite for fate in self._fates)
        if number:
            notes.append(
                f"{counted(number, 'coordinate', 'is')} NaN or infinite in an artifact or the source: "
                "not merged, but taken from the first artifact that changes it"
            )
        return tuple(notes)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process reads weights alone.
        return self._weights.__reduce__()

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor; see :meth:`maskreg.checkpoint.base.Checkpoint.read`."""
        return self._weights.read(name, start, stop, into)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on which blocks of the source are read soon; see :class:`maskreg.checkpoint.base.Expecting`."""
        return self._weights.expect(name, start, stop)

    def place_of(self, name: str, start: int) -> str:
        """The object of an artifact that a block needs; see :class:`maskreg.checkpoint.base.Sharded`."""
        return self._weights.place_of(name, start)

    def counted(self, name: str, start: int, stop: int) -> BlockCounts:
        """What merging did to elements that were read; see :class:`maskreg.checkpoint.base.Counting`."""
        return self._weights.counted(name, start, stop)

    def count(self, counted: BlockCounts) -> None:
        """Take what merging did elsewhere; see :class:`maskreg.checkpoint.base.Counting`."""
        self._weights.count(counted)

    def changes(self) -> Iterator[tuple[str, TensorInfo | None]]:
        """Tensors whose form is not that of the source, by name; None for one that is removed."""
        for name in (name for fate in self._fates for name in fate.group.names):
            before, after = self.source.tensors.get(name), self.tensors.get(name)
            if after is None or before is None or (before.dtype, before.shape) != (after.dtype, after.shape):
                yield name, after

    def report(self) -> Report:
        """What merging does, by role; complete when every tensor has been read."""
        figures: dict[str, RoleFigures] = {}
        for fate in self._fates:
            role = role_of(fate.name)
            empty = RoleFigures(0, (0,) * len(self._artifacts), 0, 0, 0, 0)
            figures[role] = figures.get(role, empty).plus(self._figures(fate))
        return Report(figures)

    def small_files(self) -> Mapping[str, Location]:
        """The source's small files, and those that all artifacts bring alike."""
        if self._files.taken and self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="maskreg-merge-")
            for name, data in self._files.taken.items():
                (Path(self._folder.name) / name).write_bytes(data)
        own = {name: Path(self._folder.name) / name for name in self._files.taken} if self._folder else {}
        return {**self.source.small_files(), **own}

    @property
    def files(self) -> Mapping[str, bytes]:
        """Small files that win over the source's."""
        return self._files.taken

    def other_weights(self) -> tuple[str, ...]:
        """What lies beside the source and is never copied."""
        return self.source.other_weights()

    def close(self) -> None:
        """Remove temporary files; the source stays open."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _figures(self, fate: Fate) -> RoleFigures:
        rows = fate.group.rows
        # A tensor that one artifact adds has no coordinates to compare.
        moved = tuple(row.nnz for row in rows) if len(rows) == len(self._artifacts) else (0,) * len(self._artifacts)
        if fate.merged:
            return RoleFigures(rows[0].numel, moved, *self._weights.counts_of(fate)[:4])
        after = max(moved, default=0)
        return RoleFigures(rows[0].numel, moved, after, 0, 0, after)


def _small_files(artifacts: Sequence[Artifact], source: Checkpoint, with_code: bool) -> _Files:
    brought = [artifact.files() for artifact in artifacts]
    names = sorted({name for files in brought for name in files})
    own = source.small_files()
    taken, code = {}, []
    for name in names:
        versions = {files.get(name) for files in brought}
        data = versions.pop()
        if versions or data is None:
            continue
        if not with_code and can_run_code(name, data, own[name].read_bytes() if name in own else None):
            code.append(name)
        else:
            taken[name] = data
    left_out = tuple(name for name in names if name not in taken and name not in code)
    return _Files(taken, left_out, tuple(code))
