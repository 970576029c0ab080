"""The mask of all coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from maskreg.mask.packed import TensorMask, flip, packed_bytes


class Everything(Mapping[str, TensorMask]):
    """The mask of all coordinates; each tensor's is made on access.

    Args:
        shapes: of every tensor, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def __getitem__(self, name: str) -> TensorMask:
        shape = self._shapes[name]
        numel = math.prod(shape)
        return TensorMask(name, shape, flip(np.zeros(packed_bytes(numel), np.uint8), numel))

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)
