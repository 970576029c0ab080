"""Which backend carries out a step: the fastest that there is for the tensors at hand."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from maskreg.train.optim.cpu import DTYPES, Cpu
from maskreg.train.optim.plain import Plain
from maskreg.train.optim.step import Backend

_CPU, _PLAIN = Cpu(), Plain()


def backend_of(*tensors: torch.Tensor) -> Backend:
    """The fastest backend that can work on these: a step's weights and gradient, or either.

    A GPU without Triton is served by PyTorch's operations, and is warned of once.
    """
    if any(tensor.dtype not in DTYPES or not tensor.is_contiguous() for tensor in tensors):
        return _PLAIN
    kinds = {tensor.device.type for tensor in tensors}
    if kinds == {"cpu"}:
        return _CPU
    return _on_gpu() or _PLAIN if kinds == {"cuda"} else _PLAIN


@cache
def _on_gpu() -> Backend | None:
    try:
        from maskreg.train.optim.triton_step import Triton
    except ImportError as error:
        warnings.warn(
            f"masked steps on the GPU are taken one operation after another, because Triton is not here ({error}); "
            "to take them in one: pip install maskreg[gpu]",
            stacklevel=4,
        )
        return None
    return Triton()
