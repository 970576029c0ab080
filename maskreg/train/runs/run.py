"""A run from beginning to end: train, verify what changed, and store the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of, numel_of
from maskreg.tensors.rules import parse_rule
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs.engine import StepListener, mask_to_train
from maskreg.train.runs.folder import RunFolder, RunPaths
from maskreg.train.runs.launch import launch
from maskreg.train.runs.prepare import PreparedRun

_MAX_NAMED = 5


@dataclass(frozen=True)
class Verdict:
    """Counts over the floating-point tensors of a model.

    Attributes:
        numel: all coordinates.
        trained: those in the mask.
        visible: those whose bf16 code changed, under the rule ``exact``.
    """

    numel: int
    trained: int
    visible: int

    @property
    def density(self) -> float:
        """Share of coordinates in the mask."""
        return self.trained / max(self.numel, 1)

    @property
    def visible_density(self) -> float:
        """Share of coordinates that changed visibly."""
        return self.visible / max(self.numel, 1)


class _Block(NamedTuple):
    info: TensorInfo
    start: int
    stop: int
    bits: npt.NDArray[np.uint8]


class _Counts(NamedTuple):
    info: TensorInfo
    trained: int
    visible: int
    outside: int
    size: int


def verify(
    source: Checkpoint, result: Checkpoint, mask: Mask, *, progress: Progress = SILENT, jobs: int | None = None
) -> Verdict:
    """Verify that stored bits outside the mask did not change, and count what did inside."""
    exact = parse_rule("exact")

    def count(block: _Block) -> _Counts:
        info = block.info
        before, after = (side.read(info.name, block.start, block.stop) for side in (source, result))
        changed = pack(before != after)
        outside = nnz_of(changed) - overlap(changed, block.bits)
        visible = 0
        if info.dtype in FLOAT:
            visible = int(np.count_nonzero(exact.moved(to_bf16(before, info.dtype), to_bf16(after, info.dtype))))
        return _Counts(info, nnz_of(block.bits), visible, outside, 2 * before.nbytes)

    progress.start("verify", sum(2 * info.nbytes for info in source.tensors.values()))
    trained = visible = 0
    outside: dict[str, int] = {}
    with closing(ordered(count, _blocks(source, mask), jobs=worker_count(jobs), size=numel_of)) as results:
        for counts in results:
            trained, visible = trained + counts.trained, visible + counts.visible
            if counts.outside:
                outside[counts.info.name] = outside.get(counts.info.name, 0) + counts.outside
            progress.advance(counts.size)
    if outside:
        worst = sorted(outside, key=lambda name: -outside[name])[:_MAX_NAMED]
        raise PairMismatchError(
            f"{sum(outside.values()):,} coordinates outside the mask have other bits than in the source, in "
            + ", ".join(f"{name} ({outside[name]:,})" for name in worst),
            tuple(outside),
            hint="keep the run's folder and report this: no step may change them",
        )
    numel = sum(info.numel for info in source.tensors.values() if info.dtype in FLOAT)
    return Verdict(numel, trained, visible)


def _blocks(source: Checkpoint, mask: Mask) -> Iterator[_Block]:
    for info in source.tensors.values():
        packed = mask[info.name].packed if info.dtype in FLOAT and info.name in mask else None
        for start, stop in blocks_of(info.numel):
            size = -(-(stop - start) // 64) * 8
            bits = np.zeros(size, np.uint8) if packed is None else packed[start // 8 : start // 8 + size]
            yield _Block(info, start, stop, bits)


_SGD_ONLY = ("momentum",)
_ADAMW_ONLY = ("betas", "eps")
_OPD_ONLY = ("max_new_tokens", "temperature")


def complete(
    folder: RunFolder,
    prepared: PreparedRun,
    torchrun: Sequence[str],
    listener: StepListener,
    *,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train a run to its end and verify the result; a complete run is left alone."""
    folder.check(prepared.setup)
    if (summary := folder.summary()) is not None:
        # The folder may have been moved since.
        return {**summary, "model": str(folder.model)}
    with folder.locked() as lock:
        folder.begin(prepared.setup, prepared.paths)
        if not folder.model.exists():
            launch(folder, torchrun, listener, lock=lock)
        summary = _summary(folder, prepared, progress)
        folder.write_summary(summary)
    return summary


def store(folder: RunFolder, setup: RunSetup, paths: RunPaths, *, progress: Progress = SILENT) -> ExtractResult:
    """Store what the run changed as an artifact with the run's lineage; it has no name yet.

    If the source is stored in 32 bits or more, the artifact has a mask only.
    """
    parents = [Digest(setup.mask)] if setup.mask else []
    with closing(open_checkpoint(paths.source)) as source, closing(open_checkpoint(folder.model)) as result:
        return extract(
            source,
            result,
            paths.home,
            mask_only=is_wide(source),
            parents=parents,
            recipe=lineage(setup, folder.environments()),
            progress=progress,
        )


def lineage(setup: RunSetup, environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The lineage recipe of a result's manifest: the setup, without what is empty or does not apply, and environments.

    The environments are lineage, and not remarks on a card, because the bits depend on them: who repeats a run with
    equal setups and gets another digest finds the reason here, and it cannot be edited.
    """
    omitted = {*(_ADAMW_ONLY if setup.optimizer == "sgd" else _SGD_ONLY), "source"}
    omitted |= set() if setup.recipe == "opd" else set(_OPD_ONLY)
    kept = {name: value for name, value in setup.to_json().items() if name not in omitted and value not in ("", {})}
    return {"kind": "retrain", **kept, "environments": [dict(entry) for entry in environments]}


def plan(setup: RunSetup, paths: RunPaths, source: Checkpoint) -> dict[str, Any]:
    """What a run would train and need, without training: coordinates, and bytes over all processes."""
    mask = mask_to_train(setup, paths, source)
    numel = trained = weights = state = 0
    for info in source.tensors.values():
        if info.dtype not in FLOAT or info.name not in mask:
            continue
        nnz = mask[info.name].nnz
        width = 4 if setup.dtype == "float32" else info.item_bytes
        moments = 2 if setup.optimizer == "adamw" else 1 if setup.momentum else 0
        numel, trained, weights = numel + info.numel, trained + nnz, weights + width * info.numel
        # fp32 moments, a master where weights are narrower, and per 64 coordinates 8 bytes of bits and 4 of rank.
        state += 4 * nnz * (moments + (width < 4)) + 12 * -(-info.numel // 64)
    return {
        "parameters": numel,
        "trained": trained,
        "density": trained / max(numel, 1),
        "weight_bytes": weights,
        "optimizer_bytes": state,
        "gradient_bytes": {"packed": 4 * trained, "dense": weights, "in-backward": 0}[setup.gradients],
        "steps": setup.steps,
        "batch": setup.batch,
        "setup": setup.to_json(),
    }


def _summary(folder: RunFolder, prepared: PreparedRun, progress: Progress) -> dict[str, Any]:
    setup, paths = prepared.setup, prepared.paths
    with closing(open_checkpoint(paths.source)) as source, closing(open_checkpoint(folder.model)) as result:
        verdict = verify(source, result, mask_to_train(setup, paths, source), progress=progress)
    metrics = folder.metrics()
    return {
        "model": str(folder.model),
        "steps": setup.steps,
        "first_loss": metrics[0]["loss"],
        "last_loss": metrics[-1]["loss"],
        "tokens": sum(line["tokens"] for line in metrics),
        "seconds": round(sum(line["seconds"] for line in metrics), 2),
        "coordinates": verdict.numel,
        "trained": verdict.trained,
        "visible": verdict.visible,
        "density": verdict.density,
        "visible_density": verdict.visible_density,
        "outside_mask": 0,
        "notes": list(prepared.notes),
        "setup": setup.to_json(),
        "environments": folder.environments(),
    }
