"""The state of Adam that a run saved: for each weight its moments, and its gradient where that was kept.

Optimizers name it as PyTorch's do: ``exp_avg`` is the first moment m, ``exp_avg_sq`` the second, v::

    torch.save(optimizer.state_dict())      {"state": {0: {"exp_avg": ...}}}: numbers, not names
    optimizer.pt of a Trainer's checkpoint  the same
    FSDP, get_optimizer_state_dict, DCP     optimizer.state.model.layers.0.mlp.up_proj.weight.exp_avg
    safetensors                             names that end so
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.bucket import located, on_disk
from maskreg.checkpoint import dcp, torch_files
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.layouts import TORCH_SUFFIXES, is_dcp
from maskreg.checkpoint.opening import open_checkpoint
from maskreg.checkpoint.renaming import Choice, cleaned
from maskreg.checkpoint.renaming import Path as KeyPath
from maskreg.closing import Closing
from maskreg.errors import FormatError, NotFoundError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.cast import to_float
from maskreg.tensors.info import FLOAT

FIRST, SECOND, GRADIENT = "exp_avg", "exp_avg_sq", "grad"
"""Names of the first moment m, of the second moment v, and of the gradient."""

KINDS = (FIRST, SECOND, GRADIENT)
"""What is read of a weight."""

_STATE = "state"
_FILES = ("optimizer.pt", "optimizer.bin")
_HINT = "name the file or folder that the optimizer was saved to: optimizer.pt, or a distributed checkpoint"


class Moments(Closing):
    """The state of Adam, open.

    Attributes:
        names: of the weights that have a second moment, in the order of the checkpoint; numbers where the optimizer
            numbered its weights.
    """

    def __init__(self, checkpoint: Checkpoint, stored: Mapping[tuple[str, str], str]) -> None:
        self.checkpoint = checkpoint
        self._stored = stored
        self.names = tuple(name for name, kind in stored if kind == SECOND)

    def close(self) -> None:
        """Close the checkpoint."""
        self.checkpoint.close()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight."""
        return self.checkpoint.tensors[self._stored[name, SECOND]].shape

    def has(self, name: str, kind: str) -> bool:
        """Whether a weight's moment or gradient, one of :data:`KINDS`, is there."""
        return (name, kind) in self._stored

    def read(self, name: str, kind: str, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Elements ``[start, stop)`` of a moment or a gradient, in C order."""
        stored = self._stored[name, kind]
        bits: npt.NDArray[Any] = self.checkpoint.read(stored, start, stop)
        return to_float(bits, self.checkpoint.tensors[stored].dtype)


def open_moments(path: str | Path, *, limits: Limits = LIMITS) -> Moments:
    """Open the state of Adam."""
    # Path.expanduser raises for an unknown user.
    state = on_disk(located(os.path.expanduser(path)), "measuring moments")  # noqa: PTH111
    if not state.exists():
        raise NotFoundError(f"{path}: no such file or directory", hint=_HINT)
    if state.is_dir():
        state = next((state / name for name in _FILES if (state / name).is_file()), state)
    checkpoint = _opened(state, limits)
    stored = {
        _split(name): name
        for name, info in checkpoint.tensors.items()
        if name.endswith(tuple(f".{kind}" for kind in KINDS)) and info.dtype in FLOAT
    }
    if not any(kind == SECOND for _, kind in stored):
        checkpoint.close()
        raise FormatError(f"{path}: no state of Adam in it: no tensor is called {SECOND}", hint=_HINT)
    shapes: dict[str, tuple[int, ...]] = {}
    for (name, _), key in stored.items():
        shape = checkpoint.tensors[key].shape
        if shapes.setdefault(name, shape) != shape:
            checkpoint.close()
            raise FormatError(
                f"{path}: moments of {name} have the shapes {list(shapes[name])} and {list(shape)}", hint=_HINT
            )
    return Moments(checkpoint, stored)


def moments_among(sizes: Mapping[KeyPath, int], document: str) -> Choice:
    """Choose the state of Adam among all that was saved, as ``weights_among`` does for weights."""
    paths = {path: ".".join(path) for path in sizes}
    chosen = {path: _split(text) for path, text in paths.items() if text.rpartition(".")[2] in KINDS}
    if not any(kind == SECOND for _, kind in chosen.values()):
        raise FormatError(f"{document}: no state of Adam in it: no tensor is called {SECOND}", hint=_HINT)
    names, note = cleaned(list(dict.fromkeys(name for name, _ in chosen.values())))
    clean = {path: f"{names[name]}.{kind}" for path, (name, kind) in chosen.items()}
    return Choice(clean, (), (note,) if note else ())


def _opened(path: Path, limits: Limits) -> Checkpoint:
    if path.is_dir() and is_dcp(path):
        return dcp.open_path(path, limits=limits, choose=moments_among)
    if path.is_file() and path.suffix in TORCH_SUFFIXES:
        return torch_files.open_path(path, limits=limits, choose=moments_among)
    return open_checkpoint(path, limits=limits)


def _split(text: str) -> tuple[str, str]:
    """The weight and the kind that a name means: what stands behind the first part ``state``, or all of it."""
    name, _, kind = text.rpartition(".")
    parts = name.split(".")
    if _STATE in parts[:-1]:
        parts = parts[parts.index(_STATE) + 1 :]
    return ".".join(parts), kind
