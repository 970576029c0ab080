"""Steps on a GPU by Triton kernels, one launch per tensor.

Only this module and its kernels import Triton, and they are imported only if there is a GPU. With
``TRITON_INTERPRET=1`` in the environment Triton interprets the kernels on the CPU, slowly: that is for tests.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim import triton_kernels
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.step import AdamWStep, Backend, Operands

PROGRAM_NUMEL = 1024
"""Coordinates of a program."""

MOST_SUMS = 4096
"""Programs of a sum, more than any GPU runs at once."""

_LOCK = threading.Lock()
"""Threads would compile the same kernel twice, and Triton's interpreter is not thread-safe."""


class Triton(Backend):
    """Works on contiguous tensors of fp32 or bf16, all on one GPU."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        if bits.nnz:
            self._launch(
                "accumulate", gradient, total, _codes(gradient), *_mask(bits), BLOCK=PROGRAM_NUMEL, WORD=PAD_BITS
            )

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        if not (values.numel() if bits is None else bits.nnz):
            return torch.zeros((), dtype=torch.float64, device=values.device)
        programs = min(MOST_SUMS, -(-values.numel() // PROGRAM_NUMEL))
        sums = torch.empty(programs, dtype=torch.float64, device=values.device)
        codes = _codes(values)
        octets = codes if bits is None else _mask(bits)[0]
        options = {"MASKED": bits is not None, "BLOCK": PROGRAM_NUMEL}
        self._launch("square_sum", values, codes, octets, values.numel(), sums, programs=programs, **options)
        return sums.sum()

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        if not operands.bits.nnz:
            return
        weights, packed = operands.weights, operands.gradient.packed
        slopes = operands.gradient.values if packed else _codes(operands.gradient.values)
        # A launch needs some address for a master that the kernel does not read.
        state = exp_avg, exp_avg_sq, exp_avg if operands.master is None else operands.master
        tensors = _codes(weights), slopes, *_mask(operands.bits), *state
        options = {"PACKED": packed, "MASTER": operands.master is not None, "BLOCK": PROGRAM_NUMEL, "WORD": PAD_BITS}
        self._launch("adamw", weights, *tensors, *step.factors(), **options)

    def _launch(self, name: str, like: torch.Tensor, *args: Any, programs: int | None = None, **options: Any) -> None:
        programs = programs or -(-like.numel() // PROGRAM_NUMEL)
        with _LOCK, _on(like.device):
            # A fused multiply-add would round once where PyTorch rounds twice.
            getattr(triton_kernels, name)[(programs,)](*args, **options, enable_fp_fusion=False)


def _codes(values: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as integers."""
    return values.detach().view(torch.int16 if values.element_size() == 2 else torch.int32)


def _mask(bits: Bits) -> tuple[torch.Tensor, torch.Tensor, int]:
    return bits.words.view(torch.uint8), bits.rank, bits.numel


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Make a device current: Triton launches there, wherever the tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
