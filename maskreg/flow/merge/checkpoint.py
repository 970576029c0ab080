"""A merged model: a checkpoint whose weights are computed when they are read, and what merging did to them.

It is stored as an artifact, written as a checkpoint in one pass, or only computed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import require_one_source
from maskreg.bucket import Location
from maskreg.checkpoint import role_of
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.files import can_run_code
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import copy_tensors, write_checkpoint
from maskreg.device import Device, open_device
from maskreg.digest import Digest
from maskreg.flow.apply.on_disk import Written, written_by
from maskreg.flow.extract.extraction import ExtractResult, Provenance, extract
from maskreg.flow.merge.inputs import SOURCE, Inputs, Outcome, Span, outcomes_of
from maskreg.flow.merge.methods.base import Known
from maskreg.flow.merge.recipe import Recipe
from maskreg.flow.merge.sweeps import MODEL, Sweeps
from maskreg.flow.merge.tiles import Counts, SpanMerger
from maskreg.flow.storing import from_blocks
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo, blocks_of
from maskreg.words import counted, listed


@dataclass(frozen=True)
class RoleFigures:
    """Coordinates of one role: all, moved in each artifact, in any, in several, and in the result.

    Disagreements moved up in one artifact and down in another.
    """

    numel: int
    before: tuple[int, ...]
    union: int
    conflicts: int
    disagreements: int
    after: int

    def __add__(self, more: RoleFigures) -> RoleFigures:
        before = tuple(map(add, self.before, more.before))
        return RoleFigures(**{**{key: value + vars(more)[key] for key, value in vars(self).items()}, "before": before})

    def to_json(self) -> dict[str, Any]:
        """Counts and densities."""
        share = self.numel or 1
        densities = {"density_before": [count / share for count in self.before], "density_after": self.after / share}
        return {**vars(self), "before": list(self.before), **densities}


@dataclass(frozen=True)
class Report:
    """What a merge did, by role."""

    roles: Mapping[str, RoleFigures]

    @property
    def whole(self) -> RoleFigures:
        """Over all roles."""
        return reduce(add, self.roles.values())

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        roles = {role: figures.to_json() for role, figures in self.roles.items()}
        return {"whole": self.whole.to_json(), "roles": roles}


class MergedCheckpoint(Checkpoint):
    """A merged model. Reading computes, in bounded memory, on any thread.

    ``files`` are small files that win over the source's.
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

        The source stays open until this one is no longer read. The result depends neither on the device, where blocks
        are decoded, nor on threads. ``with_code`` takes along small files that can run code too.
        """
        recipe.check(len(artifacts), masked=mask is not None)
        every = [*artifacts, *([mask] if mask is not None else [])]
        require_one_source(every, "artifacts", "merge artifacts that were extracted from one source checkpoint")
        threads = worker_count(jobs)
        self.source, self.recipe = source, recipe
        self._artifacts = tuple(artifacts)
        self.inputs = Inputs(artifacts, source, open_device(device), mask=mask, jobs=threads)
        self.outcomes = outcomes_of(self.inputs.deltas)
        self._merger = SpanMerger(recipe, [artifact.digest for artifact in artifacts])
        merged = [outcome.info for outcome in self.outcomes if outcome.merged and outcome.info is not None]
        self._known = Sweeps(self.inputs, self._merger, merged, threads, progress).known()
        self._by_name = {name: outcome for outcome in self.outcomes for name in outcome.group.names}
        self._counts: dict[tuple[str, int], Counts] = {}
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(name, outcome.info.dtype, outcome.info.shape)
            # In the order of the source, and then what artifacts add.
            for name in {**source.tensors, **self._by_name}
            if (outcome := self._by_name[name]).info is not None
        }
        self.files, self._left_out, self._code = _small_files(artifacts, source, with_code)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.format, self.path, self.hub = source.format, source.path, ""

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        return from_blocks(self.tensors[name], start, stop, into, partial(self._block, self._by_name[name]))

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on which blocks of the source are read soon."""
        if name not in self.tensors:
            return 0
        outcome = self._by_name[name]
        if not outcome.merged:
            return self.inputs.expect(name, start, stop)
        return sum(self.inputs.expect(name, *self._rows_around(outcome, block)) for block in _blocks(start, stop))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks, one sentence each."""
        notes = [
            f"{artifact.digest.short} follows rule {artifact.manifest.rule}, which drops small changes: "
            "what is merged is not all of its target"
            for artifact in self._artifacts
            if not artifact.manifest.exact
        ]
        taken = [outcome.name for outcome in self.outcomes if not outcome.merged and outcome.owner != SOURCE]
        if taken:
            notes.append(f"{counted(len(taken), 'tensor', 'is')} taken from one artifact as a whole: {listed(taken)}")
        if self._left_out:
            notes.append(
                f"small files that the artifacts do not agree on stay as in the source: {listed(self._left_out)}"
            )
        if self._code:
            notes.append(f"left out, because it can run code: {listed(self._code)}")
        number = sum(self.counts_of(outcome).nonfinite for outcome in self.outcomes)
        if number:
            notes.append(
                f"{counted(number, 'coordinate', 'is')} NaN or infinite in an artifact or the source: "
                "not merged, but taken from the first artifact that changes it"
            )
        return tuple(notes)

    def changes(self) -> Iterator[tuple[str, TensorInfo | None]]:
        """Tensors whose form is not the source's, by name; None for one that is removed."""
        for name in (name for outcome in self.outcomes for name in outcome.group.names):
            before, after = self.source.tensors.get(name), self.tensors.get(name)
            if after is None or before is None or (before.dtype, before.shape) != (after.dtype, after.shape):
                yield name, after

    def report(self) -> Report:
        """What merging does, by role; complete when every tensor has been read."""
        figures: dict[str, RoleFigures] = {}
        for outcome in self.outcomes:
            role = role_of(outcome.name)
            empty = RoleFigures(0, (0,) * len(self._artifacts), 0, 0, 0, 0)
            figures[role] = figures.get(role, empty) + self._figures(outcome)
        return Report(figures)

    def small_files(self) -> Mapping[str, Location]:
        """The source's small files, and those that all artifacts bring alike."""
        if self.files and self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="maskreg-merge-")
            for name, data in self.files.items():
                (Path(self._folder.name) / name).write_bytes(data)
        own = {name: Path(self._folder.name) / name for name in self.files} if self._folder else {}
        return {**self.source.small_files(), **own}

    def other_weights(self) -> tuple[str, ...]:
        """What lies beside the source and is never copied."""
        return self.source.other_weights()

    def close(self) -> None:
        """Remove temporary files; the source stays open."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def counts_of(self, outcome: Outcome) -> Counts:
        """The sum over the blocks of a tensor that were read."""
        total = Counts()
        for number in _blocks(0, outcome.group.rows[0].numel):
            total = total.plus(self._counts.get((outcome.name, number), Counts()))
        return total

    def _block(self, outcome: Outcome, number: int) -> npt.NDArray[Any]:
        if outcome.info is None or not outcome.merged:
            # Unchanged everywhere: any artifact gives the source's values, checked.
            return self.inputs.taken(max(outcome.owner, 0), outcome.name, number)
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, outcome.info.numel)
        first, last = self._rows_around(outcome, number)
        bits = self.inputs.bits(Span(outcome.info, first, last))
        known = self._known.get(MODEL) or self._known.get(outcome.name) or Known()
        merged, counts = self._merger.merged(outcome.info, first, bits, known)
        # A block can be read several times; what is counted stays the same.
        self._counts[outcome.name, number] = counts
        return merged[start - first : stop - first]

    def _rows_around(self, outcome: Outcome, number: int) -> tuple[int, int]:
        """The elements of a block, or for methods by row all rows that it has a part of."""
        row = outcome.group.rows[0]
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, row.numel)
        if length := self._merger.rows(row.source_shape or ()):
            return start // length * length, -(-stop // length) * length
        return start, stop

    def _figures(self, outcome: Outcome) -> RoleFigures:
        rows = outcome.group.rows
        # A tensor that one artifact adds has no coordinates to compare.
        moved = tuple(row.nnz for row in rows) if len(rows) == len(self._artifacts) else (0,) * len(self._artifacts)
        if outcome.merged:
            return RoleFigures(rows[0].numel, moved, *self.counts_of(outcome)[:4])
        after = max(moved, default=0)
        return RoleFigures(rows[0].numel, moved, after, 0, 0, after)


def _small_files(
    artifacts: Sequence[Artifact], source: Checkpoint, with_code: bool
) -> tuple[dict[str, bytes], list[str], list[str]]:
    """What all artifacts bring alike, what they do not agree on, and what is left out because it can run code."""
    brought = [artifact.files() for artifact in artifacts]
    names = sorted({name for files in brought for name in files})
    own = source.small_files()
    taken, code = {}, []
    for name in names:
        versions = {files.get(name) for files in brought}
        data = versions.pop()
        # Another version, or an artifact without the file.
        if versions or data is None:
            continue
        if not with_code and can_run_code(name, data, own[name].read_bytes() if name in own else None):
            code.append(name)
        else:
            taken[name] = data
    return taken, [name for name in names if name not in taken and name not in code], code


def _blocks(start: int, stop: int) -> range:
    return range(start // BLOCK_NUMEL, -(-stop // BLOCK_NUMEL))


def store(
    merged: MergedCheckpoint,
    root: Path,
    parents: tuple[Digest, ...],
    *,
    device: str = "cpu",
    with_code: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ExtractResult:
    """Extract the update from the source to the merged model; its lineage are ``parents`` and the recipe."""
    return extract(
        merged.source,
        merged,
        root,
        allow_mismatch=any(True for _ in merged.changes()),
        with_code=with_code,
        device=device,
        provenance=Provenance(parents, merged.recipe.to_json()),
        progress=progress,
        jobs=jobs,
    )


def write(
    merged: MergedCheckpoint,
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Written:
    """Write the merged model as a checkpoint with the source's layout.

    ``force`` replaces files of an earlier output that are written again; others in its folder stay.
    """
    changes, known = dict(merged.changes()), merged.source.tensors
    plan = plan_like(
        merged.source,
        replace={name: info for name, info in changes.items() if info is not None and name in known},
        remove=[name for name, info in changes.items() if info is None],
        add=[info for name, info in changes.items() if info is not None and name not in known],
        files=merged.files,
    )
    progress.start("merge", plan.total_bytes)
    with write_checkpoint(Path(out), plan, force=force) as writer:
        copy_tensors(merged, plan, writer, progress=progress, jobs=jobs)
    return written_by(writer, plan, merged)


def compute(merged: MergedCheckpoint, *, progress: Progress = SILENT) -> None:
    """Compute all of the merged model, and write nothing; its report is complete afterwards."""
    buffers = Buffers()

    def work(block: tuple[str, int, int]) -> int:
        name, start, stop = block
        size = (stop - start) * merged.tensors[name].item_bytes
        merged.read(name, start, stop, buffers.bytes("merged", size))
        return size

    progress.start("merge", sum(info.nbytes for info in merged.tensors.values()))
    every = ((name, *span) for name, info in merged.tensors.items() for span in blocks_of(info.numel))
    blocks = ahead(every, lambda block: block, merged)
    with closing(ordered(work, blocks, jobs=worker_count(None), size=lambda block: block[2] - block[1])) as sizes:
        for size in sizes:
            progress.advance(size)
