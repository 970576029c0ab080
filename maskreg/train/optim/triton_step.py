"""Steps on a GPU by Triton's kernels, one launch for each tensor.

This module and its kernels alone import Triton, and are imported only when there is a GPU to take steps on. With
``TRITON_INTERPRET=1`` in the environment Triton runs the kernels on the CPU, slowly: that is for tests.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim import triton_kernels
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.step import Adam, Operands, Sgd

_BLOCK = 1024
"""Coordinates that a program works on."""

_SUMS = 4096
"""Programs that share the blocks of a sum: more than any GPU runs at once."""

_LOCK = threading.Lock()
"""Nothing is compiled twice, and Triton's interpreter serves one thread at a time."""


class Triton:
    """Works on contiguous tensors of fp32 or bf16, all on one GPU."""

    def accumulate(self, into: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        if bits.nnz:
            self._launch("accumulate", gradient, into, _codes(gradient), *_mask(bits), BLOCK=_BLOCK, WORD=PAD_BITS)

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        if not (values.numel() if bits is None else bits.nnz):
            return torch.zeros((), dtype=torch.float64, device=values.device)
        programs = min(_SUMS, -(-values.numel() // _BLOCK))
        sums = torch.empty(programs, dtype=torch.float64, device=values.device)
        codes = _codes(values)
        octets = codes if bits is None else _mask(bits)[0]
        options = {"MASKED": bits is not None, "BLOCK": _BLOCK}
        self._launch("square_sum", values, codes, octets, values.numel(), sums, programs=programs, **options)
        return sums.sum()

    def adamw(self, on: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, now: Adam) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        self._step("adamw", on, exp_avg, exp_avg_sq, _there(on.master, exp_avg), now.scale, *now.factors())

    def sgd(self, on: Operands, velocity: torch.Tensor | None, now: Sgd) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        state = _there(velocity, on.weights), _there(on.master, on.weights)
        numbers = float(now.scale), float(now.weight_decay), float(now.momentum), float(now.lr)
        self._step("sgd", on, *state, *numbers, MOMENTUM=velocity is not None, NESTEROV=now.nesterov)

    def _step(self, name: str, on: Operands, *rest: Any, **options: bool) -> None:
        if not on.bits.nnz:
            return
        weights, packed = on.weights, on.gradient.packed
        slopes = on.gradient.values if packed else _codes(on.gradient.values)
        options |= {"PACKED": packed, "MASTER": on.master is not None}
        sizes = {"BLOCK": _BLOCK, "WORD": PAD_BITS}
        self._launch(name, weights, _codes(weights), slopes, *_mask(on.bits), *rest, **options, **sizes)

    def _launch(self, name: str, like: torch.Tensor, *args: Any, programs: int | None = None, **options: Any) -> None:
        programs = programs or -(-like.numel() // _BLOCK)
        with _LOCK, _on(like.device):
            getattr(triton_kernels, name)[(programs,)](*args, **options, enable_fp_fusion=False)


def _there(state: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """State, or something in its place: what is not there is not read either, but has to be an address."""
    return other if state is None else state


def _codes(values: torch.Tensor) -> torch.Tensor:
    """A tensor's memory, as numbers that say nothing."""
    return values.detach().view(torch.int16 if values.element_size() == 2 else torch.int32)


def _mask(bits: Bits) -> tuple[torch.Tensor, torch.Tensor, int]:
    return bits.words.view(torch.uint8), bits.rank, bits.numel


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton works on the current device, whatever the tensors say."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
