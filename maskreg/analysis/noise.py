"""The rounding null as an update: what rounding alone makes of noise as strong as the update.

The null target is ``b(w0 + s z)``: Gaussian noise of one scale per tensor, independent of the weights, rounded to bf16.
The scale is fitted so that as many coordinates are expected to flip as did flip.

Normal numbers come from counter-based random words (:mod:`maskreg.mask.philox`) by the transform of Box and Muller
(1958). A tile of 4,096 coordinates has 1,024 counters; counter c gives four words, one for each quarter of the tile:

    u_k = (word_k + 1/2) / 2^32
    z[c], z[1024 + c]        = sqrt(-2 ln u_0) * (cos, sin)(2 pi u_1)
    z[2048 + c], z[3072 + c] = sqrt(-2 ln u_2) * (cos, sin)(2 pi u_3)

So any span that begins at a tile can be drawn alone. Example: u_0 = e^-2 and u_1 = 1/4 give sqrt(4) * (0, 1) = (0, 2).
Logarithms and cosines differ in the last bit between machines, and so, rarely, does a rounded number.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import torch

from maskreg.mask.flips import FINENESS, fit_scale
from maskreg.mask.philox import TILE, philox
from maskreg.mask.rounding import CLASSES, classes_of

_SPAN = 256 * TILE
_COLUMNS = TILE // 4


def normals(seed: int, tensor: str, first: int, numel: int) -> npt.NDArray[np.float32]:
    """Normal numbers of coordinates ``[first, first + numel)`` of a tensor, float32 ``[numel]``.

    Args:
        seed: below 2^63.
        tensor: its name, which selects an independent stream.
        first: a multiple of 4,096.
        numel: how many.

    Raises:
        ValueError: ``first`` is not a multiple of 4,096.
    """
    if first % TILE:
        raise ValueError(f"coordinate {first} is not at the start of a tile")
    high = int.from_bytes(hashlib.sha256(tensor.encode()).digest()[:8], "little")
    tiles = -(-numel // TILE)
    words = np.empty((4, tiles * _COLUMNS), np.uint32)
    philox(seed, first // TILE * _COLUMNS, high, words)
    # Rows 0 and 2 of the words are u_0 and u_2, rows 1 and 3 are u_1 and u_3.
    radius_words, angle_words = ((words[row::2] + 0.5) / 2**32 for row in (0, 1))
    radius, angle = np.sqrt(-2 * np.log(radius_words)), 2 * np.pi * angle_words
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    numbers = pairs.astype(np.float32).reshape(4, tiles, _COLUMNS).transpose(1, 0, 2).reshape(-1)
    return numbers[:numel]


def fitted_scale(codes: npt.NDArray[np.uint16], nnz: int) -> int | None:
    """The scale of the noise in 2^20ths of an octave; None where it is undefined.

    It is undefined when nothing or everything moved, and when more moved than are finite numbers.

    Args:
        codes: bf16 codes of the source, any shape.
        nnz: coordinates that moved.
    """
    members = np.zeros(CLASSES, np.int64)
    flat = codes.reshape(-1)
    for start in range(0, flat.size, _SPAN):
        members += np.bincount(classes_of(flat[start : start + _SPAN]), minlength=CLASSES)
    try:
        return fit_scale(members, nnz)
    except ValueError:
        return None


def noisy(codes: npt.NDArray[np.uint16], scale: int, seed: int, tensor: str) -> npt.NDArray[np.float32]:
    """``w0 + s z`` before rounding to bf16, float32 in the shape of ``codes``.

    Args:
        codes: bf16 codes of the source.
        scale: ``s = 2^(scale / 2^20)``.
        seed: below 2^63.
        tensor: its name.
    """
    values = (codes.reshape(-1).astype(np.uint32) << 16).view(np.float32)
    strength = np.float32(2.0 ** (scale / FINENESS))
    for start in range(0, values.size, _SPAN):
        span = values[start : start + _SPAN]
        span += strength * normals(seed, tensor, start, span.size)
    return values.reshape(codes.shape)


def rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bf16 codes of numbers, rounded to nearest with ties to even; uint16 in the same shape."""
    codes: npt.NDArray[np.uint16] = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    return codes.view(np.uint16)
