"""Training confined to an early channel, in any loop, and the share of an update that lies in it.

``project="gradient"`` replaces each gradient ``g`` by ``g V V^T``. For SGD that confines the update too, because it is
a sum of gradients. Adam divides each coordinate by the root of its own second moment, which leaves the channel: with
``V = (0.6, 0.8)``, rows of projected gradients are multiples of (0.6, 0.8), but Adam's first step is (lr, lr), of whose
energy (0.6 + 0.8)^2 / 2 = 98 % lies in the channel. ``project="update"`` projects the weights themselves after each
step, ``W = W0 + (W - W0) V V^T``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from maskreg.analysis.angles import Method, decompose
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import open_device
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.live.layout import Cut, Link, links
from maskreg.live.naming import find, missing_error
from maskreg.tensors.cast import to_float
from maskreg.tensors.info import FLOAT
from maskreg.train.optim.masked import MaskedOptimizer

# The early channel: the few input directions that the first updates of a run take.
#
# Source: "On the Geometry of OPD" (arXiv 2606.07082), subspace locking. Let ``V`` be the leading right singular vectors
# of a matrix's update after about a fifth of a run. Replacing each gradient ``g`` by ``g V V^T`` does not degrade on-
# policy distillation, but does degrade supervised fine-tuning.
#
# A right singular vector is a direction of the matrix's input. With the update ``dW = [[3, 0], [4, 0]]``, only the
# first input matters: ``V = [[1], [0]]``, and ``g V V^T`` keeps the first column of any gradient and drops the second.

RANK = 16
"""Directions per matrix, as published."""

EXACT_UP_TO = 1024
"""Largest shorter side of a matrix for a full SVD; above, only the leading singular vectors are approximated."""

_NO_DIRECTION = 1e-10
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
        """The channel of updates, target minus source, by name; vectors are skipped."""
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
        """The channel of the change between two checkpoints of one run."""
        return cls.of_updates(_differences(source, early), rank)

    @classmethod
    def of_artifact(cls, artifact: Artifact, source: Checkpoint, rank: int = RANK) -> Channel:
        """The channel of an artifact's delta."""
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
    return torch.where((values > _NO_DIRECTION * first) & (values > 0), v, 0.0)


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


_NEGLIGIBLE = 1e-3
"""Share of a projected update that products in reduced precision, such as TF32, leave outside the channel."""

_ROUNDING = 1e-5
"""Share of the weights that rounding them to fp32 may leave outside."""


@dataclass(frozen=True)
class Share:
    """The share of an update's energy that lies in the channel.

    Attributes:
        inside: ``sum ||dW V||^2``.
        whole: ``sum ||dW||^2``.
    """

    inside: float
    whole: float

    @property
    def share(self) -> float:
        """``inside / whole``; 1 if nothing changed."""
        return self.inside / self.whole if self.whole > 0 else 1.0


@dataclass(frozen=True)
class _Matrix:
    """One tensor of the checkpoint within a parameter, as a view of any tensor with the parameter's strides."""

    name: str
    basis: torch.Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)


class Confined:
    """A model whose training is confined to a channel."""

    def __init__(self, model: torch.nn.Module, channel: Channel, optimizer: torch.optim.Optimizer | None) -> None:
        """Made by :func:`confine`; with an optimizer, updates are projected after its steps."""
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._parts = _parts(model, named, channel)
        self._parameters = {name: named[name] for name in self._parts}
        self._start = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._scales = {p.name: float(p.of(self._start[n]).norm()) for n, ps in self._parts.items() for p in ps}
        self._handles: list[Any] = []
        for name, parameter in self._parameters.items():
            register: Callable[..., Any] = parameter.register_post_accumulate_grad_hook
            self._handles.append(register(partial(self._confine_gradient, name)))
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(lambda *_: self._refuse_other_weights()))
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._confine_update()))

    @torch.no_grad()
    def energy(self) -> dict[str, Share]:
        """The share of each update since :func:`confine` that lies in the channel, by name in the checkpoint."""
        shares = {}
        for part, update in self._updates():
            inside = into_channel(update, part.basis)
            shares[part.name] = Share(float(inside.double().square().sum()), float(update.double().square().sum()))
        return shares

    def total_energy(self) -> Share:
        """The share of all matrices together."""
        shares = self.energy().values()
        return Share(sum(share.inside for share in shares), sum(share.whole for share in shares))

    def release(self) -> None:
        """Remove all hooks: the model trains freely from now on."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _updates(self) -> Iterator[tuple[_Matrix, torch.Tensor]]:
        for name, parts in self._parts.items():
            now, start = self._parameters[name].detach(), self._start[name]
            for part in parts:
                yield part, part.of(now).float() - part.of(start).float()

    @torch.no_grad()
    def _confine_gradient(self, name: str, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            if gradient.stride() != parameter.stride():
                gradient = parameter.grad = torch.empty_like(parameter).copy_(gradient)
            for part in self._parts[name]:
                view = part.of(gradient)
                view.copy_(into_channel(view, part.basis))

    @torch.no_grad()
    def _refuse_other_weights(self) -> None:
        """Reject weights outside the channel before a step: projecting would undo what was loaded."""
        for part, update in self._updates():
            outside = (update - into_channel(update, part.basis)).norm()
            if outside > _NEGLIGIBLE * update.norm() + _ROUNDING * self._scales[part.name]:
                raise UsageError(
                    f"{part.name} was moved out of the channel since it was confined, or since the last step;"
                    " projecting the next one would move it back",
                    hint="after loading weights: confined.release(), then confine(model, channel, optimizer) again",
                )

    @torch.no_grad()
    def _confine_update(self) -> None:
        for name, parts in self._parts.items():
            now, start = self._parameters[name].detach(), self._start[name]
            for part in parts:
                view, before = part.of(now), part.of(start)
                view.copy_(before + into_channel(view - before, part.basis))


def confine(
    model: torch.nn.Module,
    channel: Channel,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    project: Literal["gradient", "update"] = "gradient",
) -> Confined:
    """Confine the training of a model's matrices to a channel from now on, in any loop.

    Every gradient ``g`` of a matrix of the checkpoint becomes ``g V V^T`` as soon as it is ready; stacked experts and
    joined projections each have their own ``V``. Vectors, and tensors that the channel does not have, train freely. An
    optimizer that scales coordinates individually still leaves the channel: with Adam, 84 to 93 % of the update's
    energy stays in it, as :meth:`Confined.energy` measures. ``project="update"`` also projects the weights after each
    step: ``W = W0 + (W - W0) V V^T``. That would move back weights that were loaded outside the channel; the step is
    refused then, and confining again makes them the new ``W0``.

    Memory does not shrink: a copy of the current weights is kept.

    Example::

        channel = Channel.between(open_checkpoint("source"), open_checkpoint("step-60"))
        confined = confine(model, channel)
        ...  # train
        print(f"{confined.total_energy().share:.0%} of the update lies in the channel")

    Args:
        model: as it is trained, with the source's weights.
        channel: by the names in the checkpoint.
        optimizer: for ``project="update"``, the one whose steps are projected; its parameters must be fp32.
        project: what is projected onto the channel.
    """
    if project == "update":
        if optimizer is None:
            raise UsageError(
                'project="update" needs the optimizer', hint="confine(model, channel, optimizer, project=...)"
            )
        if isinstance(optimizer, MaskedOptimizer):
            raise UsageError(
                "an update cannot be confined to both a mask and a channel: projecting onto one leaves the other",
                hint="use torch.optim.AdamW on fp32 parameters",
            )
        if any(p.dtype != torch.float32 for group in optimizer.param_groups for p in group["params"]):
            raise UsageError(
                'project="update" needs fp32 parameters: rounding to fewer bits leaves the channel',
                hint="load the model with dtype=torch.float32, and train under torch.autocast",
            )
    return Confined(model, channel, optimizer if project == "update" else None)


def _parts(
    model: torch.nn.Module, named: Mapping[str, torch.nn.Parameter], channel: Channel
) -> dict[str, list[_Matrix]]:
    """The matrices within each trained parameter."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    matches = find(channel.bases, tensors, model)
    if matches.missing:
        hint = "use the channel of this model's source"
        raise missing_error(matches.missing[0], channel.bases, tensors, hint=hint)
    first = {id(parameter): name for name, parameter in named.items()}
    parts: dict[str, list[_Matrix]] = {}
    for join in matches.joins:
        if any(hasattr(tensors[target], "to_local") for target in join.targets):
            raise UsageError(f"{join.targets[0]} is sharded, but a channel needs whole matrices")
        if any(isinstance(operation, Cut) for operation in join.operations):
            raise UsageError(f"{join.first} is cut into several parameters, but a channel needs whole matrices")
        blank = {target: torch.empty_like(tensors[target], device="meta") for target in join.targets}
        for link in links(join, channel.shapes, blank):
            name = first.get(id(tensors[link.parameter]))
            # Of tied tensors, which are each all of one parameter, only the first counts.
            if name is not None and (join.operations or name not in parts):
                parts.setdefault(name, []).append(_matrix(link, channel, tensors[link.parameter].device))
    return parts


def _matrix(link: Link, channel: Channel, device: torch.device) -> _Matrix:
    view = link.of_parameter
    basis = channel.bases[link.tensor].to(device)
    return _Matrix(link.tensor, basis, tuple(view.shape), view.stride(), int(view.storage_offset()))
