"""A whole run: begin or go on, train, compare what changed with what was allowed to, and register the result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.digest import Digest
from maskreg.flow.extract.extraction import ExtractResult, extract
from maskreg.flow.extract.pairing import is_wide
from maskreg.progress import SILENT, Progress
from maskreg.tensors.dtypes import FLOAT
from maskreg.train.recipes.setup import Places, Setup
from maskreg.train.runs.engine import Listener, mask_to_train
from maskreg.train.runs.folder import Folder
from maskreg.train.runs.launch import launch
from maskreg.train.runs.prepare import Prepared
from maskreg.train.runs.verdict import judge

_NOT_OF_ADAMW = ("momentum",)
_NOT_OF_SGD = ("betas", "eps")
_OF_SAMPLING = ("max_new_tokens", "temperature")


def complete(
    folder: Folder,
    prepared: Prepared,
    options: Sequence[str],
    listener: Listener,
    *,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train until the result is there and has been compared with the source; a run that is complete is left alone.

    Args:
        folder: of this run, or of none yet.
        prepared: what the run is.
        options: of torchrun; without any, this process trains.
        listener: hears of every step.
        progress: told about bytes that are compared.

    Returns:
        The summary, which is also in the folder.

    Raises:
        OutputExistsError: the folder holds something else.
        TryAgainError: another process works in it.
        PairMismatchError: coordinates outside the mask have changed.
        MaskregError: training failed.
    """
    folder.check(prepared.setup)
    if (there := folder.summary()) is not None:
        # The folder may have been moved since.
        return {**there, "model": str(folder.model)}
    with folder.locked() as lock:
        folder.begin(prepared.setup, prepared.places)
        if not folder.model.exists():
            launch(folder, options, listener, lock=lock)
        summary = _summary(folder, prepared, progress)
        folder.finish(summary)
    return summary


def register(folder: Folder, setup: Setup, places: Places, *, progress: Progress = SILENT) -> ExtractResult:
    """Store what the run changed as an artifact whose manifest says how it came about; it has no name yet.

    Of a source that is stored in 32 bits or more, the mask alone is kept.

    Raises:
        MaskregError: as for :func:`maskreg.flow.extract.extraction.extract`.
    """
    parents = [Digest(setup.mask)] if setup.mask else []
    with closing(open_checkpoint(places.source)) as source, closing(open_checkpoint(folder.model)) as result:
        return extract(
            source,
            result,
            places.home,
            mask_only=is_wide(source),
            parents=parents,
            recipe=lineage(setup),
            progress=progress,
        )


def lineage(setup: Setup) -> dict[str, Any]:
    """What the manifest of a result says of its run; what does not apply, or is empty, is left out."""
    odd = {*(_NOT_OF_SGD if setup.optimizer == "sgd" else _NOT_OF_ADAMW), "source"}
    odd |= set() if setup.recipe == "opd" else set(_OF_SAMPLING)
    said = {name: value for name, value in setup.to_json().items() if name not in odd and value not in ("", {})}
    return {"kind": "retrain", **said}


def plan(setup: Setup, places: Places, source: Checkpoint) -> dict[str, Any]:
    """What a run would take, without running it: coordinates, and bytes of the whole model."""
    mask = mask_to_train(setup, places, source)
    numel = trained = weights = state = 0
    for info in source.tensors.values():
        if info.dtype not in FLOAT or info.name not in mask:
            continue
        nnz = mask[info.name].nnz
        width = 4 if setup.dtype == "float32" else info.item_bytes
        moments = 2 if setup.optimizer == "adamw" else 1 if setup.momentum else 0
        numel, trained, weights = numel + info.numel, trained + nnz, weights + width * info.numel
        # fp32 entries, masters among them where weights are narrower; and 64 coordinates' bits with their rank.
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


def _summary(folder: Folder, prepared: Prepared, progress: Progress) -> dict[str, Any]:
    setup, places = prepared.setup, prepared.places
    with closing(open_checkpoint(places.source)) as source, closing(open_checkpoint(folder.model)) as result:
        verdict = judge(source, result, mask_to_train(setup, places, source), progress=progress)
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
    }
