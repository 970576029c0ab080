"""Trajectory: how an update grew over the checkpoints of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from maskreg.errors import UsageError
from maskreg.flow.geometry.measuring import few_threads, has_matrices, slices_of
from maskreg.progress import SILENT, Progress
from maskreg.rules import parse_rule
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo
from maskreg.update.recorded import require_tensors

_EXACT = parse_rule("exact")


def trajectory(
    source: Checkpoint,
    checkpoints: Sequence[Checkpoint],
    *,
    method: Method | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Measure how an update grew over the checkpoints of one run, the last of which is its end.

    For each checkpoint: density (exact rule, on bf16 casts), norm of the update over that of the source, mean stable
    rank of its matrices, mean subspace similarity of their top 16 right directions to the final update's (after
    "Dense Supervision, Sparse Updates") beside K/n, and what changed since the checkpoint before. One tensor is in
    memory at a time, of the source and of three checkpoints.

    Args:
        source: where the run began.
        checkpoints: in the order of the run, two or more.
        method: how matrices are decomposed.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where they are decomposed.
        progress: progress callback, in bytes of all checkpoints.

    Raises:
        UsageError: fewer than two checkpoints.
        WrongCheckpointError: a checkpoint lacks a tensor of the source, or has it in another shape.
        ConfigError: there is no such device.
    """
    if len(checkpoints) < 2:
        raise UsageError("a trajectory needs two or more checkpoints", hint="give the source, then every checkpoint")
    open_device(device)
    infos = {info.name: info for info in source.tensors.values() if info.dtype in FLOAT and info.numel}
    for checkpoint in checkpoints:
        hint = f"give checkpoints of one run: {checkpoint.path} does not follow {source.path}"
        require_tensors(checkpoint, infos, hint=hint, fits=_same_shape, allow_surplus=True)
    progress.start("analyze", sum(c.tensors[name].nbytes for name in infos for c in checkpoints))
    chosen = method or Method()
    follower = _Follower(checkpoints, chosen, torch.device(device), progress)
    for info in infos.values():
        follower.follow(_Values.read(source, info))
    return {
        "source": str(source.path),
        "k": SIMILARITY_K,
        "similarity_by_chance": fmean(follower.chance) if follower.chance else None,
        "decomposition": {"exact_up_to": chosen.exact_up_to, "q": chosen.q, "niter": chosen.niter, "dtype": "float64"},
        "checkpoints": follower.rows(),
    }


@dataclass
class _Sums:
    """Sums over the tensors of one checkpoint; "step" is since the checkpoint before it."""

    numel: int = 0
    moved: int = 0
    step_moved: int = 0
    energy: float = 0.0
    step_energy: float = 0.0
    ranks: list[float] = field(default_factory=list)
    similarities: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Values:
    """One tensor of one checkpoint, as bf16 codes and as float64 numbers."""

    info: TensorInfo
    codes: Any
    numbers: Any

    @classmethod
    def read(cls, checkpoint: Checkpoint, info: TensorInfo) -> _Values:
        dtype = checkpoint.tensors[info.name].dtype
        bits = checkpoint.read(info.name, 0, info.numel).reshape(info.shape)
        return cls(info, to_bf16(bits, dtype), to_float(bits, dtype))

    @property
    def energy(self) -> float:
        return float(np.square(self.numbers).sum())


class _Follower:
    """Follows tensors through the checkpoints of a run, and adds up.

    Attributes:
        chance: by matrix, the similarity of a random subspace.
    """

    def __init__(
        self, checkpoints: Sequence[Checkpoint], method: Method, device: torch.device, progress: Progress
    ) -> None:
        self.chance: list[float] = []
        self._checkpoints = checkpoints
        self._method = method
        self._device = device
        self._progress = progress
        self._sums = [_Sums() for _ in checkpoints]
        self._source_energy = 0.0

    def follow(self, source: _Values) -> None:
        """Add a tensor."""
        info = source.info
        self._source_energy += source.energy
        matrices = slices_of(info.shape) if has_matrices(role_of(info.name), info.shape) else []
        with few_threads(min(info.shape[-2:], default=1)):
            final = _Values.read(self._checkpoints[-1], info)
            ends = [self._leading(final.numbers[index] - source.numbers[index]) for index in matrices]
            self.chance += [end.v.shape[1] / end.v.shape[0] for end in ends if end is not None]
            last = source
            for checkpoint, sums in zip(self._checkpoints, self._sums, strict=True):
                current = _Values.read(checkpoint, info)
                update = current.numbers - source.numbers
                sums.numel += info.numel
                sums.moved += int(np.count_nonzero(_EXACT.moved(source.codes, current.codes)))
                sums.step_moved += int(np.count_nonzero(_EXACT.moved(last.codes, current.codes)))
                sums.energy += float(np.square(update).sum())
                sums.step_energy += float(np.square(current.numbers - last.numbers).sum())
                for index, end in zip(matrices, ends, strict=True):
                    self._add_matrix(sums, update[index], end)
                last = current
                self._progress.advance(checkpoint.tensors[info.name].nbytes)

    def rows(self) -> list[dict[str, Any]]:
        """Figures of every checkpoint."""
        return [
            _row(str(checkpoint.path), sums, self._source_energy)
            for checkpoint, sums in zip(self._checkpoints, self._sums, strict=True)
        ]

    def _add_matrix(self, sums: _Sums, update: Any, end: Factors | None) -> None:
        factors = self._leading(update)
        if factors is None:
            return
        rank = stable_rank(factors.values, float(np.square(update).sum()))
        sums.ranks += [] if rank is None else [rank]
        if end is not None:
            sums.similarities.append(subspace_similarity(factors.v, end.v))

    def _leading(self, update: Any) -> Factors | None:
        """The update's leading directions; None for an update that is zero or not finite."""
        if not update.any() or not np.isfinite(update).all():
            return None
        factors = decompose(torch.from_numpy(update).to(self._device), self._method)
        k = min(SIMILARITY_K, factors.s.numel())
        return Factors(factors.u[:, :k], factors.s[:k], factors.v[:, :k])


def _row(name: str, sums: _Sums, source_energy: float) -> dict[str, Any]:
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
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5e}") if math.isfinite(value) else None


def _same_shape(present: TensorInfo, expected: TensorInfo) -> bool:
    return present.shape == expected.shape and present.dtype in FLOAT
