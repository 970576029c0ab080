"""An update that knows nothing of the weights: what rounding alone would make of noise as strong as the update.

The null target is ``b(w0 + s z)``: Gaussian noise of one scale per tensor, rounded to bf16. The scale is fitted so that
as many coordinates are expected to flip as did flip. Normal numbers come from counter-based words by the transform of
Box and Muller (1958): with ``u = (word + 1/2) / 2^32`` of two coordinates, ``sqrt(-2 ln u1)`` times the cosine and the
sine of ``2 pi u2``. Within a tile of 4,096 coordinates those are quarters one and two, and three and four.
Logarithms and cosines differ in the last bit between machines, and so, rarely, does a rounded number.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import torch

from maskreg.mask.philox import TILE, philox
from maskreg.mask.rounding import CLASSES, FINENESS, classes_of, fit_scale

_RUN = 256 * TILE
_COLUMNS = TILE // 4


def normals(seed: int, tensor: str, first: int, numel: int) -> npt.NDArray[np.float32]:
    """Normal numbers of coordinates ``[first, first + numel)`` of a tensor, float32 ``[numel]``.

    Args:
        seed: below 2^63.
        tensor: its name: other tensors get other numbers.
        first: a multiple of 4,096.
        numel: how many.

    Raises:
        ValueError: ``first`` is not such a multiple.
    """
    if first % TILE:
        raise ValueError(f"coordinate {first} does not begin a tile")
    high = int.from_bytes(hashlib.sha256(tensor.encode()).digest()[:8], "little", signed=True)
    tiles = -(-numel // TILE)
    words = np.empty((4, tiles * _COLUMNS), np.uint32)
    philox(seed, first // TILE * _COLUMNS, high, words)
    one, two = ((words[at::2] + 0.5) / 2**32 for at in (0, 1))
    radius, turn = np.sqrt(-2 * np.log(one)), 2 * np.pi * two
    pairs = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    drawn = pairs.astype(np.float32).reshape(4, tiles, _COLUMNS).transpose(1, 0, 2).reshape(-1)
    return drawn[:numel]


def fitted_scale(codes: npt.NDArray[np.uint16], nnz: int) -> int | None:
    """The scale of the noise in 256ths of an octave, or None where none is defined.

    There is none when nothing or everything moved, or when no noise moves so many (numbers that are not finite stay).

    Args:
        codes: bf16 codes of the source, any shape.
        nnz: coordinates that moved.
    """
    members = np.zeros(CLASSES, np.int64)
    flat = codes.reshape(-1)
    for start in range(0, flat.size, _RUN):
        members += np.bincount(classes_of(flat[start : start + _RUN]), minlength=CLASSES)
    try:
        return fit_scale(members, nnz)
    except ValueError:
        return None


def noisy(codes: npt.NDArray[np.uint16], scale: int, seed: int, tensor: str) -> npt.NDArray[np.float32]:
    """``w0 + s z`` before any rounding to bf16, float32 of the shape of ``codes``.

    Args:
        codes: bf16 codes of the source.
        scale: ``s = 2^(scale / 256)``.
        seed: below 2^63.
        tensor: its name.
    """
    values = (codes.reshape(-1).astype(np.uint32) << 16).view(np.float32)
    strength = np.float32(2.0 ** (scale / FINENESS))
    for start in range(0, values.size, _RUN):
        run = values[start : start + _RUN]
        run += strength * normals(seed, tensor, start, run.size)
    return values.reshape(codes.shape)


def rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bf16 codes of numbers, to nearest, ties to even; uint16 of the same shape."""
    codes: npt.NDArray[np.uint16] = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    return codes.view(np.uint16)
