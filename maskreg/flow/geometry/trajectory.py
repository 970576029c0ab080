"""Trajectory: how an update grew over the checkpoints of one run, matrix by matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch

from maskreg.analysis.angles import SIMILARITY_K, subspace_similarity
from maskreg.analysis.factors import Factors, Method, decompose
from maskreg.analysis.spectrum import stable_rank
from maskreg.checkpoint import role_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import open_device
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.measuring import few_threads, has_matrices, slices_of
from maskreg.progress import SILENT, Progress
from maskreg.rules import parse_rule
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo

_EXACT = parse_rule("exact")


@dataclass
class _Sums:
    numel: int = 0
    moved: int = 0
    stepped: int = 0
    energy: float = 0.0
    step_energy: float = 0.0
    ranks: list[float] = field(default_factory=list)
    similar: list[float] = field(default_factory=list)


def trajectory(
    source: Checkpoint,
    checkpoints: Sequence[Checkpoint],
    *,
    method: Method | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """What became of an update over the checkpoints of one run, the last of which is its end.

    For each checkpoint: density (exact rule, on bf16 casts), norm of the update over that of the source, mean stable
    rank of its matrices, mean subspace similarity of their top 16 right directions to the final update's (after
    "Dense Supervision, Sparse Updates") beside K/n, and what changed since the checkpoint before. One tensor is in
    memory at a time, of the source and of three checkpoints.

    Args:
        source: where the run began.
        checkpoints: in the order of the run, two or more.
        method: how matrices are decomposed.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where they are.
        progress: told about bytes of all checkpoints.

    Raises:
        UsageError: fewer than two checkpoints.
        WrongCheckpointError: a checkpoint lacks a tensor of the source, or has it in another shape.
        ConfigError: there is no such device.
    """
    if len(checkpoints) < 2:
        raise UsageError("a trajectory needs two checkpoints or more", hint="give the source, then every checkpoint")
    open_device(device)
    infos = [info for info in source.tensors.values() if info.dtype in FLOAT and info.numel]
    for checkpoint in checkpoints:
        _check(source, checkpoint, infos)
    progress.start("analyze", sum(c.tensors[info.name].nbytes for info in infos for c in checkpoints))
    chosen, where = method or Method(), torch.device(device)
    points = [_Sums() for _ in checkpoints]
    weights, chance = 0.0, list[float]()
    for info in infos:
        before = _Side.read(source, info)
        weights += before.energy
        _follow(before, checkpoints, points, chance, chosen, where, progress)
    names = [str(checkpoint.path) for checkpoint in checkpoints]
    rows = [_row(name, point, weights) for name, point in zip(names, points, strict=True)]
    return {
        "source": str(source.path),
        "k": SIMILARITY_K,
        "similarity_by_chance": fmean(chance) if chance else None,
        "decomposition": {"exact_up_to": chosen.exact_up_to, "q": chosen.q, "niter": chosen.niter, "dtype": "float64"},
        "checkpoints": rows,
    }


@dataclass(frozen=True)
class _Side:
    info: TensorInfo
    codes: Any
    values: Any

    @classmethod
    def read(cls, checkpoint: Checkpoint, info: TensorInfo) -> _Side:
        dtype = checkpoint.tensors[info.name].dtype
        bits = checkpoint.read(info.name, 0, info.numel).reshape(info.shape)
        return cls(info, to_bf16(bits, dtype), to_float(bits, dtype))

    @property
    def energy(self) -> float:
        return float(np.square(self.values).sum())


def _follow(
    before: _Side,
    checkpoints: Sequence[Checkpoint],
    points: Sequence[_Sums],
    chance: list[float],
    method: Method,
    device: torch.device,
    progress: Progress,
) -> None:
    info = before.info
    matrices = slices_of(info.shape) if has_matrices(role_of(info.name), info.shape) else []
    with few_threads(min(info.shape[-2:], default=1)):
        final = _Side.read(checkpoints[-1], info)
        ends = [_leading(final.values[at] - before.values[at], method, device) for at in matrices]
        chance += [end.v.shape[1] / end.v.shape[0] for end in ends if end is not None]
        last = before
        for checkpoint, point in zip(checkpoints, points, strict=True):
            now = _Side.read(checkpoint, info)
            update = now.values - before.values
            point.numel += info.numel
            point.moved += int(np.count_nonzero(_EXACT.moved(before.codes, now.codes)))
            point.stepped += int(np.count_nonzero(_EXACT.moved(last.codes, now.codes)))
            point.energy += float(np.square(update).sum())
            point.step_energy += float(np.square(now.values - last.values).sum())
            for at, end in zip(matrices, ends, strict=True):
                found = _leading(update[at], method, device)
                if found is None:
                    continue
                rank = stable_rank(found.values, float(np.square(update[at]).sum()))
                point.ranks += [] if rank is None else [rank]
                if end is not None:
                    point.similar.append(subspace_similarity(found.v, end.v))
            last = now
            progress.advance(checkpoint.tensors[info.name].nbytes)


def _leading(update: Any, method: Method, device: torch.device) -> Factors | None:
    """The update's leading directions; None for one of nothing, or that is not finite."""
    if not update.any() or not np.isfinite(update).all():
        return None
    factors = decompose(torch.from_numpy(update).to(device), method)
    k = min(SIMILARITY_K, factors.s.numel())
    return Factors(factors.u[:, :k], factors.s[:k], factors.v[:, :k])


def _row(name: str, point: _Sums, weights: float) -> dict[str, Any]:
    return {
        "checkpoint": name,
        "density": point.moved / point.numel if point.numel else None,
        "step_density": point.stepped / point.numel if point.numel else None,
        "update_norm": _short(math.sqrt(point.energy)),
        "relative_norm": _short(math.sqrt(point.energy / weights)) if weights > 0 else None,
        "step_norm": _short(math.sqrt(point.step_energy)),
        "stable_rank": _short(fmean(point.ranks)) if point.ranks else None,
        "similarity_to_final": _short(fmean(point.similar)) if point.similar else None,
        "matrices": len(point.ranks),
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5e}") if math.isfinite(value) else None


def _check(source: Checkpoint, checkpoint: Checkpoint, infos: Sequence[TensorInfo]) -> None:
    found: Mapping[str, TensorInfo] = checkpoint.tensors
    for info in infos:
        if info.name not in found:
            raise WrongCheckpointError(info.name, f"missing in {checkpoint.path}")
        here = found[info.name]
        if here.shape != info.shape or here.dtype not in FLOAT:
            raise WrongCheckpointError(
                info.name,
                f"{here.dtype} {list(here.shape)} in {checkpoint.path}, {list(info.shape)} in {source.path}",
            )
