"""Analysis: the geometry of an artifact's update, tensor by tensor, kept as an artifact that refers to it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskreg.analysis.aggregate import TensorRow, grouped, summarized
from maskreg.analysis.angles import SHARES
from maskreg.analysis.factors import Method
from maskreg.analysis.matrix import METRICS, AnalysisSpec
from maskreg.analysis.presets import PRESETS, get_preset
from maskreg.analysis.spectrum import HILL_K
from maskreg.artifact.analysis import write_analysis
from maskreg.artifact.presence import read_manifest
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import open_device
from maskreg.digest import Digest
from maskreg.document import canonical, parse_object
from maskreg.errors import DataError, NotFoundError, UsageError
from maskreg.flow.geometry.measuring import RULES, measure
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.limits import LIMITS
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.words import counted

WORK = "analysis"
"""Folder of a local registry that holds the finished tensors of analyses under way."""

RANKS = (16, 64, 512)
"""Directions of principal angles; GEO has 512."""

_RANK_WARNING = (
    "bf16 rounding fills the rank: a true rank-1 update shows nearly full rank after the cast, so read every rank "
    "figure beside its rounding null"
)
_NULL_WORDS = "b(w0 + s z), z Gaussian, s fitted per tensor to the density; last bits may differ between machines"


@dataclass(frozen=True)
class Analyzed:
    """What an analysis found.

    Attributes:
        digest: the artifact that holds it, in the registry's folder.
        document: the figures.
        resumed: tensors that an earlier run had finished.
    """

    digest: Digest
    document: Mapping[str, Any]
    resumed: int


def question(
    *,
    metrics: Sequence[str] = METRICS,
    presets: Sequence[str] = tuple(PRESETS),
    ranks: Sequence[int] = RANKS,
    seed: int = 0,
    exact_up_to: int = 4096,
    q: int = 64,
    niter: int = 2,
) -> AnalysisSpec:
    """What is asked of every matrix.

    Args:
        metrics: groups of figures.
        presets: definitions of coverage, by name.
        ranks: directions of principal angles.
        seed: of the rounding null and of random range finding.
        exact_up_to: smaller sides up to this are decomposed exactly.
        q: directions that are kept above it.
        niter: power iterations above it.

    Raises:
        UsageError: a group, preset or number that there is not.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UsageError(f"there are no figures {unknown[0]!r}", hint=f"use some of {', '.join(METRICS)}")
    if not 0 <= seed < 1 << 63 or min([exact_up_to, q, *ranks], default=1) < 1 or niter < 0:
        raise UsageError("ranks, sizes and q are positive, and seeds from 0 to 2^63 - 1")
    method = Method(exact_up_to, q, niter, seed)
    chosen = tuple(get_preset(name) for name in dict.fromkeys(presets))
    return AnalysisSpec(frozenset(metrics), tuple(sorted(set(ranks))), chosen, method, seed)


def recipe_of(artifact: Artifact, target: Checkpoint | None, ask: AnalysisSpec, device: str) -> dict[str, Any]:
    """What decides the figures of an artifact, as the manifest of the analysis has it.

    Args:
        artifact: whose update it is.
        target: the other side, whose values may be wider than those the artifact holds; None to make it.
        ask: what is asked.
        device: where matrices are decomposed.
    """
    held = {} if target is None else target.tensors
    dtypes = {held[row.name].dtype if row.name in held else row.target_dtype for row in artifact.tensors if row.numel}
    return {
        "kind": "analysis",
        **ask.to_json(),
        "target": "made from the delta" if target is None else "given",
        "target_dtypes": sorted(dtypes),
        "device": device.partition(":")[0],
    }


def earlier(registry: Registry, name: Ref, of: Digest, recipe: Mapping[str, Any]) -> Digest | None:
    """The artifact of an analysis that was made before, from the same recipe, and that a tag pointed to at some time.

    Args:
        registry: where to look.
        name: the tag.
        of: the artifact that was analyzed.
        recipe: as :func:`recipe_of` says.
    """
    if _has_masters(recipe):
        # An artifact's leaves do not tell one full-precision master from another of the same casts.
        return None
    for entry in reversed(registry.refs.history(name)):
        if entry.digest is None:
            continue
        try:
            _, manifest = read_manifest(registry.store, entry.digest)
        except (NotFoundError, DataError):
            # Collected since, or damaged: made again.
            continue
        if manifest.kind == "analysis" and manifest.parents == (str(of),) and manifest.recipe == recipe:
            return entry.digest
    return None


def analyze(
    artifact: Artifact,
    source: Checkpoint,
    target: Checkpoint | None = None,
    root: str | Path | None = None,
    ask: AnalysisSpec | None = None,
    *,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> Analyzed:
    """Measure an update and store what was found.

    One tensor is in memory at a time. Every finished one is kept in a working folder of the registry until all are
    done, so that an interrupted analysis goes on where it was.

    Args:
        artifact: whose update it is.
        source: the checkpoint that it was made from.
        target: the other side; made from source and delta when None. Masters of full precision are used as they are.
        root: folder of the registry's file store; the local registry of the settings when left out.
        ask: what is wanted; everything when left out.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where matrices are decomposed.
        progress: told about bytes of the source.

    Raises:
        WrongCheckpointError: a side is not the checkpoint that the artifact was made from.
        PartAbsentError: there is no target, and no delta here to make it from.
        DataError: the artifact is damaged.
        ConfigError: there is no such device.
    """
    root, ask = Settings.load().home if root is None else Path(root), ask or question()
    recipe = recipe_of(artifact, target, ask, device)
    reader = UpdateReader(artifact, source, target, open_device(device))
    work = _Work(root, artifact.digest, recipe, str(target.path.absolute()) if target is not None else "")
    progress.start("analyze", sum(source.tensors[row.name].nbytes for row in reader.rows))
    rows, resumed = list[TensorRow](), 0
    for number, row in enumerate(reader.rows):
        found = work.load(number, row.name)
        if found is None:
            found = measure(reader.read(row), ask, torch.device(device))
            work.keep(number, found)
        else:
            resumed += 1
        rows.append(found)
        progress.advance(source.tensors[row.name].nbytes)
    document = _document(artifact, rows, reader.left_out, recipe)
    digest = write_analysis(root, artifact, document, recipe)
    work.remove()
    return Analyzed(digest, document, resumed)


class _Work:
    """Finished tensors of one analysis, one file each."""

    def __init__(self, root: Path, digest: Digest, recipe: Mapping[str, Any], target: str) -> None:
        name = hashlib.sha256(canonical([str(digest), recipe, ascii(target)])).hexdigest()[:32]
        self._folder = root / WORK / name

    def load(self, number: int, name: str) -> TensorRow | None:
        path = self._path(number)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            row = TensorRow.from_json(parse_object(data, path.name, max_bytes=LIMITS.analysis_bytes))
        except (DataError, KeyError, TypeError, ValueError):
            # Cut short by a crash of the machine, or of another version: measured again.
            return None
        return row if row.name == name else None

    def keep(self, number: int, row: TensorRow) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(number)
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_bytes(canonical(row.to_json()))
        new.replace(path)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.json"


def _document(
    artifact: Artifact, rows: Sequence[TensorRow], left_out: Sequence[str], recipe: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "of": str(artifact.digest),
        "recipe": dict(recipe),
        "constants": {"projection_shares": list(SHARES), "hill_k": HILL_K, "rules": list(RULES)},
        "null": {"what": _NULL_WORDS, "seed": recipe["seed"], "rounded": not _has_masters(recipe)},
        "total": summarized(rows),
        "roles": grouped(rows, "role"),
        "layers": grouped(rows, "layer"),
        "tensors": [row.to_json() for row in rows],
        "left_out": list(left_out),
        "notes": list(_notes(rows, left_out, recipe)),
    }


def _notes(rows: Sequence[TensorRow], left_out: Sequence[str], recipe: Mapping[str, Any]) -> Iterable[str]:
    matrices = sum(len(row.matrices) for row in rows)
    if _has_masters(recipe):
        yield "the update is that of full-precision masters; densities and coverage are those of their bf16 casts"
    elif "rank" in recipe["metrics"]:
        yield _RANK_WARNING
    suspected = sum(row.merged for row in rows)
    if matrices and 2 * suspected >= matrices:
        yield (
            f"merged LoRA suspected: in {suspected} of {counted(matrices, 'matrix')} the spectrum has a step at "
            "least 1.6 high, above which lies most of the energy"
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


def _has_masters(recipe: Mapping[str, Any]) -> bool:
    return bool({"F32", "F64"} & set(recipe["target_dtypes"]))
