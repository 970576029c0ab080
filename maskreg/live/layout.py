"""How tensors of a checkpoint are laid out in a running model: stacked, joined, transposed, or cut.

Coordinates are matched by views: operations are applied forward to empty tensors of the checkpoint's shapes, to check
the result's shape, and undone on the model's tensor, as views that share its memory. Gate and up projections of two
experts, ``[Stack(0), Concatenate(1)]``::

    forward    gate_0, gate_1 [4, 8] -> [2, 4, 8];  up_0, up_1 likewise;  both -> gate_up [2, 8, 8]
    backward   gate_up [2, 8, 8] -> split(dim 1) -> [2, 4, 8] each -> unbind(dim 0) -> a view [4, 8] per expert

So a part of a model's tensor can be patched in place, or, on tensors without data, located.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from maskreg.errors import WrongCheckpointError


@dataclass(frozen=True)
class Stack:
    """Stacks the tensors of each group along a new dimension."""

    dim: int


@dataclass(frozen=True)
class Concatenate:
    """Concatenates all tensors along an existing dimension."""

    dim: int


@dataclass(frozen=True)
class Transpose:
    """Swaps two dimensions; with ``where_needed``, only if the shape does not fit otherwise."""

    dim0: int
    dim1: int
    where_needed: bool = False


@dataclass(frozen=True)
class Cut:
    """Cuts one tensor into several along a dimension."""

    dim: int


@dataclass(frozen=True)
class Unknown:
    """An operation that is not supported."""

    name: str


Operation = Stack | Concatenate | Transpose | Cut | Unknown


@dataclass(frozen=True)
class Join:
    """Tensors of a checkpoint, by group, that make up tensors of a model; several if one tensor is cut.

    ``guessed``: whether names alone suggest the operations, so that ambiguous shapes are rejected.
    """

    sources: tuple[tuple[str, ...], ...]
    targets: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    guessed: bool = False

    @property
    def first(self) -> str:
        """The name of the first source."""
        return self.sources[0][0]


class Link(NamedTuple):
    """Coordinates of a checkpoint's tensor, and the same in a model's, as two views of one shape."""

    tensor: str
    of_tensor: torch.Tensor
    parameter: str
    of_parameter: torch.Tensor


_Groups = list[list[torch.Tensor]]


def links(join: Join, shapes: Mapping[str, tuple[int, ...]], model: Mapping[str, torch.Tensor]) -> list[Link]:
    """The coordinates of each source in the model. ``model``: the targets, with or without data."""
    for operation in join.operations:
        if isinstance(operation, Unknown):
            raise WrongCheckpointError(
                join.first,
                f"{operation.name} converts it into {join.targets[0]} when it is loaded, which is not supported",
                hint="use a model whose parameters are laid out as in the checkpoint",
            )
    sources = [[torch.empty(shapes[name], device="meta") for name in group] for group in join.sources]
    targets = [model[name] for name in join.targets]
    inputs: list[_Groups] = []
    state = sources
    for operation in join.operations:
        inputs.append(state)
        state = _forward(operation, state, join, targets)
    _check([tensor for group in state for tensor in group], targets, join)
    if join.guessed and any(target.dim() == 3 and target.shape[1] == target.shape[2] for target in targets):
        raise WrongCheckpointError(
            join.first,
            f"{join.targets[0]} can be laid out in two ways, and its shape fits both",
            hint="pass the model itself, as made by transformers, which describes its layout",
        )
    names = [name for group in join.sources for name in group]
    if any(isinstance(operation, Cut) for operation in join.operations):
        parts = [part for group in state for part in group]
        return [
            Link(names[0], part, *to) for part, to in zip(parts, zip(join.targets, targets, strict=True), strict=True)
        ]
    back: _Groups = [targets]
    for operation, before in zip(reversed(join.operations), reversed(inputs), strict=True):
        back = _backward(operation, back, before)
    views = [view for group in back for view in group]
    wholes = [whole for group in sources for whole in group]
    return [Link(name, whole, join.targets[0], view) for name, whole, view in zip(names, wholes, views, strict=True)]


def _check(joined: list[torch.Tensor], targets: list[torch.Tensor], join: Join) -> None:
    shapes, expected = ([list(tensor.shape) for tensor in side] for side in (joined, targets))
    if shapes == expected:
        return
    if not join.operations and join.targets[0] == join.first:
        fault = f"shape {expected[0]} in this model, {shapes[0]} in the artifact"
    else:
        others = sum(map(len, join.sources)) - 1
        also = f" and {others} other{'s' * (others > 1)}" if others else ""
        makes = " and ".join(map(str, shapes))
        result = f"{' and '.join(join.targets)} in this model is {' and '.join(map(str, expected))}"
        fault = f"it{also} would make {makes}, but {result}"
    raise WrongCheckpointError(
        join.first, fault, hint="use the mask or artifact of this model, complete, and do not resize the model"
    )


def _forward(operation: Operation, state: _Groups, join: Join, targets: list[torch.Tensor]) -> _Groups:
    match operation:
        case Stack(dim):
            for group, names in zip(state, join.sources, strict=True):
                for tensor, name in zip(group, names, strict=True):
                    if tensor.shape != group[0].shape:
                        raise WrongCheckpointError(
                            name, f"of shape {list(tensor.shape)}, but {names[0]} is {list(group[0].shape)}"
                        )
            return [[torch.stack(group, dim)] for group in state]
        case Concatenate(dim):
            every = [tensor for group in state for tensor in group]
            if len({(*tensor.shape[:dim], *tensor.shape[dim + 1 :]) for tensor in every}) > 1:
                raise WrongCheckpointError(
                    join.first, f"the other parts of {join.targets[0]} have other shapes, or are missing"
                )
            return [[torch.cat(every, dim)]]
        case Transpose(dim0, dim1, where_needed):
            if where_needed and state[0][0].shape == targets[0].shape:
                return state
            return [[tensor.transpose(dim0, dim1) for tensor in group] for group in state]
        case Cut(dim):
            sizes = [target.shape[dim] for target in targets]
            if sum(sizes) != state[0][0].shape[dim]:
                return [list(state[0][0].chunk(len(sizes), dim))]
            return [list(torch.split(state[0][0], sizes, dim))]
        case Unknown():
            return state


def _backward(operation: Operation, state: _Groups, before: _Groups) -> _Groups:
    match operation:
        case Stack(dim):
            return [list(group[0].unbind(dim)) for group in state]
        case Concatenate(dim):
            sizes = [tensor.shape[dim] for group in before for tensor in group]
            parts = iter(torch.split(state[0][0], sizes, dim))
            return [[next(parts) for _ in group] for group in before]
        case Transpose(dim0, dim1) if state[0][0].shape != before[0][0].shape or not operation.where_needed:
            return [[tensor.transpose(dim0, dim1) for tensor in group] for group in state]
        case _:
            return state
