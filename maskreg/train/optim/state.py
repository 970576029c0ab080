"""State of masked optimizers at rest: packed vectors in the order of the whole mask, and its fingerprint.

What is saved does not tell how many processes saved it, so that any number of them can go on from it. Vectors of
sharded parameters are saved as DTensors in even chunks, which checkpoints gather, cut anew and load by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from maskreg.errors import DataError
from maskreg.train.optim.bound import Bound
from maskreg.train.optim.exchange import Exchange, was_cut_here

MASK = "mask"
"""The key of the fingerprint, uint8 ``[16]``; all other tensors with a dimension are packed vectors."""


def begun(item: Bound, state: dict[str, Any], vectors: Iterable[str]) -> None:
    """Put zeros in the place of state that is not there yet.

    Args:
        item: the parameter.
        state: of the part that is here.
        vectors: names of the packed vectors of the optimizer.
    """
    if not state:
        state.update(step=torch.zeros((), dtype=torch.float32), mask=_fingerprint(item))
    for key in vectors:
        if key not in state:
            state[key] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=item.weights.device)


@torch.no_grad()
def saved(item: Bound, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one parameter as it is saved; all processes that have a part of it take part.

    Args:
        item: the parameter.
        state: of the part that is here.
    """
    exchange: Exchange | None = None
    whole: dict[str, Any] = {}
    for key, value in state.items():
        whole[key] = value
        if key == MASK:
            whole[key] = _fingerprint(item)
        elif _is_vector(value) and item.layout.mesh is not None:
            exchange = exchange or Exchange.of(item.layout, item.order)
            whole[key] = exchange.spread(value)
    return whole


@torch.no_grad()
def restored(item: Bound, state: Mapping[str, Any]) -> dict[str, Any]:
    """What of the saved state of one parameter belongs here, in memory of its own and the dtype that it was saved in.

    Args:
        item: the parameter.
        state: as :func:`saved` gave it, here or in other processes; whole vectors will do as well.

    Raises:
        DataError: the state is of another mask, not of a masked optimizer, or another process's share of it.
    """
    if not state:
        return {}
    mask = state.get(MASK)
    if mask is None:
        raise DataError(
            f"the saved state of {item.name} is not of a masked optimizer", hint="start without it, from the weights"
        )
    if bytes(mask.to("cpu", torch.uint8).tolist()) != item.fingerprint:
        raise DataError(
            f"the saved state of {item.name} is of another mask", hint="resume with the mask that it was saved with"
        )
    device = item.weights.device
    exchange: Exchange | None = None
    here: dict[str, Any] = {}
    for key, value in state.items():
        here[key] = value
        if key == MASK:
            here[key] = _fingerprint(item)
        elif _is_vector(value):
            if tuple(value.shape) != (item.order.total,):
                raise DataError(
                    f"{key} of {item.name} has shape {list(value.shape)}, its mask {item.order.total:,} coordinates"
                )
            if hasattr(value, "device_mesh") and not was_cut_here(value):
                raise DataError(
                    f"{key} of {item.name} is another process's share of it, as torch.save writes of sharded state",
                    hint="save and load with torch.distributed.checkpoint; or let each process load the file that it"
                    " saved, in as many processes",
                )
            if item.layout.mesh is not None and hasattr(value, "placements"):
                exchange = exchange or Exchange.of(item.layout, item.order)
            if exchange is not None and exchange.collects(value):
                here[key] = exchange.collect(value).to(device)
            else:
                here[key] = _cut(item, value).to(device, copy=True)
        elif isinstance(value, torch.Tensor):
            here[key] = value.detach().to("cpu", copy=True)
    return here


def _is_vector(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _cut(item: Bound, value: torch.Tensor) -> torch.Tensor:
    full = value.full_tensor() if hasattr(value, "full_tensor") else value
    if item.layout.mesh is None:
        return full
    return full.index_select(0, torch.from_numpy(item.order.positions()).to(full.device))


def _fingerprint(item: Bound) -> torch.Tensor:
    return torch.tensor(list(item.fingerprint), dtype=torch.uint8, device=item.weights.device)
