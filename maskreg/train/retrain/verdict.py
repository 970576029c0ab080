"""A run from beginning to end: what it would need, its training, the check of what changed, and its artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.errors import PairMismatchError
from maskreg.flow.extract.extraction import ExtractResult, Provenance, extract
from maskreg.flow.extract.pairing import is_wide
from maskreg.live.processes import all_processes
from maskreg.mask.algebra import Packed
from maskreg.mask.packed import Mask, nnz_of, overlap, pack
from maskreg.parallel import is_first, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of
from maskreg.tensors.rules import parse_rule
from maskreg.train.retrain.folder import RunFolder
from maskreg.train.retrain.prepare import PreparedRun
from maskreg.train.retrain.run import StepListener, train

_MAX_NAMED = 5


def complete(
    folder: RunFolder, run: PreparedRun, listener: StepListener | None, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Train a run to its end and verify the result; a complete run is left alone."""
    first = is_first()
    with all_processes({}) as everyone, ExitStack() as stack:
        # What the first process sees holds for all; and it writes nothing before each has checked the folder.
        if (summary := everyone.gathered(folder.summary())[0]) is not None:
            return summary
        everyone.require_same(run.setup, "options or files")
        source = stack.enter_context(closing(open_checkpoint(run.source)))

        def begin() -> None:
            if first:
                stack.enter_context(folder.locked())
                folder.begin(run.setup)

        everyone.together(begin)
        has_model, save = everyone.gathered((folder.model.exists(), folder.latest_save(run.setup.steps)))[0]
        if not has_model:
            train(folder, run, source, listener, save, everyone)
        everyone.together(lambda: _end(folder, run, source, progress) if first else None)
        return everyone.gathered(folder.summary())[0] or {}


def _end(folder: RunFolder, run: PreparedRun, source: Checkpoint, progress: Progress) -> None:
    """Verify the result, and write the summary."""
    with closing(open_checkpoint(folder.model)) as result:
        figures = verify(source, result, run.mask, progress=progress)
    metrics = folder.metrics()
    folder.write_summary(
        {
            "steps": run.setup.steps,
            "first_loss": metrics[0]["loss"] if metrics else None,
            "last_loss": metrics[-1]["loss"] if metrics else None,
            "seconds": round(sum(line["seconds"] for line in metrics), 2),
            **figures,
            "outside_mask": 0,
            "notes": run.notes,
            "setup": asdict(run.setup),
            "environments": folder.environments(),
        }
    )


def verify(source: Checkpoint, result: Checkpoint, mask: Mask, *, progress: Progress = SILENT) -> dict[str, Any]:
    """Verify that stored bits outside the mask did not change.

    Returns:
        Of the floating-point tensors: coordinates, those trained, those whose bf16 code changed, and their shares.
    """
    exact = parse_rule("exact")

    def count(block: tuple[TensorInfo, int, int, Packed | None]) -> tuple[TensorInfo, int, int]:
        info, start, stop, packed = block
        before, after = (side.read(info.name, start, stop) for side in (source, result))
        bits, visible = np.zeros(-(-(stop - start) // 64) * 8, np.uint8), 0
        if info.dtype in FLOAT:
            visible = int(np.count_nonzero(exact.moved(to_bf16(before, info.dtype), to_bf16(after, info.dtype))))
            if packed is not None:
                bits = packed[start // 8 : start // 8 + bits.size]
        changed = pack(before != after)
        progress.advance(2 * before.nbytes)
        return info, visible, nnz_of(changed) - overlap(changed, bits)

    progress.start("verify", sum(2 * info.nbytes for info in source.tensors.values()))
    counted = ordered(count, _blocks(source, mask), jobs=worker_count(None), size=lambda block: block[2] - block[1])
    visible = 0
    outside: Counter[str] = Counter()
    with closing(counted) as results:
        for info, moved, wrong in results:
            visible += moved
            outside[info.name] += wrong
    if outside.total():
        named = ", ".join(f"{name} ({wrong:,})" for name, wrong in outside.most_common(_MAX_NAMED) if wrong)
        raise PairMismatchError(
            f"{outside.total():,} coordinates outside the mask have other bits than in the source, in {named}",
            tuple(name for name, wrong in outside.items() if wrong),
            hint="keep the run's folder and report this: no step should change them",
        )
    numel, trained = _sizes(source, mask)
    return {
        "coordinates": numel,
        "trained": trained,
        "visible": visible,
        "density": trained / max(numel, 1),
        "visible_density": visible / max(numel, 1),
    }


def _sizes(source: Checkpoint, mask: Mask) -> tuple[int, int]:
    """Floating-point coordinates, and those in the mask."""
    rows = [info for info in source.tensors.values() if info.dtype in FLOAT]
    return sum(info.numel for info in rows), sum(mask[info.name].nnz for info in rows if info.name in mask)


def _blocks(source: Checkpoint, mask: Mask) -> Iterator[tuple[TensorInfo, int, int, Packed | None]]:
    """Blocks of all tensors, with the mask of the tensor, which is read once."""
    for info in source.tensors.values():
        packed = mask[info.name].packed if info.dtype in FLOAT and info.name in mask else None
        for start, stop in blocks_of(info.numel):
            yield info, start, stop, packed


def store(folder: RunFolder, run: PreparedRun, home: Path, *, progress: Progress = SILENT) -> ExtractResult:
    """Store what the run changed as an artifact with the run's lineage; it has no name yet.

    Its setup and environments are lineage, and no remarks on a card, because the bits depend on them. If the source is
    stored in 32 bits or more, the artifact has a mask only.
    """
    recipe = {"kind": "retrain", **run.setup.lineage(), "environments": folder.environments()}
    with closing(open_checkpoint(run.source)) as source, closing(open_checkpoint(folder.model)) as result:
        return extract(
            source,
            result,
            home,
            mask_only=is_wide(source),
            provenance=Provenance([Digest(run.setup.mask)] if run.setup.mask else [], recipe),
            progress=progress,
        )


def plan(run: PreparedRun, source: Checkpoint) -> dict[str, Any]:
    """What a run would train, without training."""
    numel, trained = _sizes(source, run.mask)
    return {
        "parameters": numel,
        "trained": trained,
        "density": trained / max(numel, 1),
        "steps": run.setup.steps,
        "batch_size": run.setup.batch_size,
        "records": len(run.records),
        "setup": asdict(run.setup),
    }
