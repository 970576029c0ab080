"""The state of a run in a file: weights and optimizer, whole, whatever the number of processes that had parts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import torch

from maskreg.train.optim import MaskedOptimizer
from maskreg.train.runs.parallel import World, fill, whole

_STATE = "state.pt"


def save_state(place: Path, model: torch.nn.Module, optimizer: MaskedOptimizer, world: World) -> None:
    """Gather everything in the first process, tensor by tensor, and write it there; every process takes part.

    Args:
        place: the checkpoint's folder.
        model: its parameters may be sharded.
        optimizer: of them.
        world: the processes.

    Raises:
        OSError: it cannot be written.
    """
    packed = optimizer.state_dict()
    state = {
        "model": {name: _kept(p.detach(), world) for name, p in model.named_parameters()},
        "optimizer": {
            **packed,
            "state": {
                number: {key: _kept(value, world) for key, value in vectors.items()}
                for number, vectors in packed["state"].items()
            },
        },
    }
    if world.first:
        with (place / _STATE).open("wb") as file:
            _write(state, file)


@torch.no_grad()
def load_state(place: Path, model: torch.nn.Module, optimizer: MaskedOptimizer) -> None:
    """Put what :func:`save_state` has written into a model and an optimizer that has found its masks.

    Raises:
        DataError: it is of another mask.
    """
    # Mapped, so that each process reads what it needs.
    state = torch.load(place / _STATE, map_location="cpu", weights_only=True, mmap=True)
    for name, parameter in model.named_parameters():
        fill(parameter, state["model"][name])
    optimizer.load_state_dict(state["optimizer"])


def _write(state: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(state, file)
    except RuntimeError as error:
        # PyTorch tells of a file that takes no more, such as on a full disk, as of a fault of its own.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _kept(value: Any, world: World) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    gathered = whole(value)
    return gathered.cpu() if world.first else None
