"""A run from beginning to end: what it would need, its training, the check of what changed, and its artifact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.errors import PairMismatchError
from maskreg.flow.extract.extraction import ExtractResult, extract
from maskreg.flow.extract.pairing import is_wide
from maskreg.mask.packed import Mask, nnz_of, overlap, pack
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of
from maskreg.tensors.rules import parse_rule
from maskreg.train.retrain.folder import RunFolder
from maskreg.train.retrain.prepare import PreparedRun, mask_to_train
from maskreg.train.retrain.run import StepListener, launch

_MAX_NAMED = 5


def complete(
    folder: RunFolder,
    prepared: PreparedRun,
    torchrun: Sequence[str],
    listener: StepListener | None,
    *,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train a run to its end and verify the result; a complete run is left alone."""
    folder.check(prepared.setup)
    if (summary := folder.summary()) is not None:
        # The folder may have been moved since.
        return {**summary, "model": str(folder.model)}
    setup, paths = prepared.setup, prepared.paths
    with folder.locked() as lock:
        folder.begin(setup, paths)
        if not folder.model.exists():
            launch(folder, torchrun, listener, lock=lock)
        with closing(open_checkpoint(paths.source)) as source, closing(open_checkpoint(folder.model)) as result:
            figures = verify(source, result, mask_to_train(setup, paths, source), progress=progress)
        metrics = folder.metrics()
        summary = {
            "model": str(folder.model),
            "steps": setup.steps,
            "first_loss": metrics[0]["loss"] if metrics else None,
            "last_loss": metrics[-1]["loss"] if metrics else None,
            "seconds": round(sum(line["seconds"] for line in metrics), 2),
            **figures,
            "outside_mask": 0,
            "notes": list(prepared.notes),
            "setup": asdict(setup),
            "environments": folder.environments(),
        }
        folder.write_summary(summary)
    return summary


def verify(source: Checkpoint, result: Checkpoint, mask: Mask, *, progress: Progress = SILENT) -> dict[str, Any]:
    """Verify that stored bits outside the mask did not change.

    Returns:
        Of the floating-point tensors: coordinates, those trained, those whose bf16 code changed, and their shares.
    """
    exact = parse_rule("exact")

    def count(block: tuple[TensorInfo, int, int, npt.NDArray[np.uint8]]) -> tuple[TensorInfo, int, int, int, int]:
        info, start, stop, bits = block
        before, after = (side.read(info.name, start, stop) for side in (source, result))
        changed = pack(before != after)
        visible = 0
        if info.dtype in FLOAT:
            visible = int(np.count_nonzero(exact.moved(to_bf16(before, info.dtype), to_bf16(after, info.dtype))))
        return info, nnz_of(bits), visible, nnz_of(changed) - overlap(changed, bits), 2 * before.nbytes

    progress.start("verify", sum(2 * info.nbytes for info in source.tensors.values()))
    trained = visible = 0
    outside: dict[str, int] = {}
    blocks = ordered(count, _blocks(source, mask), jobs=worker_count(None), size=lambda block: block[2] - block[1])
    with closing(blocks) as results:
        for info, in_mask, moved, wrong, size in results:
            trained, visible = trained + in_mask, visible + moved
            if wrong:
                outside[info.name] = outside.get(info.name, 0) + wrong
            progress.advance(size)
    if outside:
        worst = sorted(outside, key=lambda name: -outside[name])[:_MAX_NAMED]
        raise PairMismatchError(
            f"{sum(outside.values()):,} coordinates outside the mask have other bits than in the source, in "
            + ", ".join(f"{name} ({outside[name]:,})" for name in worst),
            tuple(outside),
            hint="keep the run's folder and report this: no step may change them",
        )
    numel = sum(info.numel for info in source.tensors.values() if info.dtype in FLOAT)
    return {
        "coordinates": numel,
        "trained": trained,
        "visible": visible,
        "density": trained / max(numel, 1),
        "visible_density": visible / max(numel, 1),
    }


def _blocks(source: Checkpoint, mask: Mask) -> Iterator[tuple[TensorInfo, int, int, npt.NDArray[np.uint8]]]:
    for info in source.tensors.values():
        packed = mask[info.name].packed if info.dtype in FLOAT and info.name in mask else None
        for start, stop in blocks_of(info.numel):
            size = -(-(stop - start) // 64) * 8
            bits = np.zeros(size, np.uint8) if packed is None else packed[start // 8 : start // 8 + size]
            yield info, start, stop, bits


def store(folder: RunFolder, prepared: PreparedRun, *, progress: Progress = SILENT) -> ExtractResult:
    """Store what the run changed as an artifact with the run's lineage; it has no name yet.

    Its setup and environments are lineage, and no remarks on a card, because the bits depend on them. If the source is
    stored in 32 bits or more, the artifact has a mask only.
    """
    setup, paths = prepared.setup, prepared.paths
    with closing(open_checkpoint(paths.source)) as source, closing(open_checkpoint(folder.model)) as result:
        return extract(
            source,
            result,
            paths.home,
            mask_only=is_wide(source),
            parents=[Digest(setup.mask)] if setup.mask else [],
            recipe={"kind": "retrain", **setup.lineage(), "environments": folder.environments()},
            progress=progress,
        )


def plan(prepared: PreparedRun, source: Checkpoint) -> dict[str, Any]:
    """What a run would train and need, without training: coordinates, and bytes over all processes."""
    setup, mask = prepared.setup, mask_to_train(prepared.setup, prepared.paths, source)
    numel = trained = weights = state = 0
    for info in source.tensors.values():
        if info.dtype not in FLOAT or info.name not in mask:
            continue
        nnz = mask[info.name].nnz
        width = 4 if setup.dtype == "float32" else info.item_bytes
        numel, trained, weights = numel + info.numel, trained + nnz, weights + width * info.numel
        # fp32 moments, a master where weights are narrower, and per 64 coordinates 8 bytes of bits and 4 of rank.
        state += 4 * nnz * (2 * (setup.optimizer == "adamw") + (width < 4)) + 12 * -(-info.numel // 64)
    return {
        "parameters": numel,
        "trained": trained,
        "density": trained / max(numel, 1),
        "weight_bytes": weights,
        "optimizer_bytes": state,
        "gradient_bytes": weights if setup.gradients == "dense" else 4 * trained,
        "steps": setup.steps,
        "batch_size": setup.batch_size,
        "records": prepared.records,
        "setup": asdict(setup),
    }
