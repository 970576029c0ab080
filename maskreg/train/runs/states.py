"""Weights and optimizer state of a run in one file, independent of the number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import torch

from maskreg.train.optim import MaskedOptimizer
from maskreg.train.runs.parallel import World, assign, full_tensor

_STATE = "state.pt"


def save_state(folder: Path, model: torch.nn.Module, optimizer: MaskedOptimizer, world: World) -> None:
    """Gather everything in the first process, tensor by tensor, and write it there; a collective call."""
    packed = optimizer.state_dict()
    state = {
        "model": {name: _gathered(p.detach(), world) for name, p in model.named_parameters()},
        "optimizer": {
            **packed,
            "state": {
                number: {key: _gathered(value, world) for key, value in vectors.items()}
                for number, vectors in packed["state"].items()
            },
        },
    }
    if world.is_first:
        with (folder / _STATE).open("wb") as file:
            _write(state, file)


@torch.no_grad()
def load_state(folder: Path, model: torch.nn.Module, optimizer: MaskedOptimizer) -> None:
    """Load what :func:`save_state` wrote into a model and an optimizer that is bound to it."""
    # Mapped, so that each process reads only its part.
    state = torch.load(folder / _STATE, map_location="cpu", weights_only=True, mmap=True)
    for name, parameter in model.named_parameters():
        assign(parameter, state["model"][name])
    optimizer.load_state_dict(state["optimizer"])


def _write(state: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(state, file)
    except RuntimeError as error:
        # PyTorch reports a failed write, as on a full disk, as an internal error.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _gathered(value: Any, world: World) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    full = full_tensor(value)
    return full.cpu() if world.is_first else None
