"""Trajectory: how an update grew over the checkpoints of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from maskreg.analysis.angles import SIMILARITY_K, Factors, decompose, spectral_norm, subspace_similarity
from maskreg.analysis.concentration import top_energies
from maskreg.analysis.matrix import AnalysisSpec, Matrix
from maskreg.analysis.spectrum import hill, stable_rank
from maskreg.checkpoint import role_of
from maskreg.checkpoint.ahead import read_span
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import GROUPS, Part
from maskreg.checkpoint.run import stamp_of
from maskreg.device import open_device
from maskreg.errors import UsageError
from maskreg.flow.geometry.analysis import analysis_spec
from maskreg.flow.geometry.measuring import FinishedTensors, few_threads, has_matrices, moved_by, slices_of
from maskreg.progress import SILENT, Progress
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of
from maskreg.tensors.rules import parse_rule
from maskreg.update.verified import require_tensors

_EXACT = parse_rule("exact")

ON_REQUEST = frozenset({"concentration", "angles", "shift", "projection", "coverage"})
"""Groups of figures that take a decomposition, or two passes, of their own."""

_OF_MATRICES = ON_REQUEST - {"concentration"}


def trajectory(
    source: Checkpoint,
    checkpoints: Sequence[Checkpoint],
    spec: AnalysisSpec | None = None,
    *,
    by: str | None = None,
    root: Path | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Measure how an update grew over the checkpoints of one run, the last of which is its end.

    For each checkpoint: density (exact rule, on bf16 casts), norm of the update over the source's, mean stable
    rank, spectral norm and Hill exponent of its matrices, mean subspace similarity of their top 16 right directions to
    the final update's (after "On the Geometry of On-Policy Distillation") beside K/n, and what changed since the
    checkpoint before. On request what an analysis of one update has: principal angles, the shift of the spectrum,
    projections and coverage, without their rounding nulls; and the concentration of energy. A worker has one tensor in
    memory at a time, of the source and of three checkpoints; for what is on request also the factors of the source's
    matrices. On threads there is one worker.
    """
    if len(checkpoints) < 2:
        raise UsageError("a trajectory needs two or more checkpoints", hint="give the source, then every checkpoint")
    if by is not None and by not in GROUPS:
        raise UsageError(f"cannot group tensors by {by!r}", hint=f"by: one of {', '.join(GROUPS)}")
    open_device(device)
    spec = spec or analysis_spec(metrics=())
    shapes = {info.name: info.shape for info in source.tensors.values() if info.dtype in FLOAT and info.numel}
    parts = spec.selection.parts(shapes)
    infos = {part.tensor: source.tensors[part.tensor] for part in parts}
    for checkpoint in checkpoints:
        hint = f"give checkpoints of one run: {checkpoint.path} does not follow {source.path}"
        require_tensors(checkpoint, infos, hint=hint, fits=_same_shape, allow_surplus=True)
    progress.start("analyze", sum(_nbytes(part, c) for part in parts for c in checkpoints))
    whole, groups = _Track.blank(len(checkpoints)), dict[str, _Track]()
    measurer = _Measurer(source, checkpoints, spec, device)
    finished = None if root is None else FinishedTensors(root, _decides([source, *checkpoints], spec, device))
    for number, part in enumerate(parts):
        tensor = finished.load(number, part.name, _Track) if finished else None
        if tensor is None:
            tensor = measurer.measure(part)
            if finished and tensor.is_finite:
                finished.keep(number, tensor)
        whole.add(tensor)
        if by is not None:
            groups.setdefault(GROUPS[by](tensor.name), _Track.blank(len(checkpoints))).add(tensor)
        progress.advance(sum(_nbytes(part, checkpoint) for checkpoint in checkpoints))
    if finished:
        finished.remove()
    return {
        "source": str(source.path),
        **spec.to_json(),
        "k": SIMILARITY_K,
        **whole.figures(checkpoints),
        "by": by,
        "groups": {label: group.figures(checkpoints) for label, group in groups.items()},
    }


@dataclass
class _Point:
    """Sums over tensors at one checkpoint; "step" is since the checkpoint before it."""

    numel: int = 0
    moved: int = 0
    step_moved: int = 0
    energy: float = 0.0
    step_energy: float = 0.0
    ranks: list[float] = field(default_factory=list)
    similarities: list[float] = field(default_factory=list)
    tops: dict[str, float] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, more: _Point) -> None:
        for sums in ("numel", "moved", "step_moved", "energy", "step_energy", "ranks", "similarities"):
            setattr(self, sums, getattr(self, sums) + getattr(more, sums))
        for name, energy in more.tops.items():
            self.tops[name] = self.tops.get(name, 0.0) + energy
        self.add_figures(more.figures)

    def add_figures(self, figures: Mapping[str, Sequence[float]]) -> None:
        for name, values in figures.items():
            self.figures.setdefault(name, []).extend(values)


@dataclass
class _Track:
    """What is measured along the run of one tensor, a part of a fused one, or a group of them.

    ``energy`` is of the source's weights, ``chance`` by matrix the similarity of a random subspace.
    """

    name: str
    energy: float
    chance: list[float]
    points: list[_Point]

    @classmethod
    def blank(cls, checkpoints: int) -> _Track:
        return cls("", 0.0, [], [_Point() for _ in range(checkpoints)])

    @property
    def is_finite(self) -> bool:
        """Whether it can be kept as JSON, which has no infinity."""
        numbers = (number for point in self.points for number in (point.energy, point.step_energy))
        return all(map(math.isfinite, (self.energy, *numbers)))

    def add(self, tensor: _Track) -> None:
        self.energy += tensor.energy
        self.chance += tensor.chance
        for point, more in zip(self.points, tensor.points, strict=True):
            point.add(more)

    def figures(self, checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
        """Figures of every checkpoint, and what similarity is by chance."""
        pairs = zip(checkpoints, self.points, strict=True)
        return {
            "similarity_by_chance": fmean(self.chance) if self.chance else None,
            "checkpoints": [_row(str(checkpoint.path), point, self.energy) for checkpoint, point in pairs],
        }


@dataclass(frozen=True)
class _Values:
    """One tensor of one checkpoint, or a part of one, as bf16 codes and as float64 numbers."""

    part: Part
    codes: Any
    numbers: Any

    @classmethod
    def read(cls, checkpoint: Checkpoint, part: Part) -> _Values:
        info = checkpoint.tensors[part.tensor]
        shape = (part.stop - part.start, *info.shape[1:]) if info.shape else ()
        width = math.prod(shape[1:])
        bits = read_span(checkpoint, part.tensor, part.start * width, part.stop * width).reshape(shape)
        return cls(part, to_bf16(bits, info.dtype), to_float(bits, info.dtype))

    @property
    def energy(self) -> float:
        return float(np.square(self.numbers).sum())


class _Measurer:
    """Measures single tensors through the checkpoints of a run."""

    def __init__(self, source: Checkpoint, checkpoints: Sequence[Checkpoint], spec: AnalysisSpec, device: str) -> None:
        self._source, self._checkpoints = source, checkpoints
        self._spec = spec
        self._asked = replace(spec, metrics=spec.metrics & _OF_MATRICES)
        self._device = device

    def measure(self, part: Part) -> _Track:
        """What is measured of a tensor."""
        source = _Values.read(self._source, part)
        shape = source.codes.shape
        points: list[_Point] = []
        matrices = slices_of(shape) if has_matrices(role_of(part.name), shape) else []
        # Infinite weights give figures that are undefined, not warnings.
        with few_threads(min(shape[-2:], default=1)), np.errstate(invalid="ignore", over="ignore"):
            final = _Values.read(self._checkpoints[-1], part)
            ends = [self._leading(final.numbers[index] - source.numbers[index]) for index in matrices]
            sources = [self._matrix(source, index) for index in matrices] if self._asked.metrics else []
            last = source
            for checkpoint in self._checkpoints:
                current = _Values.read(checkpoint, part)
                update = current.numbers - source.numbers
                moved = _Point(
                    source.codes.size,
                    int(np.count_nonzero(_EXACT.moved(source.codes, current.codes))),
                    int(np.count_nonzero(_EXACT.moved(last.codes, current.codes))),
                    float(np.square(update).sum()),
                    float(np.square(current.numbers - last.numbers).sum()),
                )
                for index, end in zip(matrices, ends, strict=True):
                    self._add_matrix(moved, update[index], end)
                if sources:
                    self._add_figures(moved, sources, source, current)
                if "concentration" in self._spec.metrics and math.isfinite(moved.energy):
                    moved.tops |= _top_energies(update)
                points.append(moved)
                last = current
        chance = [end.v.shape[1] / end.v.shape[0] for end in ends if end is not None]
        return _Track(part.name, source.energy, chance, points)

    def _add_matrix(self, sums: _Point, update: Any, end: Factors | None) -> None:
        factors = self._leading(update)
        if factors is None:
            return
        rank = stable_rank(factors.values, float(np.square(update).sum()))
        sums.ranks += [] if rank is None else [rank]
        exponent = hill(factors.values)
        norm = spectral_norm(torch.from_numpy(update).to(self._device), factors, self._spec.method)
        sums.add_figures({"spectral_norm": [norm], "hill": [] if exponent is None else [exponent]})
        if end is not None:
            sums.similarities.append(subspace_similarity(factors.v, end.v))

    def _matrix(self, source: _Values, index: tuple[int, ...]) -> Matrix | None:
        """What all updates of a matrix share; None where the source is not finite."""
        numbers = source.numbers[index]
        if not np.isfinite(numbers).all():
            return None
        values = torch.from_numpy(numbers).to(self._device)
        return Matrix(role_of(source.part.name), source.codes[index], values, self._asked)

    def _add_figures(self, sums: _Point, matrices: Sequence[Matrix | None], source: _Values, current: _Values) -> None:
        moved = {rule: moved_by(rule, source.codes, current.codes) for rule in self._asked.thresholds}
        for index, matrix in zip(slices_of(source.codes.shape), matrices, strict=True):
            numbers = current.numbers[index]
            if matrix is None or not np.isfinite(numbers).all():
                continue
            after = torch.from_numpy(numbers).to(self._device)
            figures = matrix.figures(after, {rule: chosen[index] for rule, chosen in moved.items()})
            sums.add_figures({name: [value] for name, value in figures.items() if value is not None})

    def _leading(self, update: Any) -> Factors | None:
        """The update's leading directions; None for an update that is zero or not finite."""
        if not update.any() or not np.isfinite(update).all():
            return None
        factors = decompose(torch.from_numpy(update).to(self._device), self._spec.method)
        k = min(SIMILARITY_K, factors.s.numel())
        return Factors(factors.u[:, :k], factors.s[:k], factors.v[:, :k])


def _row(name: str, sums: _Point, source_energy: float) -> dict[str, Any]:
    return {
        "checkpoint": name,
        "density": sums.moved / sums.numel if sums.numel else None,
        "step_density": sums.step_moved / sums.numel if sums.numel else None,
        "update_norm": _short(math.sqrt(sums.energy)),
        "relative_norm": _short(math.sqrt(sums.energy / source_energy)) if source_energy > 0 else None,
        "step_norm": _short(math.sqrt(sums.step_energy)),
        "stable_rank": _short(fmean(sums.ranks)) if sums.ranks else None,
        "similarity_to_final": _short(fmean(sums.similarities)) if sums.similarities else None,
        "matrices": len(sums.ranks),
        "concentration": {
            name: _short(top / sums.energy) if sums.energy > 0 else None for name, top in sums.tops.items()
        },
        "figures": {
            name: {"mean": _short(fmean(values)), "max": _short(max(values)), "matrices": len(values)}
            for name, values in sums.figures.items()
            if values
        },
    }


def _decides(checkpoints: Sequence[Checkpoint], spec: AnalysisSpec, device: str) -> list[object]:
    """Everything that decides the figures of a tensor: the files as they are now, and what is measured."""
    files = [stamp_of(checkpoint.path) for checkpoint in checkpoints]
    return ["trajectory", files, spec.to_json(), device.partition(":")[0]]


def _top_energies(update: Any) -> dict[str, float]:
    flat = update.reshape(-1)
    return top_energies(lambda: (flat[start:stop] for start, stop in blocks_of(flat.size)), flat.size)


def _nbytes(part: Part, checkpoint: Checkpoint) -> int:
    info = checkpoint.tensors[part.tensor]
    return info.nbytes * (part.stop - part.start) // (info.shape[0] if info.shape else 1)


def _short(value: float) -> float | None:
    return float(f"{value:.5e}") if math.isfinite(value) else None


def _same_shape(present: TensorInfo, expected: TensorInfo) -> bool:
    return present.shape == expected.shape and present.dtype in FLOAT
