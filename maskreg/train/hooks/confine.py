"""Keeping training in an early channel, in any loop, and telling how much of an update lies there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.layout import Cut, Link, links
from maskreg.live.naming import find
from maskreg.train.hooks.channel import Channel, into_channel
from maskreg.train.optim.masked import MaskedOptimizer


@dataclass(frozen=True)
class Share:
    """How much of an update's energy lies in the channel.

    Attributes:
        inside: ``sum ||dW V||^2``.
        whole: ``sum ||dW||^2``.
    """

    inside: float
    whole: float

    @property
    def share(self) -> float:
        """Inside over whole; 1 for an update of nothing."""
        return self.inside / self.whole if self.whole > 0 else 1.0


@dataclass(frozen=True)
class _Matrix:
    """One tensor of the checkpoint within a parameter: as a view of it, or of anything laid out like it."""

    name: str
    basis: torch.Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)


class Confined:
    """A model whose training is kept in a channel."""

    def __init__(
        self, model: torch.nn.Module, channel: Channel, optimizer: torch.optim.Optimizer | None, enforced: bool
    ) -> None:
        """See :func:`confine`, which makes it."""
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._parts = _parts(model, named, channel)
        self._parameters = {name: named[name] for name in self._parts}
        self._start = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._handles: list[Any] = []
        for name, parameter in self._parameters.items():
            watch: Callable[..., Any] = parameter.register_post_accumulate_grad_hook
            self._handles.append(watch(partial(self._confine_gradient, name)))
        if enforced and optimizer is not None:
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._confine_update()))

    @torch.no_grad()
    def energy(self) -> dict[str, Share]:
        """How much of the update since the start lies in the channel, by the checkpoint's names."""
        found = {}
        for part, update in self._updates():
            inside = into_channel(update, part.basis)
            found[part.name] = Share(float(inside.double().square().sum()), float(update.double().square().sum()))
        return found

    def total_energy(self) -> Share:
        """The same of all matrices together."""
        every = self.energy().values()
        return Share(sum(one.inside for one in every), sum(one.whole for one in every))

    def release(self) -> None:
        """Let go of the model: from now on it trains freely."""
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
    """Keep the training of a model's matrices in a channel from now on, in any loop.

    Every gradient ``g`` of a matrix of the checkpoint becomes ``g V V^T`` as soon as it is there: experts that the
    model stacks, and projections that it joins, each with its own ``V``. Vectors, and tensors that the channel does not
    have, train freely. An optimizer that scales each coordinate on its own leaves the channel all the same: with Adam,
    84 to 93 % of the update's energy stays in it, which :meth:`Confined.energy` tells. ``project="update"`` takes the
    weights back into it after each step: ``W = W0 + (W - W0) V V^T``.

    Memory does not shrink: a copy of the weights as they are now is kept.

    Example::

        channel = Channel.between(open_checkpoint("source"), open_checkpoint("step-60"))
        confined = confine(model, channel)
        ...  # train
        print(f"{confined.total_energy().share:.0%} of the update lies in the channel")

    Args:
        model: as it is trained, at the source's weights.
        channel: by the names in the checkpoint.
        optimizer: with ``project="update"``, the one whose steps are taken back; its parameters are fp32.
        project: what is kept in the channel.

    Raises:
        UsageError: ``project="update"`` without an optimizer, with a masked one or with parameters that are not fp32;
            or parameters are sharded.
        WrongCheckpointError: the channel is of another model.
    """
    if project == "update":
        if optimizer is None:
            raise UsageError('project="update" acts after steps of an optimizer', hint="confine(model, channel, it)")
        if isinstance(optimizer, MaskedOptimizer):
            raise UsageError(
                "an update cannot be kept both in a mask and in a channel: each takes it out of the other",
                hint="torch.optim.AdamW on fp32 parameters",
            )
        if any(p.dtype != torch.float32 for group in optimizer.param_groups for p in group["params"]):
            raise UsageError(
                'project="update" needs fp32 parameters: what is rounded to fewer bits leaves the channel again',
                hint="load the model with dtype=torch.float32, and train under torch.autocast",
            )
    return Confined(model, channel, optimizer, project == "update")


def _parts(
    model: torch.nn.Module, named: Mapping[str, torch.nn.Parameter], channel: Channel
) -> dict[str, list[_Matrix]]:
    """The matrices within each trained parameter."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    found = find(channel.bases, tensors, model)
    if found.missing:
        raise WrongCheckpointError(found.missing[0], "missing in this model", hint="the channel of this model's source")
    first = {id(parameter): name for name, parameter in named.items()}
    parts: dict[str, list[_Matrix]] = {}
    for join in found.joins:
        if any(hasattr(tensors[target], "to_local") for target in join.targets):
            raise UsageError(f"{join.targets[0]} is sharded, and a channel needs whole matrices")
        if any(isinstance(operation, Cut) for operation in join.operations):
            raise UsageError(f"{join.first} is several parameters here, and a channel needs whole matrices")
        blank = {target: torch.empty_like(tensors[target], device="meta") for target in join.targets}
        for link in links(join, channel.shapes, blank):
            name = first.get(id(tensors[link.parameter]))
            # A second tensor that is all of a parameter is the first by the name it is tied to.
            if name is not None and (join.operations or name not in parts):
                parts.setdefault(name, []).append(_matrix(link, channel, tensors[link.parameter].device))
    return parts


def _matrix(link: Link, channel: Channel, device: torch.device) -> _Matrix:
    view = link.of_parameter
    basis = channel.bases[link.tensor].to(device)
    return _Matrix(link.tensor, basis, tuple(view.shape), view.stride(), int(view.storage_offset()))
