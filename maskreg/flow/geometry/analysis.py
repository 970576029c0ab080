"""Analysis: the geometry of an update, tensor by tensor, stored as an artifact that refers to the update's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskreg.analysis.aggregate import TensorRow, grouped, summarized
from maskreg.analysis.angles import SHARES, Method
from maskreg.analysis.coverage import PRESETS, get_preset
from maskreg.analysis.matrix import METRICS, AnalysisSpec
from maskreg.analysis.spectrum import HILL_K
from maskreg.artifact.analysis import write_analysis
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.device import open_device
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.flow.geometry.measuring import RULES, FinishedTensors, measure
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import ITEM_BYTES, WIDE
from maskreg.words import counted

RANKS = (16, 64, 512)
"""Directions of principal angles; "On the Geometry of OPD" uses 512."""

# What follows is stored in the analysis, word for word, and so part of its digest.

_RANK_WARNING = (
    "bf16 rounding fills the rank: a true rank-1 update shows nearly full rank after the cast, so read every rank "
    "figure beside its rounding null"
)
_NULL_WORDS = "b(w0 + s z), z Gaussian, s fitted per tensor to the density; last bits may differ between machines"


@dataclass(frozen=True)
class AnalysisResult:
    """An analysis, now in the registry's folder; and how many tensors an interrupted one had finished before."""

    digest: Digest
    document: Mapping[str, Any]
    resumed: int


def analysis_spec(
    *,
    metrics: Sequence[str] = METRICS,
    presets: Sequence[str] = tuple(PRESETS),
    ranks: Sequence[int] = RANKS,
    seed: int = 0,
    exact_up_to: int = 4096,
    q: int = 64,
    niter: int = 2,
    selection: Selection = ALL,
) -> AnalysisSpec:
    """A specification of what to measure, checked."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UsageError(f"unknown metric {unknown[0]!r}", hint=f"use some of {', '.join(METRICS)}")
    if not 0 <= seed < 1 << 63 or min([exact_up_to, q, *ranks], default=1) < 1 or niter < 0:
        raise UsageError("ranks and sizes must be positive, and seeds from 0 to 2^63 - 1")
    method = Method(exact_up_to, q, niter, seed)
    chosen = tuple(get_preset(name) for name in dict.fromkeys(presets))
    return AnalysisSpec(frozenset(metrics), tuple(sorted(set(ranks))), chosen, method, seed, selection)


def lineage_recipe(artifact: Artifact, target: Checkpoint | None, spec: AnalysisSpec, device: str) -> dict[str, Any]:
    """Everything that decides the figures, as the manifest of the analysis records it."""
    tensors = {} if target is None else target.tensors
    dtypes = {
        tensors[row.name].dtype if row.name in tensors else row.target_dtype for row in artifact.tensors if row.numel
    }
    return {
        "kind": "analysis",
        **spec.to_json(),
        "target": "made from the delta" if target is None else "given",
        "target_dtypes": sorted(dtypes),
        "device": device.partition(":")[0],
    }


def has_masters(recipe: Mapping[str, Any]) -> bool:
    """Whether an analysis is of full-precision masters, by its lineage recipe."""
    return bool(WIDE & set(recipe["target_dtypes"]))


def analyze(
    artifact: Artifact,
    source: Checkpoint,
    target: Checkpoint | None,
    root: Path,
    spec: AnalysisSpec | None = None,
    *,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> AnalysisResult:
    """Measure an update and store the figures as an artifact.

    One tensor is in memory at a time. Finished tensors stay in a working
    folder of the registry until all are done, so that an interrupted analysis resumes.
    """
    spec = analysis_spec() if spec is None else spec
    recipe = lineage_recipe(artifact, target, spec, device)
    reader = UpdateReader(artifact, source, target, open_device(device), spec.selection)
    side = str(target.path.absolute()) if target is not None else ""
    finished = FinishedTensors(root, [str(artifact.digest), recipe, ascii(side)])
    progress.start("analyze", sum(map(_nbytes, reader.rows)))
    rows, measured = list[TensorRow](), 0
    for number, tensor in enumerate(reader.rows):
        row = finished.load(number, tensor.name, TensorRow)
        if row is None:
            measured += 1
            row = measure(reader.read(tensor), spec, torch.device(device))
            finished.keep(number, row)
        rows.append(row)
        progress.advance(_nbytes(tensor))
    document = _document(artifact, rows, reader.left_out, recipe)
    digest = write_analysis(root, artifact, document, recipe)
    finished.remove()
    return AnalysisResult(digest, document, len(rows) - measured)


def _nbytes(row: Tensor) -> int:
    return row.numel * ITEM_BYTES[row.source_dtype]


def _document(
    artifact: Artifact, rows: Sequence[TensorRow], left_out: Sequence[str], recipe: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "of": str(artifact.digest),
        "recipe": dict(recipe),
        "constants": {"projection_shares": list(SHARES), "hill_k": HILL_K, "rules": list(RULES)},
        "null": {"what": _NULL_WORDS, "seed": recipe["seed"], "rounded": not has_masters(recipe)},
        "total": summarized(rows),
        "roles": grouped(rows, "role"),
        "layers": grouped(rows, "layer"),
        "tensors": [row.to_json() for row in rows],
        "left_out": list(left_out),
        "notes": [*_selected(artifact, rows, recipe), *_notes(rows, left_out, recipe)],
    }


def _selected(artifact: Artifact, rows: Sequence[TensorRow], recipe: Mapping[str, Any]) -> Iterable[str]:
    selection = Selection.parse(recipe["selection"]["roles"], recipe["selection"]["layers"])
    if selection:
        numel = sum(row.numel for row in rows)
        total = artifact.manifest.totals.numel
        yield f"the figures are of {selection} alone: {counted(numel, 'coordinate')} of {total:,}"


def _notes(rows: Sequence[TensorRow], left_out: Sequence[str], recipe: Mapping[str, Any]) -> Iterable[str]:
    matrices = sum(len(row.matrices) for row in rows)
    if has_masters(recipe):
        yield "the update is between full-precision masters; densities and coverage are measured on their bf16 casts"
    elif "rank" in recipe["metrics"]:
        yield _RANK_WARNING
    suspected = sum(row.merged for row in rows)
    if matrices and 2 * suspected >= matrices:
        yield (
            f"merged LoRA suspected: in {suspected} of {counted(matrices, 'matrix')} the spectrum has a step at "
            "least 1.6 high, above which lies most of the energy"
        )
    if unmeasured := [row.name for row in rows if any("NaN" in note for note in row.notes)]:
        yield (
            f"{counted(len(unmeasured), 'tensor')} with a NaN or an infinity, such as {unmeasured[0]}: it counts in "
            "sparsity, and is left out of all other figures"
        )
    no_null = [row.name for row in rows if row.scale is None]
    if no_null:
        yield (
            f"no rounding null for {len(no_null)} of {counted(len(rows), 'tensor')}, such as {no_null[0]}: nothing "
            "moved, or all, or more than are finite numbers, or the source is not stored in bf16"
        )
    if not matrices:
        yield "there is no matrix among the compared tensors"
    if left_out:
        yield f"{counted(len(left_out), 'tensor', 'is')} not compared and left out, such as {left_out[0]}"
