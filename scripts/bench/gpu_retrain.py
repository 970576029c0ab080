"""Measures masked steps on the GPU, beside PyTorch's AdamW and beside a copy on the GPU.

Layers of random weights are updated by maskreg's Triton kernels, gradients dense, and by ``torch.optim.AdamW`` on fp32
parameters whose gradients are there in fp32: master copies that are copied back after each step, where weights are
bf16. Seconds are the GPU's; the best of some repetitions counts. Bytes are what a masked step has to read and write:
weights, gradients, bits, ranks and state. All that a masked step makes is compared with PyTorch's operations first.

  python -m scripts.bench.gpu_retrain --json gpu.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from maskreg.train.optim.bits import Bits
from maskreg.train.optim.plain import Plain
from maskreg.train.optim.step import AdamWStep, Backend, Gradient, Operands
from scripts.bench.device import UNAVAILABLE, gpu

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NOW = AdamWStep(1e-5, 0.9, 0.999, 1e-8, 0.01, 10)


@dataclass(frozen=True)
class Row:
    """Steps on all layers.

    Attributes:
        dtype: of the weights.
        density: of the mask.
        milliseconds: of a masked step.
        fused_milliseconds: of ``torch.optim.AdamW(fused=True)``.
        foreach_milliseconds: and of ``foreach=True``.
        of_fused: milliseconds as a share of fused ones.
        bytes_per_param: that a masked step moves.
        gb_per_s: bytes that it moves a second.
        of_copy: that as a share of what a copy moves.
        accumulate_milliseconds: of adding all masked gradients into packed ones.
        square_sum_milliseconds: of summing the squares of all masked gradients.
    """

    dtype: str
    density: float
    milliseconds: float
    fused_milliseconds: float
    foreach_milliseconds: float
    of_fused: float
    bytes_per_param: float
    gb_per_s: float
    of_copy: float
    accumulate_milliseconds: float
    square_sum_milliseconds: float


@dataclass(frozen=True)
class Layer:
    """Weights, a gradient, a mask, and state."""

    weights: torch.Tensor
    gradient: torch.Tensor
    bits: Bits
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    master: torch.Tensor | None

    def step(self, backend: Backend) -> None:
        """One of AdamW."""
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
    parser.add_argument("--layers", type=int, default=12, help="how many (default 12)")
    parser.add_argument("--width", type=int, default=8192, help="of each, which is square (default 8192)")
    parser.add_argument("--densities", type=float, nargs="+", default=[0.01, 0.25, 0.48, 1.0], help="of masks")
    parser.add_argument("--repeat", type=int, default=10, help="times each is run; the best counts (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    return parser.parse_args()


def main() -> int:
    """Measure, print a table, and write JSON where it is wanted."""
    options = parsed()
    device = gpu(options.device)
    if device is None:
        return UNAVAILABLE
    torch.cuda.set_device(device)
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    print(f"{machine}, {options.layers} layers of {options.width} x {options.width}")
    rows = []
    for row in measured(options, device):
        print(
            f"{row.dtype} p={row.density:<5g} {row.milliseconds:8.3f} ms, fused {row.fused_milliseconds:8.3f} "
            f"({row.of_fused:.2f}), foreach {row.foreach_milliseconds:8.3f}; {row.bytes_per_param:6.2f} B/param, "
            f"{row.gb_per_s:7.1f} GB/s, {row.of_copy:.0%} of a copy; accumulate {row.accumulate_milliseconds:.3f} ms, "
            f"squares {row.square_sum_milliseconds:.3f} ms",
            flush=True,
        )
        rows.append(row)
    if options.json:
        found = {"machine": machine, "layers": options.layers, "width": options.width, "rows": [*map(asdict, rows)]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def measured(options: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """A row for every dtype and density."""
    from maskreg.train.optim.triton_step import Triton

    backend, params = Triton(), options.layers * options.width**2
    copied = copy_speed(options.repeat, device)
    for name, dtype in DTYPES.items():
        fused, foreach = (best(dense(options, dtype, kind, device), options.repeat) for kind in ("fused", "foreach"))
        for density in options.densities:
            compare(layer(1 << 22, dtype, density, device), backend)
            layers = [layer(options.width**2, dtype, density, device) for _ in range(options.layers)]
            ours = best(lambda layers=layers: step(layers, backend), options.repeat)  # type: ignore[misc]
            add = best(lambda layers=layers: accumulate(layers, backend), options.repeat)  # type: ignore[misc]
            square = best(lambda layers=layers: squares(layers, backend), options.repeat)  # type: ignore[misc]
            moved = sum(one.nbytes for one in layers)
            speed = moved / ours / 1e6
            yield Row(
                name, density, ours, fused, foreach, ours / fused, moved / params, speed, speed / copied, add, square
            )  # fmt: skip
            del layers


def step(layers: list[Layer], backend: Backend) -> None:
    """A masked step of all layers."""
    for one in layers:
        one.step(backend)


def accumulate(layers: list[Layer], backend: Backend) -> None:
    """Add all gradients to packed ones."""
    for one in layers:
        backend.accumulate(one.exp_avg, one.gradient, one.bits)


def squares(layers: list[Layer], backend: Backend) -> None:
    """Sum the squares of all masked gradients."""
    for one in layers:
        backend.square_sum(one.gradient, one.bits)


def copy_speed(repeat: int, device: torch.device) -> float:
    """GB/s that a copy on the device reads and writes."""
    room, other = torch.empty(2, 1 << 29, dtype=torch.uint8, device=device)
    return 2.0 * int(room.nbytes) / best(lambda: room.copy_(other), repeat) / 1e6


def layer(numel: int, dtype: torch.dtype, density: float, device: torch.device) -> Layer:
    """Random weights, gradient and mask."""
    weights = (torch.randn(numel, device=device) * 0.02).to(dtype)
    drawn = np.random.default_rng(0)
    moved = [np.packbits(drawn.random(1 << 20, np.float32) < density, bitorder="little") for _ in range(numel >> 20)]
    bits = Bits.of(np.concatenate(moved), numel, device)
    state = [torch.zeros(bits.nnz, device=device) for _ in range(3)]
    Plain().accumulate(state[2], weights, bits)
    gradient = (torch.randn(numel, device=device) * 1e-3).to(dtype)
    return Layer(weights, gradient, bits, state[0], state[1], None if dtype == torch.float32 else state[2])


def compare(one: Layer, backend: Backend) -> None:
    """Check a step against PyTorch's operations.

    Raises:
        SystemExit: weights differ by more than a hundredth of the rate, or bf16 ones by more than a code.
    """
    held = [one.weights, one.exp_avg, one.exp_avg_sq, *([] if one.master is None else [one.master])]
    before = [values.clone() for values in held]
    one.step(backend)
    made = [values.clone() for values in held]
    for values, old in zip(held, before, strict=True):
        values.copy_(old)
    one.step(Plain())
    exact = made[0], held[0]
    if one.master is not None:
        if (made[0].view(torch.int16).int() - held[0].view(torch.int16).int()).abs().max() > 1:
            raise SystemExit("bf16 weights differ by more than a rounding")
        exact = made[3], held[3]
    if (exact[0] - exact[1]).abs().max() > 0.01 * NOW.lr:
        raise SystemExit("weights differ by more than a hundredth of the rate")


def dense(options: argparse.Namespace, dtype: torch.dtype, kind: str, device: torch.device) -> Callable[[], object]:
    """A step of PyTorch's AdamW on fp32 parameters, and the copy back where weights are bf16."""
    shapes = [(options.width, options.width)] * options.layers
    wide = [torch.nn.Parameter(torch.randn(shape, device=device) * 0.02) for shape in shapes]
    weights = [p.detach().to(dtype) for p in wide] if dtype != torch.float32 else []
    for p in wide:
        p.grad = torch.randn_like(p) * 1e-3
    optimizer = torch.optim.AdamW(wide, lr=NOW.lr, fused=kind == "fused", foreach=kind == "foreach")

    @torch.no_grad()
    def step() -> None:
        optimizer.step()
        if weights:
            torch._foreach_copy_(weights, [p.detach() for p in wide])

    return step


def best(work: Callable[[], object], repeat: int) -> float:
    """Milliseconds of the fastest repetition, after two that are not timed."""
    times = []
    for _ in range(repeat + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return min(times[2:])


if __name__ == "__main__":
    sys.exit(main())
