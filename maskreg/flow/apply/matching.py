"""Which tensors of a model an artifact patches, and what of each this process holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch

from maskreg.errors import WrongCheckpointError
from maskreg.live.held import Held, held, whole
from maskreg.live.layout import Join, links
from maskreg.live.memory import DTYPES, NamedTensor, refuse_aliasing, refuse_read_only, storage_key
from maskreg.live.naming import find
from maskreg.live.refusals import missing_error, quantized, quantized_error
from maskreg.tensors.info import WIDE
from maskreg.update.route import Route, TensorRoute

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Live(NamedTuple):
    """A tensor of the model, and what becomes of it."""

    route: TensorRoute
    held: Held


Model = torch.nn.Module | Mapping[str, torch.Tensor]


def mesh_device(model: Model) -> str | None:
    """The type of device of the processes over which tensors of the model are distributed; None if none are."""
    for tensor in _tensors_of(model).values():
        if _is_distributed(tensor):
            device_type: str = tensor.device_mesh.device_type  # type: ignore[attr-defined]
            return device_type
    return None


def is_sharded(model: Model) -> bool:
    """Whether a tensor of the model is distributed over processes."""
    return mesh_device(model) is not None


def matched(route: Route, model: Model, rank: int = 0) -> list[Live]:
    """Every tensor of the route in the model, one for each piece of memory; nothing is read.

    Args:
        route: what becomes of the tensors.
        model: a module or a state dict.
        rank: this process.
    """
    module = model if isinstance(model, torch.nn.Module) else None
    live = _unique(_matched(route, _tensors_of(model), module, rank))
    tensors = [NamedTensor(item.route.name, item.held.local, item.route.changes) for item in live]
    refuse_aliasing(tensors)
    refuse_read_only(tensors)
    return live


def _tensors_of(model: Model) -> dict[str, torch.Tensor]:
    if isinstance(model, torch.nn.Module):
        model = model.state_dict(keep_vars=True)
    # State dicts hold other things too: what a module's get_extra_state returns.
    return {name: value for name, value in model.items() if isinstance(name, str) and isinstance(value, torch.Tensor)}


def _matched(
    route: Route, tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None, rank: int
) -> Iterator[Live]:
    match = find(route, tensors, module)
    present = {route[name].steps[0].row.name for join in match.joins for group in join.sources for name in group}
    for name in match.missing + match.ignored:
        if route[name].steps[0].row.name not in present:  # otherwise it is tied, and present under its other name
            by = quantized(name, tensors, module)
            raise quantized_error(name, by) if by else missing_error(name, route, tensors, hint=route.hint)
    for join in match.joins:
        if len(join.targets) > 1:
            raise WrongCheckpointError(
                join.first,
                f"the model keeps it in parts: {' and '.join(join.targets)}",
                hint="apply it to the source on disk, and load the model from it",
            )
        (target,) = join.targets
        for name in (name for group in join.sources for name in group):
            _check_form(route[name], target, tensors, module)
        yield from _linked(route, join, tensors[target], rank)


def _linked(route: Route, join: Join, target: torch.Tensor, rank: int) -> Iterator[Live]:
    shapes = {name: _shape(route[name]) for group in join.sources for name in group}
    if not _is_distributed(target):
        for link in links(join, shapes, {join.targets[0]: target}):
            yield Live(route[link.tensor], whole(link.of_parameter, rank))
        return
    blank = torch.empty(target.shape, device="meta")
    for link in links(join, shapes, {join.targets[0]: blank}):
        yield Live(route[link.tensor], held(link.tensor, target, link.of_parameter))


def _shape(tensor: TensorRoute) -> tuple[int, ...]:
    return tensor.before.shape if tensor.before is not None else ()


def _check_form(
    route: TensorRoute, target: str, tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None
) -> None:
    tensor, before = tensors[target], route.before
    dtype = _NAMES.get(tensor.dtype, str(tensor.dtype))
    if before is None:
        return
    if dtype != before.dtype:
        if by := quantized(target, tensors, module):
            raise quantized_error(route.name, by)
        wider = "; the delta is between stored bits" if dtype in WIDE else ""
        raise WrongCheckpointError(
            route.name,
            f"{dtype} in this model, {before.dtype} in the artifact{wider}",
            hint=f"load the model in {before.dtype}, patch it, and cast it afterwards",
        )
    if tensor.layout is not torch.strided:
        raise WrongCheckpointError(
            route.name, f"a sparse tensor ({tensor.layout}) in this model", hint="patch the model before it is pruned"
        )
    if tensor.is_meta:
        raise WrongCheckpointError(route.name, "its data is on the meta device", hint="load it first")
    if not _is_distributed(tensor) and _computes(tensor):
        raise WrongCheckpointError(
            route.name,
            f"a {type(tensor).__name__} in this model, whose memory is not laid out as a plain tensor's",
            hint="patch the model before its weights are converted",
        )


def _computes(tensor: torch.Tensor) -> bool:
    """Whether a subclass decides what operations on it do."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _is_distributed(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def _unique(live: Iterable[Live]) -> list[Live]:
    """One entry for each piece of memory."""
    owners: dict[tuple[object, ...], Live] = {}
    for item in live:
        owner = owners.setdefault(storage_key(item.held.local), item)
        if owner.route.fingerprints != item.route.fingerprints:
            raise WrongCheckpointError(
                item.route.name, f"shares memory with {owner.route.name} in this model, but not in the artifact"
            )
    return list(owners.values())
