"""The way between a device's memory and the host's: all that patching a model in memory sends over it, counted.

A model on a GPU stays there. What crosses is coded blocks, whole tensors that an artifact stores, and a few bytes per
leaf and block: addresses, hashes, and whether a block decoded.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

_LOCK = threading.Lock()
_counters: list[Counter[str]] = []


def on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on a GPU; with Triton's interpreter, which tests use, the CPU stands in for one."""
    return tensor.is_cuda or (tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


def up(array: npt.NDArray[Any], device: torch.device, what: str) -> torch.Tensor:
    """A copy of an array on a device. ``what``: is sent, for :func:`counted`."""
    import numpy as np
    import torch

    _count(what, array.nbytes)
    # from_numpy requires a writable buffer, even though nothing writes to it.
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def down(tensor: torch.Tensor, what: str) -> npt.NDArray[Any]:
    """A tensor's values on the host; for a tensor on the CPU, the same memory."""
    if on_device(tensor):
        _count(what, tensor.nbytes)
    return tensor.cpu().numpy()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Bytes that cross the bus while the block runs, on any thread, by what they are."""
    counter: Counter[str] = Counter()
    with _LOCK:
        _counters.append(counter)
    try:
        yield counter
    finally:
        with _LOCK:
            _counters[:] = [each for each in _counters if each is not counter]


def _count(what: str, n_bytes: int) -> None:
    if _counters:
        with _LOCK:
            for counter in _counters:
                counter[what] += n_bytes
