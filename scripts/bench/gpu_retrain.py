"""Measures masked steps on the GPU, beside PyTorch's AdamW and a copy on the GPU.

Layers of random weights are updated by maskreg's Triton kernels with dense gradients, and by ``torch.optim.AdamW`` on
fp32 parameters with fp32 gradients: for bf16 weights those are master copies, copied back after each step. Times are
GPU times; the best repetition counts. Bytes are those a masked step must read and write: weights, gradients, bits,
ranks and state. The results of a masked step are compared with PyTorch operations first. ``accumulate`` adds all masked
gradients to packed ones, and ``squares`` sums their squares.

  python -m scripts.bench.gpu_retrain --json gpu.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from maskreg.train.optim.backends import Plain
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.step import AdamWStep, Backend, Gradient, Operands
from scripts.bench.gpu import UNAVAILABLE, gpu

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NOW = AdamWStep(1e-5, 0.9, 0.999, 1e-8, 0.01, 10)


@dataclass(frozen=True)
class Layer:
    """Weights, gradient, mask and optimizer state."""

    weights: torch.Tensor
    gradient: torch.Tensor
    bits: Bits
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    master: torch.Tensor | None

    def step(self, backend: Backend) -> None:
        """One AdamW step."""
        on = Operands(self.weights, Gradient(self.gradient, packed=False), self.bits, self.master)
        backend.adamw(on, self.exp_avg, self.exp_avg_sq, NOW)

    @property
    def nbytes(self) -> int:
        """Bytes that a step reads and writes."""
        state = (self.exp_avg, self.exp_avg_sq, *([] if self.master is None else [self.master]))
        once = self.gradient.nbytes + self.bits.nbytes
        return once + 2 * (self.weights.nbytes + sum(entries.nbytes for entries in state))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default cuda)")
    parser.add_argument("--layers", type=int, default=12, help="number of layers (default 12)")
    parser.add_argument("--width", type=int, default=8192, help="of each square layer (default 8192)")
    parser.add_argument("--densities", type=float, nargs="+", default=[0.01, 0.25, 0.48, 1.0], help="of masks")
    parser.add_argument("--repeat", type=int, default=10, help="repetitions; the best counts (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser.parse_args()


def main() -> int:
    """Measure, print a table, and write JSON if requested."""
    options = parsed()
    device = gpu(options.device)
    if device is None:
        return UNAVAILABLE
    torch.cuda.set_device(device)
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    print(f"{machine}, {options.layers} layers of {options.width} x {options.width}")
    rows = []
    for row in measured(options, device):
        print("  ".join(f"{name} {value if isinstance(value, str) else f'{value:.3f}'}" for name, value in row.items()))
        rows.append(row)
    if options.json:
        result = {"machine": machine, "layers": options.layers, "width": options.width, "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def measured(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, str | float]]:
    """A row for every dtype and density."""
    from maskreg.train.optim.triton_step import Triton

    backend, params = Triton(), options.layers * options.width**2
    copied = copy_speed(options.repeat, device)
    for name, dtype in DTYPES.items():
        fused, foreach = (best(dense(options, dtype, kind, device), options.repeat) for kind in ("fused", "foreach"))
        for density in options.densities:
            compare(layer(1 << 22, dtype, density, device), backend)
            layers = [layer(options.width**2, dtype, density, device) for _ in range(options.layers)]
            masked = best(lambda layers=layers: step(layers, backend), options.repeat)  # type: ignore[misc]
            add = best(lambda layers=layers: accumulate(layers, backend), options.repeat)  # type: ignore[misc]
            square = best(lambda layers=layers: squares(layers, backend), options.repeat)  # type: ignore[misc]
            moved = sum(entry.nbytes for entry in layers)
            speed = moved / masked / 1e6
            yield {
                "dtype": name,
                "density": density,
                "ms": masked,
                "fused_ms": fused,
                "foreach_ms": foreach,
                "of_fused": masked / fused,
                "bytes_per_param": moved / params,
                "gb_per_s": speed,
                "of_copy": speed / copied,
                "accumulate_ms": add,
                "squares_ms": square,
            }
            del layers


def step(layers: list[Layer], backend: Backend) -> None:
    """A masked step of all layers."""
    for entry in layers:
        entry.step(backend)


def accumulate(layers: list[Layer], backend: Backend) -> None:
    """Add all gradients to packed ones."""
    for entry in layers:
        backend.accumulate(entry.exp_avg, entry.gradient, entry.bits)


def squares(layers: list[Layer], backend: Backend) -> None:
    """Sum the squares of all masked gradients."""
    for entry in layers:
        backend.square_sum(entry.gradient, entry.bits)


def copy_speed(repeat: int, device: torch.device) -> float:
    """GB/s read and written by a copy on the device."""
    left, right = torch.empty(2, 1 << 29, dtype=torch.uint8, device=device)
    return 2.0 * int(left.nbytes) / best(lambda: left.copy_(right), repeat) / 1e6


def layer(numel: int, dtype: torch.dtype, density: float, device: torch.device) -> Layer:
    """Random weights, gradient and mask."""
    weights = (torch.randn(numel, device=device) * 0.02).to(dtype)
    rng = np.random.default_rng(0)
    moved = [np.packbits(rng.random(1 << 20, np.float32) < density, bitorder="little") for _ in range(numel >> 20)]
    bits = Bits.of(np.concatenate(moved), numel, device)
    state = [torch.zeros(bits.nnz, device=device) for _ in range(3)]
    Plain().accumulate(state[2], weights, bits)
    gradient = (torch.randn(numel, device=device) * 1e-3).to(dtype)
    return Layer(weights, gradient, bits, state[0], state[1], None if dtype == torch.float32 else state[2])


def compare(entry: Layer, backend: Backend) -> None:
    """Check a step against PyTorch operations."""
    values = [entry.weights, entry.exp_avg, entry.exp_avg_sq, *([] if entry.master is None else [entry.master])]
    before = [tensor.clone() for tensor in values]
    entry.step(backend)
    results = [tensor.clone() for tensor in values]
    for tensor, old in zip(values, before, strict=True):
        tensor.copy_(old)
    entry.step(Plain())
    fp32 = results[0], values[0]
    if entry.master is not None:
        if (results[0].view(torch.int16).int() - values[0].view(torch.int16).int()).abs().max() > 1:
            raise SystemExit("bf16 weights differ by more than one rounding")
        fp32 = results[3], values[3]
    if (fp32[0] - fp32[1]).abs().max() > 0.01 * NOW.lr:
        raise SystemExit("weights differ by more than a hundredth of the learning rate")


def dense(options: argparse.Namespace, dtype: torch.dtype, kind: str, device: torch.device) -> Callable[[], object]:
    """A step of PyTorch's AdamW on fp32 parameters, copied back where weights are bf16."""
    shapes = [(options.width, options.width)] * options.layers
    masters = [torch.nn.Parameter(torch.randn(shape, device=device) * 0.02) for shape in shapes]
    weights = [p.detach().to(dtype) for p in masters] if dtype != torch.float32 else []
    for p in masters:
        p.grad = torch.randn_like(p) * 1e-3
    optimizer = torch.optim.AdamW(masters, lr=NOW.lr, fused=kind == "fused", foreach=kind == "foreach")

    @torch.no_grad()
    def step() -> None:
        optimizer.step()
        if weights:
            torch._foreach_copy_(weights, [p.detach() for p in masters])

    return step


def best(work: Callable[[], object], repeat: int) -> float:
    """Milliseconds of the fastest repetition, after two for warm-up."""
    times = []
    for _ in range(repeat + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)))
    return min(times[2:])


if __name__ == "__main__":
    sys.exit(main())
