"""Merging: the merged model as an artifact, or as a checkpoint, in one pass; or only computed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from maskreg.bucket import Location, located
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.writing import copy_tensors, write_checkpoint
from maskreg.digest import Digest
from maskreg.engine import LARGE_BATCH_NUMEL, ordered
from maskreg.flow.extract.extraction import ExtractResult, extract
from maskreg.flow.merge.checkpoint import BlockCounts, MergedCheckpoint
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.result import Result
from maskreg.tensors.info import blocks_of, numel_of


@dataclass(frozen=True)
class Written(Result):
    """A merged checkpoint on disk.

    Attributes:
        out: the checkpoint.
        tensors: how many it has.
        bytes: size of its files.
        skipped_files: weight files and folders beside the source that were not copied.
        kept_files: files that were in the output's folder, and that ``force`` left there.
    """

    out: Location
    tensors: int
    bytes: int
    skipped_files: tuple[str, ...]
    kept_files: tuple[str, ...]


class _Block(NamedTuple):
    name: str
    start: int
    stop: int


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
    """Extract the update from the source to the merged model; its lineage are the artifacts and the recipe.

    Args:
        merged: the merged model.
        root: folder of the registry's file store.
        parents: digests of the artifacts, in order.
        device: where codes are compared.
        with_code: take along small files that can run code too.
        progress: progress callback, in bytes of both sides.
        jobs: threads.
    """
    return extract(
        merged.source,
        merged,
        root,
        allow_mismatch=any(True for _ in merged.changes()),
        with_code=with_code,
        device=device,
        parents=parents,
        recipe=merged.recipe.to_json(),
        progress=progress,
        jobs=jobs,
    )


def write(
    merged: MergedCheckpoint,
    out: str | Location,
    *,
    force: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Written:
    """Write the merged model as a checkpoint with the source's layout.

    Args:
        merged: the merged model.
        out: path of the new checkpoint.
        force: replace files of an earlier output that are written again; others in its folder stay.
        progress: progress callback, in bytes of the result.
        jobs: threads; by default one per CPU, at most 16.
    """
    plan = _plan(merged)
    progress.start("merge", plan.total_bytes)
    with write_checkpoint(located(out), plan, force=force) as writer:
        copy_tensors(merged, plan, writer, progress=progress, jobs=jobs)
    return Written(
        out=writer.out,
        tensors=sum(1 for _ in plan.tensors),
        bytes=plan.total_bytes,
        skipped_files=(*merged.other_weights(), *writer.skipped_files),
        kept_files=writer.kept_files,
    )


def compute(merged: MergedCheckpoint, *, progress: Progress = SILENT, jobs: int | None = None) -> None:
    """Compute all of the merged model, and write nothing; its report is complete afterwards."""
    progress.start("merge", sum(info.nbytes for info in merged.tensors.values()))
    work = _Computing(merged)
    every = (_Block(name, *span) for name, info in merged.tensors.items() for span in blocks_of(info.numel))
    blocks = ahead(every, lambda block: (block.name, block.start, block.stop), merged)
    with closing(
        ordered(work, blocks, jobs=worker_count(jobs), size=numel_of, near=work.near, together=LARGE_BATCH_NUMEL)
    ) as results:
        for size, counted in results:
            merged.count(counted)
            progress.advance(size)


@dataclass(frozen=True)
class _Computing:
    """Computes a block and forgets it; returns its bytes, and what merging did to it."""

    merged: MergedCheckpoint
    _buffers: Buffers = field(default_factory=Buffers)

    def __call__(self, block: _Block) -> tuple[int, BlockCounts]:
        size = numel_of(block) * self.merged.tensors[block.name].item_bytes
        self.merged.read(block.name, block.start, block.stop, self._buffers.bytes("merged", size))
        return size, self.merged.counted(block.name, block.start, block.stop)

    def near(self, block: _Block) -> str:
        """The object of an artifact that a block needs."""
        return self.merged.place_of(block.name, block.start)


def _plan(merged: MergedCheckpoint) -> OutputPlan:
    changes = dict(merged.changes())
    known = merged.source.tensors
    return plan_like(
        merged.source,
        replace={name: info for name, info in changes.items() if info is not None and name in known},
        remove=[name for name, info in changes.items() if info is None],
        add=[info for name, info in changes.items() if info is not None and name not in known],
        files=merged.files,
    )
