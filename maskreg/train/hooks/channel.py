"""The early channel: the few input directions that a run's first updates take, and training that stays in them.

Source: "On the Geometry of OPD" (arXiv 2606.07082), subspace locking: with ``V`` the leading right singular vectors of
the update at about a fifth of a run, replacing each matrix's gradient ``g`` by ``g V V^T`` leaves on-policy
distillation as good as it is, and harms supervised fine-tuning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from maskreg.analysis.factors import Method, decompose
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import open_device
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.tensors.cast import to_float
from maskreg.tensors.dtypes import FLOAT

RANK = 16
"""Directions, as published."""

EXACT_UP_TO = 1024
"""Shorter sides of matrices up to which all singular vectors are worked out; above, the leading ones are searched."""

_NEGLIGIBLE = 1e-10
"""Directions weaker than this beside the strongest are rounding."""


@dataclass(frozen=True, eq=False)
class Channel:
    """Input directions of the matrices of a checkpoint.

    Attributes:
        bases: by the checkpoint's names, orthonormal columns, fp32 ``[n, k]`` of a matrix ``[m, n]`` and
            ``[slices, n, k]`` of a stack of matrices. ``k`` is the rank, or less where the update has fewer
            directions; those of a stack with fewer are 0.
        shapes: of the tensors, by name.
    """

    bases: Mapping[str, torch.Tensor]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of_updates(cls, updates: Iterable[tuple[str, torch.Tensor]], rank: int = RANK) -> Channel:
        """The channel of updates, target minus source, by name; those of vectors have none.

        Args:
            updates: one after another, of which one is in memory at a time.
            rank: directions of each matrix.

        Raises:
            UsageError: the rank is not positive, or an update has numbers that are not finite.
        """
        if rank < 1:
            raise UsageError(f"a channel of rank {rank} leaves nothing", hint="a rank of at least 1")
        bases, shapes = {}, {}
        for name, update in updates:
            if update.dim() >= 2:
                if not update.isfinite().all():
                    raise UsageError(f"the update of {name} is not finite, so that it has no directions")
                stacked = update.double().reshape(-1, *update.shape[-2:])
                found = torch.stack([_leading(one, rank) for one in stacked])
                bases[name] = (found if update.dim() > 2 else found[0]).float()
                shapes[name] = tuple(update.shape)
        return cls(bases, shapes)

    @classmethod
    def between(cls, source: Checkpoint, early: Checkpoint, rank: int = RANK) -> Channel:
        """The channel of what changed between two checkpoints of one run, by the names that both have.

        Raises:
            WrongCheckpointError: a tensor has another shape, or is not there any more.
            UsageError: see :meth:`of_updates`.
        """
        return cls.of_updates(_differences(source, early), rank)

    @classmethod
    def of_artifact(cls, artifact: Artifact, source: Checkpoint, rank: int = RANK) -> Channel:
        """The channel of an artifact's delta.

        Args:
            artifact: of an early checkpoint of a run.
            source: the checkpoint that it is applied to.
            rank: directions of each matrix.

        Raises:
            WrongCheckpointError: the source is another checkpoint.
            PartAbsentError: the artifact has no values, or they are not here.
            UsageError: see :meth:`of_updates`.
        """
        return cls.of_updates(_decoded(artifact, source), rank)


def into_channel(matrices: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """The part of matrices that lies in a channel, ``x V V^T``, fp32 (fp64 of fp64).

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
    """Leading right singular vectors, ``[n, k]`` with ``k`` the rank or the shorter side; 0 beyond the matrix's own."""
    factors = decompose(matrix, Method(exact_up_to=EXACT_UP_TO, q=rank, niter=8))
    kept = min(rank, *matrix.shape)
    values, v = factors.s[:kept], factors.v[:, :kept]
    first = values[0] if values.numel() else torch.zeros(())
    return torch.where((values > _NEGLIGIBLE * first) & (values > 0), v, 0.0)


def _differences(source: Checkpoint, early: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    for name, before in source.tensors.items():
        after = early.tensors.get(name)
        if after is None or after.shape != before.shape:
            what = "missing in the early checkpoint" if after is None else f"of shape {list(after.shape)} there"
            raise WrongCheckpointError(name, what, hint="two checkpoints of one run")
        if len(before.shape) < 2:
            continue
        if not {before.dtype, after.dtype} <= FLOAT:
            raise WrongCheckpointError(name, f"{before.dtype} and {after.dtype}, which are not plain numbers")
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
