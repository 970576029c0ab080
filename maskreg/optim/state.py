"""State of masked optimizers at rest: packed vectors in the order of the whole mask, and its fingerprint.

What is saved does not tell how many processes saved it, so that any number of them can go on from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from maskreg.errors import DataError
from maskreg.optim.bound import Bound

MASK = "mask"
"""The key of the fingerprint, uint8 ``[16]``; all other tensors with a dimension are packed vectors."""


def saved(item: Bound, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one parameter as it is saved.

    Args:
        item: the parameter.
        state: of the part that is here.
    """
    return {key: _fingerprint(item) if key == MASK else value for key, value in state.items()}


def restored(item: Bound, state: Mapping[str, Any]) -> dict[str, Any]:
    """What of the saved state of one parameter belongs here; copies, in the dtype in which they were saved.

    Args:
        item: the parameter.
        state: as :func:`saved` gave it, here or in other processes.

    Raises:
        DataError: the state is of another mask, or not of a masked optimizer.
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
    return {key: _own(item, key, value) for key, value in state.items()}


def begun(item: Bound) -> dict[str, Any]:
    """State before the first step, as far as every optimizer has it."""
    return {"step": torch.zeros((), dtype=torch.float32), MASK: _fingerprint(item)}


def _own(item: Bound, key: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if not value.dim():
        return value.detach().to("cpu", copy=True)
    device = item.weights.device
    if key != MASK and tuple(value.shape) != (item.bits.nnz,):
        raise DataError(
            f"{key} of {item.name} has shape {list(value.shape)}, and its mask {item.bits.nnz:,} coordinates"
        )
    return value.detach().to(device, copy=True)


def _fingerprint(item: Bound) -> torch.Tensor:
    return torch.tensor(list(item.fingerprint), dtype=torch.uint8, device=item.weights.device)
