"""Comparing masks: what they share, beside chance and beside what rounding alone would make of two updates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from maskreg.analysis.comparison import Comparison
from maskreg.analysis.consensus import Consensus, independent
from maskreg.analysis.contingency import MAX_MASKS
from maskreg.analysis.evidence import NO_SOURCE
from maskreg.analysis.stripes import Stripes, stripes_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import NotFoundError, UsageError, WrongCheckpointError
from maskreg.flow.overlap.counting import Counted, Counter, nbytes, runs_of
from maskreg.flow.overlap.gathering import Gathered
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress


def contrast(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    names: Sequence[str] = (),
    allow_different: bool = False,
    require_source: bool = False,
    stripes: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Comparison:
    """Compare masks, streaming: memory grows neither with the model nor with a tensor.

    Args:
        artifacts: at least two masks.
        source: the checkpoint that they were made from, checked while it is read; None leaves out what needs it.
        names: what the masks are called; short digests when left out.
        allow_different: restrict the comparison to the tensors that all share, instead of refusing.
        require_source: raise where figures would be left out because there is no source, or no one source.
        stripes: count rows and columns too.
        progress: told about bytes of masks and source.
        jobs: threads; by default what the machine has.

    Raises:
        UsageError: fewer than two masks, or more than 255.
        PairMismatchError: their rules, tensors or sources differ.
        PartAbsentError: a mask is not here.
        NotFoundError: the source is required, and not there.
        WrongCheckpointError: ``source`` is not the checkpoint that they were made from.
        DataError: an artifact is damaged.
    """
    if not 2 <= len(artifacts) <= MAX_MASKS:
        raise UsageError(f"2 to {MAX_MASKS} masks can be compared, not {len(artifacts)}")
    threads = worker_count(jobs)
    scope = scope_of(artifacts, allow_different=allow_different)
    usable, missing = _usable(scope, source)
    if missing and require_source:
        raise NotFoundError(missing)
    notes = [*scope.notes, *([missing] if missing else [])]
    for artifact, row in zip(artifacts, scope.rows[0], strict=True):
        artifact.require("mask")
        artifact.mask_bits(row, 0, 0)  # opened here once, before threads ask for it
    progress.start("compare", sum(nbytes(run, len(artifacts), usable) for run in runs_of(scope, usable)))
    gathered = Gathered(artifacts, names or _short(artifacts), by_class=usable is not None)
    agreeing, expected = np.zeros(len(artifacts) + 1, np.int64), np.zeros(len(artifacts) + 1)
    matrices: list[dict[str, Stripes]] = [{} for _ in artifacts] if stripes else []
    many, sums = len(artifacts) > 2, None
    work = Counter(artifacts, usable, stripes)
    with closing(ordered(work, runs_of(scope, usable), jobs=threads)) as results:
        for run, counted in zip(runs_of(scope, usable), results, strict=True):
            progress.advance(counted.nbytes)
            sums = _more(sums, counted)
            if not run.ends:
                continue
            gathered.add(run.rows, sums.pairs)
            if many:
                agreeing += sums.agreeing
                expected += independent(run.rows[0].numel, [row.nnz for row in run.rows])
            for matrix, lines in zip(matrices if sums.stripes else (), sums.stripes, strict=True):
                matrix[run.rows[0].name] = stripes_of(*lines)
            sums = None
    consensus = Consensus(tuple(agreeing.tolist()), tuple(expected.tolist())) if many else None
    return Comparison(gathered.comparisons(notes), consensus, tuple(matrices))


def _short(artifacts: Sequence[Artifact]) -> list[str]:
    return [artifact.digest.short for artifact in artifacts]


def _more(sums: Counted | None, counted: Counted) -> Counted:
    return counted if sums is None else sums + counted


def _usable(scope: Scope, source: Checkpoint | None) -> tuple[Checkpoint | None, str]:
    """The source, when it is that of all masks; else why there is none."""
    if source is not None and scope.one_source:
        _check_source(scope, source)
        return source, ""
    why = f"{NO_SOURCE}: name it with --source" if scope.one_source else "there is no one source"
    return None, f"figures by exponent and the rounding null are left out, for {why}"


def _check_source(scope: Scope, source: Checkpoint) -> None:
    for row, *_ in scope.rows:
        found = source.tensors.get(row.name)
        if found is None:
            raise WrongCheckpointError(row.name, f"{source.path} has no such tensor")
        if (found.shape, found.dtype) != (row.source_shape, row.source_dtype):
            expected = f"{row.source_dtype} {list(row.source_shape or ())}"
            raise WrongCheckpointError(row.name, f"it is {found.dtype} {list(found.shape)} instead of {expected}")
