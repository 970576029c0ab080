"""Which backend carries out a step: the fastest that there is for the tensors at hand."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from maskreg.optim.bits import Bits
from maskreg.optim.cpu import DTYPES, Cpu
from maskreg.optim.plain import Plain
from maskreg.optim.step import Adam, Backend, Gradient, Sgd

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
        from maskreg.optim.triton_step import Triton
    except ImportError as error:
        warnings.warn(
            f"masked steps on the GPU are taken one operation after another, because Triton is not here ({error}); "
            "to take them in one: pip install maskreg[gpu]",
            stacklevel=4,
        )
        return None
    return Triton()


class Fastest:
    """Has each step carried out by what :func:`backend_of` says."""

    def accumulate(self, into: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.optim.step.Backend`."""
        backend_of(gradient).accumulate(into, gradient, bits)

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.optim.step.Backend`."""
        return backend_of(values).square_sum(values, bits)

    def adamw(
        self,
        weights: torch.Tensor,
        gradient: Gradient,
        bits: Bits,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        master: torch.Tensor | None,
        now: Adam,
    ) -> None:
        """See :class:`maskreg.optim.step.Backend`."""
        backend_of(weights, gradient.values).adamw(weights, gradient, bits, exp_avg, exp_avg_sq, master, now)

    def sgd(
        self,
        weights: torch.Tensor,
        gradient: Gradient,
        bits: Bits,
        velocity: torch.Tensor | None,
        master: torch.Tensor | None,
        now: Sgd,
    ) -> None:
        """See :class:`maskreg.optim.step.Backend`."""
        backend_of(weights, gradient.values).sgd(weights, gradient, bits, velocity, master, now)
