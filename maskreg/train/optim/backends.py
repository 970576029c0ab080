"""What takes the steps where there is no Triton, and which backend works on which tensors: the fastest that can.

``Plain`` has PyTorch's own operations, on any device, bit for bit what its optimizers do to an fp32 copy. In slices of
2^20 coordinates, masked weights, gradients and state are gathered into vectors, updated by the functions of
``torch.optim`` and scattered back, so that the workspace stays below 64 MiB for tensors of any size.

``Cpu`` has kernels: one pass over weights, gradient and state, on as many threads as PyTorch uses. All tensors go to
one call: between calls, Python finds nothing of what it needs in the caches, because gigabytes went through them, and
threads wait for the last one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch.optim.adamw import adamw as torch_adamw

from maskreg.extras import install_command
from maskreg.live.memory import CODES
from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.bits import SLICE_WORDS, Bits, Slice
from maskreg.train.optim.cpu_steps import (
    Codes,
    MaskWords,
    TensorCodes,
    Update,
    Values,
    accumulate,
    square_sums,
    take_steps,
)
from maskreg.train.optim.step import (
    AdamWStep,
    AdamWUpdate,
    Backend,
    Gradient,
    Operands,
)


class Plain(Backend):
    """Runs wherever PyTorch does."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, offsets in bits.masked_slices():
            total[part.entries].add_(gradient[part.coordinates].index_select(0, offsets))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        total = torch.zeros((), dtype=torch.float64, device=values.device)
        if bits is None:
            chunks = iter(torch.split(values, SLICE_WORDS * PAD_BITS))
        else:
            chunks = (values[part.coordinates].index_select(0, offsets) for part, offsets in bits.masked_slices())
        for chunk in chunks:
            total += chunk.double().square().sum()
        return total

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, offsets in operands.bits.masked_slices():
            values = _values(operands, part, offsets)
            torch_adamw(
                [values],
                [_gradient(operands.gradient, part, offsets, step.scale)],
                [exp_avg[part.entries]],
                [exp_avg_sq[part.entries]],
                [],
                # PyTorch counts it up before it uses it.
                [torch.tensor(float(step.step - 1))],
                foreach=False,
                amsgrad=False,
                beta1=step.beta1,
                beta2=step.beta2,
                lr=step.lr,
                weight_decay=step.weight_decay,
                eps=step.eps,
                maximize=False,
            )
            operands.weights[part.coordinates].scatter_(0, offsets, values.to(operands.weights.dtype))


def _values(operands: Operands, part: Slice, offsets: torch.Tensor) -> torch.Tensor:
    """fp32 values to update: gathered weights, or a view of the master copy, with weights that were loaded taken in.

    A step leaves every weight as the rounding of its master. One that is anything else was written since, by
    ``load_state_dict`` or an average of weights, and counts: with the master ``0x3F80_4000``, the weight ``0x3F80``
    becomes that, but ``0x3F90`` stays ``0x3F90_0000``.
    """
    weights = operands.weights[part.coordinates].index_select(0, offsets)
    if operands.master is None:
        return weights
    master = operands.master[part.entries]
    codes = CODES[weights.element_size()]
    kept = master.to(weights.dtype).view(codes) == weights.view(codes)
    return torch.where(kept, master, weights.float(), out=master)


def _gradient(gradient: Gradient, part: Slice, offsets: torch.Tensor, scale: float) -> torch.Tensor:
    if gradient.packed:
        values = gradient.values[part.entries]
        return values if scale == 1.0 else values * scale
    values = gradient.values[part.coordinates].index_select(0, offsets).float()
    return values if scale == 1.0 else values.mul_(scale)


DTYPES = (torch.float32, torch.bfloat16)
"""Of weights and of dense gradients."""

_EMPTY = np.empty(0, np.float32)


class Cpu(Backend):
    """Works on contiguous tensors on the CPU, of :data:`DTYPES`."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        accumulate(total.numpy(), _codes(gradient), _mask(bits))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        return self.square_sums([(values, bits)])[0]

    def square_sums(self, each: Sequence[tuple[torch.Tensor, Bits | None]]) -> list[torch.Tensor]:
        """See :class:`maskreg.train.optim.step.Backend`."""
        sums = square_sums([Values(_codes(values), None if bits is None else _mask(bits)) for values, bits in each])
        return [torch.tensor(total, dtype=torch.float64) for total in sums]

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        self.update([AdamWUpdate(operands, exp_avg, exp_avg_sq, step)])

    def update(self, each: Sequence[AdamWUpdate]) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        take_steps(
            [
                Update(_tensors(operands, exp_avg, exp_avg_sq), _mask(operands.bits), step.factors())
                for operands, exp_avg, exp_avg_sq, step in each
            ]
        )


def _codes(values: torch.Tensor) -> Codes:
    """A tensor's memory as unsigned integers, so that no operation can change the bits of a NaN."""
    values = values.detach()
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy().view(np.uint32)


def _tensors(operands: Operands, first: torch.Tensor, second: torch.Tensor) -> TensorCodes:
    weights, slopes, packed = _codes(operands.weights), operands.gradient.values, operands.gradient.packed
    if (operands.master is None) == (weights.itemsize == 2):
        raise ValueError("bf16 weights have masters, fp32 weights have none")
    dense, entries = (weights[:0], slopes.numpy()) if packed else (_codes(slopes), _EMPTY)
    master = _EMPTY if operands.master is None else operands.master.numpy()
    return TensorCodes(weights, dense, entries, master, first.numpy(), second.numpy())


def _mask(bits: Bits) -> MaskWords:
    return MaskWords(bits.words.numpy().view(np.uint64), bits.rank.numpy(), bits.nnz)


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
    return gpu_backend() or _PLAIN if kinds == {"cuda"} else _PLAIN


@cache
def gpu_backend() -> Backend | None:
    """Triton; None, with a warning, where it is not installed."""
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
