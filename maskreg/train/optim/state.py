"""State of masked optimizers: how it begins, and how it is saved and restored in any number of processes.

In memory, the state of one parameter is that of its local part::

    step     fp32, 0-D
    mask     uint8 [16], fingerprint of the whole mask
    master   fp32 [nnz here], of weights narrower than fp32
    exp_avg, exp_avg_sq or momentum_buffer, fp32 [nnz here]

Saved, every vector is in the order of the whole mask, ``[nnz]``; for sharded parameters as a DTensor in even chunks,
which checkpoints know how to gather, split again and load. See :mod:`maskreg.train.optim.exchange` for the conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from maskreg.errors import DataError
from maskreg.train.optim.exchange import Exchange, is_local_share
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.step import Backend

MASK = "mask"
"""The key of the fingerprint; all other tensors with a dimension are packed vectors."""


def begin_state(item: MaskedParameter, state: dict[str, Any], vectors: Iterable[str]) -> None:
    """Add what is missing of the state of a parameter, as zeros.

    Args:
        item: the parameter.
        state: of its local part.
        vectors: names of the packed vectors of the optimizer.
    """
    if not state:
        state.update(step=torch.zeros((), dtype=torch.float32), mask=_fingerprint(item))
    for key in vectors:
        if key not in state:
            state[key] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=item.weights.device)


def begin_master(item: MaskedParameter, state: dict[str, Any], weights: torch.Tensor, backend: Backend) -> None:
    """Add the master copy of a parameter's masked weights, if it has none yet.

    Args:
        item: the parameter.
        state: of its local part.
        weights: its local part, flat.
        backend: packs them.
    """
    if "master" not in state:
        # Packing adds to what is there, and 0.0 + -0.0 is 0.0, while -0.0 + x is x for every x.
        state["master"] = torch.full((item.bits.nnz,), -0.0, dtype=torch.float32, device=weights.device)
        backend.accumulate(state["master"], weights, item.bits)


@torch.no_grad()
def saved(item: MaskedParameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one parameter as it is saved; a collective call of the processes that have a part of it.

    Args:
        item: the parameter.
        state: of its local part.
    """
    exchange: Exchange | None = None
    whole: dict[str, Any] = {}
    for key, value in state.items():
        whole[key] = value
        if key == MASK:
            whole[key] = _fingerprint(item)
        elif _is_vector(value) and item.layout.mesh is not None:
            exchange = exchange or Exchange.of(item.layout, item.order)
            whole[key] = exchange.to_chunks(value)
    return whole


@torch.no_grad()
def restored(item: MaskedParameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """The local part of the saved state of one parameter, in memory of its own and the dtype in which it was saved.

    Args:
        item: the parameter.
        state: returned by :func:`saved`, in these processes or others; whole vectors work too.

    Raises:
        DataError: the state is of another mask, not of a masked optimizer, or another process's share of it.
    """
    if not state:
        return {}
    _check_mask(item, state.get(MASK))
    exchange: Exchange | None = None
    local: dict[str, Any] = {}
    for key, value in state.items():
        local[key] = value
        if key == MASK:
            local[key] = _fingerprint(item)
        elif _is_vector(value):
            _check_vector(item, key, value)
            if item.layout.mesh is not None and hasattr(value, "placements"):
                exchange = exchange or Exchange.of(item.layout, item.order)
            local[key] = _local_vector(item, value, exchange)
        elif isinstance(value, torch.Tensor):
            local[key] = value.detach().to("cpu", copy=True)
    return local


def _check_mask(item: MaskedParameter, fingerprint: torch.Tensor | None) -> None:
    if fingerprint is None:
        raise DataError(
            f"the saved state of {item.name} is not of a masked optimizer", hint="start without it, from the weights"
        )
    if bytes(fingerprint.to("cpu", torch.uint8).tolist()) != item.fingerprint:
        raise DataError(
            f"the saved state of {item.name} is of another mask", hint="resume with the mask that it was saved with"
        )


def _check_vector(item: MaskedParameter, key: str, value: torch.Tensor) -> None:
    if tuple(value.shape) != (item.order.total,):
        raise DataError(
            f"{key} of {item.name} has shape {list(value.shape)}, but its mask {item.order.total:,} coordinates"
        )
    if hasattr(value, "device_mesh") and not is_local_share(value):
        raise DataError(
            f"{key} of {item.name} is another process's share of it, as torch.save writes of sharded state",
            hint="save and load with torch.distributed.checkpoint; or let each process load the file that it"
            " saved, in as many processes",
        )


def _local_vector(item: MaskedParameter, value: torch.Tensor, exchange: Exchange | None) -> torch.Tensor:
    device = item.weights.device
    if exchange is not None and exchange.accepts(value):
        return exchange.to_part(value).to(device)
    full = value.full_tensor() if hasattr(value, "full_tensor") else value
    if item.layout.mesh is not None:
        full = full.index_select(0, torch.from_numpy(item.order.positions()).to(full.device))
    return full.to(device, copy=True)


def _is_vector(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _fingerprint(item: MaskedParameter) -> torch.Tensor:
    return torch.tensor(list(item.fingerprint), dtype=torch.uint8, device=item.weights.device)
