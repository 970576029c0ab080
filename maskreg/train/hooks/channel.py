"""The early channel: the few input directions that the first updates of a run take.

Source: "On the Geometry of OPD" (arXiv 2606.07082), subspace locking. Let ``V`` be the leading right singular vectors
of a matrix's update after about a fifth of a run. Replacing each gradient ``g`` by ``g V V^T`` does not degrade
on-policy distillation, but does degrade supervised fine-tuning.

A right singular vector is a direction of the matrix's input. With the update ``dW = [[3, 0], [4, 0]]``, only the first
input matters: ``V = [[1], [0]]``, and ``g V V^T`` keeps the first column of any gradient and drops the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from maskreg.analysis.angles import Method, decompose
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import open_device
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.tensors.cast import to_float
from maskreg.tensors.dtypes import FLOAT

RANK = 16
"""Directions per matrix, as published."""

EXACT_UP_TO = 1024
"""Largest shorter side of a matrix for a full SVD; above, only the leading singular vectors are approximated."""

_NEGLIGIBLE = 1e-10
"""Singular values below this share of the largest are rounding errors."""


@dataclass(frozen=True, eq=False)
class Channel:
    """Input directions of the matrices of a checkpoint.

    Attributes:
        bases: by name in the checkpoint, orthonormal columns: fp32 ``[n, k]`` for a matrix ``[m, n]``, and
            ``[slices, n, k]`` for a stack of matrices. ``k`` is the rank, or the shorter side of the matrix if that is
            less; columns beyond the update's own rank are 0.
        shapes: of the tensors, by name.
    """

    bases: Mapping[str, torch.Tensor]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of_updates(cls, updates: Iterable[tuple[str, torch.Tensor]], rank: int = RANK) -> Channel:
        """The channel of updates, target minus source, by name; vectors are skipped.

        Args:
            updates: an iterator, so that one is in memory at a time.
            rank: directions per matrix.

        Raises:
            UsageError: the rank is not positive, or an update is not finite.
        """
        if rank < 1:
            raise UsageError(f"rank {rank} of a channel must be at least 1", hint="give a rank of at least 1")
        bases, shapes = {}, {}
        for name, update in updates:
            if update.dim() >= 2:
                if not update.isfinite().all():
                    raise UsageError(f"the update of {name} is not finite")
                stacked = update.double().reshape(-1, *update.shape[-2:])
                vectors = torch.stack([_leading(matrix, rank) for matrix in stacked])
                bases[name] = (vectors if update.dim() > 2 else vectors[0]).float()
                shapes[name] = tuple(update.shape)
        return cls(bases, shapes)

    @classmethod
    def between(cls, source: Checkpoint, early: Checkpoint, rank: int = RANK) -> Channel:
        """The channel of the change between two checkpoints of one run.

        Raises:
            WrongCheckpointError: a tensor is missing in the early checkpoint, or has another shape.
            UsageError: see :meth:`of_updates`.
        """
        return cls.of_updates(_differences(source, early), rank)

    @classmethod
    def of_artifact(cls, artifact: Artifact, source: Checkpoint, rank: int = RANK) -> Channel:
        """The channel of an artifact's delta.

        Args:
            artifact: of an early checkpoint of a run.
            source: of the artifact.
            rank: directions per matrix.

        Raises:
            WrongCheckpointError: the source is another checkpoint.
            PartAbsentError: the artifact has no delta, or it is not in the local registry.
            UsageError: see :meth:`of_updates`.
        """
        return cls.of_updates(_decoded(artifact, source), rank)


def into_channel(matrices: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """The projection of matrices onto a channel, ``x V V^T``; fp32, or fp64 of fp64.

    Args:
        matrices: ``[m, n]``, or stacked ``[..., m, n]``.
        basis: ``[n, k]``, or ``[slices, n, k]``.
    """
    wide = matrices if matrices.dtype == torch.float64 else matrices.float()
    v = basis.to(wide)
    if v.dim() == 3:
        v = v.reshape(*wide.shape[:-2], *v.shape[-2:])
    return (wide @ v) @ v.mT


def _leading(matrix: torch.Tensor, rank: int) -> torch.Tensor:
    """Leading right singular vectors, ``[n, k]`` with ``k`` the rank or shorter side; 0 beyond the matrix's rank."""
    factors = decompose(matrix, Method(exact_up_to=EXACT_UP_TO, q=rank, niter=8))
    kept = min(rank, *matrix.shape)
    values, v = factors.s[:kept], factors.v[:, :kept]
    first = values[0] if values.numel() else torch.zeros(())
    return torch.where((values > _NEGLIGIBLE * first) & (values > 0), v, 0.0)


def _differences(source: Checkpoint, early: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    for name, before in source.tensors.items():
        after = early.tensors.get(name)
        if after is None or after.shape != before.shape:
            fault = "missing in the early checkpoint" if after is None else f"of shape {list(after.shape)} in it"
            raise WrongCheckpointError(name, fault, hint="give two checkpoints of one run")
        if len(before.shape) < 2:
            continue
        if not {before.dtype, after.dtype} <= FLOAT:
            raise WrongCheckpointError(name, f"{before.dtype} and {after.dtype}, which are not both floating-point")
        change = to_float(early.read(name, 0, after.numel), after.dtype)
        change -= to_float(source.read(name, 0, before.numel), before.dtype)
        yield name, torch.from_numpy(change.reshape(before.shape))


def _decoded(artifact: Artifact, source: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    reader = UpdateReader(artifact, source, None, open_device("cpu"))
    for row in reader.rows:
        if len(row.source_shape or ()) >= 2:
            update = reader.read(row)
            change = to_float(update.after, update.after_dtype) - to_float(update.before, update.before_dtype)
            yield row.name, torch.from_numpy(change)
