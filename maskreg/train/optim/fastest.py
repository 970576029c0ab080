"""Which backend works on which tensors: the fastest that can."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from maskreg.extras import install_command
from maskreg.train.optim.cpu import DTYPES, Cpu
from maskreg.train.optim.plain import Plain
from maskreg.train.optim.step import Backend

_CPU, _PLAIN = Cpu(), Plain()


def backend_of(*tensors: torch.Tensor, preferred: Backend | None = None) -> Backend:
    """The preferred backend, or else the fastest that can work on all of these tensors.

    A GPU without Triton is served by PyTorch's operations, with one warning.
    """
    if preferred is not None:
        return preferred
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
            f"masked steps on the GPU run as separate PyTorch operations, because Triton is not installed ({error}); "
            f"for one fused kernel: {install_command('gpu')}",
            stacklevel=4,
        )
        return None
    return Triton()
