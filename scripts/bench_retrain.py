"""How long steps on a mask take beside PyTorch's AdamW, and what memory training takes.

The model is a row of square linear layers without biases. PyTorch's optimizer works on fp32 parameters; where weights
are bf16 those are master copies, which are copied back after each step, and its gradients are there in fp32 already, so
that it is charged for no cast. Its memory is that of the sparest way to do so: each gradient is widened, used and freed
alone. Both run by turns in one process, and the fastest run of each counts. Memory is that of a process of its own: its
largest resident set, less what it took before there was a model.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

import bench_memory
import numpy as np
import torch

from maskreg.mask.packed import TensorMask, pack_runs
from maskreg.train import MaskedAdamW

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
GRADIENTS = ("dense", "packed", "in-backward")
LR = 1e-5
TOKENS = 8

STATE_BARS = {"bf16": 12, "fp32": 8}
"""Bytes of state that a masked coordinate may take; any coordinate may take a quarter."""


@dataclass(frozen=True)
class StepTime:
    """Steps of one optimizer on all layers, gradients dense.

    Attributes:
        dtype: of the weights.
        density: of the mask.
        threads: of PyTorch and of maskreg.
        seconds: a masked step.
        fused_seconds: a step of ``torch.optim.AdamW(fused=True)``.
        foreach_seconds: and of ``foreach=True``.
        of_fastest: seconds as a share of the faster of those two.
    """

    dtype: str
    density: float
    threads: int
    seconds: float
    fused_seconds: float
    foreach_seconds: float
    of_fastest: float


@dataclass(frozen=True)
class Memory:
    """Bytes for each parameter of a model that is trained.

    Attributes:
        dtype: of the weights.
        gradients: how the optimizer takes them, or ``AdamW`` for PyTorch's dense one.
        density: of the mask.
        state: of the optimizer: moments, master copies, and the mask's bits and ranks.
        state_bar: what that may come to.
        peak: all of it, with weights, gradients and activations.
        seconds: a step, forwards and backwards.
    """

    dtype: str
    gradients: str
    density: float
    state: float
    state_bar: float
    peak: float
    seconds: float


@dataclass(frozen=True)
class Retraining:
    """All figures.

    Attributes:
        layers: of the model.
        width: of each layer.
        params: of the model.
        steps: times of steps.
        memory: of training.
    """

    layers: int
    width: int
    params: int
    steps: list[StepTime]
    memory: list[Memory]


def bench(
    layers: int,
    width: int,
    densities: Sequence[float],
    threads: Sequence[int],
    repeat: int,
    say: Callable[[str], None],
) -> Retraining:
    """Measure all of it."""
    steps = []
    before = torch.get_num_threads()
    for count in threads:
        torch.set_num_threads(count)
        for dtype in DTYPES:
            for density in densities:
                say(f"steps of {dtype} weights at density {density:g}, {count} threads")
                steps.append(step_time(layers, width, dtype, density, repeat))
    torch.set_num_threads(before)
    ways = [("AdamW", 1.0), *((gradients, density) for density in densities for gradients in GRADIENTS)]
    rows = [(dtype, gradients, density) for dtype in DTYPES for gradients, density in ways]
    say(f"memory of {len(rows)} ways to train")
    return Retraining(layers, width, layers * width * width, steps, alone(layers, width, rows))


def alone(layers: int, width: int, rows: Sequence[tuple[str, str, float]]) -> list[Memory]:
    """What :func:`memory` finds, each in a process of its own."""
    # What is freed goes back to the system at once, so that a peak is what is used.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    # Their parent has loaded all of it once, and never computed anything, so that none inherits threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "bench_retrain"])
    found = []
    for row in rows:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=tell, args=(there, layers, width, *row))
        process.start()
        there.close()
        try:
            found.append(here.recv())
        except EOFError:
            raise SystemExit("memory could not be measured") from None
        process.join()
    return found


def tell(there: Connection, layers: int, width: int, dtype: str, gradients: str, density: float) -> None:
    """Send what :func:`memory` finds."""
    there.send(memory(layers, width, dtype, gradients, density))


def model(layers: int, width: int, dtype: str) -> torch.nn.Sequential:
    """Square layers of random weights."""
    torch.manual_seed(0)
    net = torch.nn.Sequential()
    for _ in range(layers):
        net.append(torch.nn.Linear(width, width, bias=False, dtype=DTYPES[dtype]))
    return net


def random_mask(net: torch.nn.Module, density: float) -> dict[str, TensorMask]:
    """Coordinates of that density, some rows at a time."""
    drawn = np.random.default_rng(1)
    found = {}
    for name, p in net.named_parameters():
        rows = (drawn.random(p.shape[1], np.float32) < density for _ in range(p.shape[0]))
        found[name] = TensorMask(name, tuple(p.shape), pack_runs(rows))
    return found


def step_time(layers: int, width: int, dtype: str, density: float, repeat: int) -> StepTime:
    """Steps of both by turns, gradients there beforehand."""
    net = model(layers, width, dtype)
    for p in net.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    ours = MaskedAdamW(net.named_parameters(), lr=LR, mask=random_mask(net, density))
    dense = {name: dense_step(net, name) for name in ("fused", "foreach")}
    ways: dict[str, Callable[[], object]] = {"ours": ours.step, **dense}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat + 1):
        for name, step in ways.items():
            begun = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begun)
    best = {name: min(times[1:]) for name, times in seconds.items()}
    of_fastest = best["ours"] / min(best["fused"], best["foreach"])
    return StepTime(
        dtype, density, torch.get_num_threads(), best["ours"], best["fused"], best["foreach"], of_fastest
    )  # fmt: skip


def dense_step(net: torch.nn.Module, kind: str) -> Callable[[], object]:
    """A step of PyTorch's AdamW on fp32 copies that have their gradients, and the copy back where weights are bf16."""
    weights = [p.detach().clone() for p in net.parameters()]
    wide = [torch.nn.Parameter(p.detach().float().clone()) for p in net.parameters()]
    for one, p in zip(wide, net.parameters(), strict=True):
        assert p.grad is not None
        one.grad = p.grad.float()
    optimizer = torch.optim.AdamW(wide, lr=LR, fused=kind == "fused", foreach=kind == "foreach")

    @torch.no_grad()
    def step() -> None:
        optimizer.step()
        if weights[0].dtype != torch.float32:
            for one, weight in zip(wide, weights, strict=True):
                weight.copy_(one)

    return step


def memory(layers: int, width: int, dtype: str, gradients: str, density: float) -> Memory:
    """Train for three steps, with what is loaded and compiled at the first step left out."""
    train(model(1, 64, dtype), gradients, density)
    before = bench_memory.resident()
    net = model(layers, width, dtype)
    params = sum(p.numel() for p in net.parameters())
    state, seconds = train(net, gradients, density)
    most = STATE_BARS[dtype] * density + 0.25
    return Memory(dtype, gradients, density, state / params, most, (bench_memory.peak() - before) / params, seconds)


def train(net: torch.nn.Module, gradients: str, density: float) -> tuple[int, float]:
    """Three steps: bytes of state, and seconds of the last."""
    state = dense_training(net) if gradients == "AdamW" else masked_training(net, gradients, density)
    x = torch.randn(TOKENS, next(net.parameters()).shape[1], dtype=next(net.parameters()).dtype)
    size, seconds = 0, 0.0
    for _ in range(3):
        begun = time.perf_counter()
        net(x).float().square().mean().backward()
        size = state()
        seconds = time.perf_counter() - begun
    return size, seconds


def masked_training(net: torch.nn.Module, gradients: str, density: float) -> Callable[[], int]:
    """What takes a masked step, and says how large its state is."""
    kind: Literal["dense", "packed", "in-backward"] = gradients  # type: ignore[assignment]
    optimizer = MaskedAdamW(net.named_parameters(), lr=LR, mask=random_mask(net, density), gradients=kind)

    def step() -> int:
        optimizer.step()
        optimizer.zero_grad()
        return optimizer.state_bytes

    return step


def dense_training(net: torch.nn.Module) -> Callable[[], int]:
    """What takes a dense step on fp32, a parameter at a time, and says how large its state is."""
    pairs = [(p, p if p.dtype == torch.float32 else torch.nn.Parameter(p.detach().float())) for p in net.parameters()]
    optimizers = [torch.optim.AdamW([wide], lr=LR, fused=True) for _, wide in pairs]

    @torch.no_grad()
    def step() -> int:
        size = 0
        for (p, wide), optimizer in zip(pairs, optimizers, strict=True):
            assert p.grad is not None
            if wide is not p:
                wide.grad = p.grad.float()
                size += wide.nbytes
            optimizer.step()
            if wide is not p:
                p.copy_(wide)
            p.grad = wide.grad = None
            size += sum(value.nbytes for value in optimizer.state[wide].values())
        return size

    return step


def table(found: Retraining) -> str:
    """The figures for people."""
    return "\n".join(
        [f"{found.layers} layers of {found.width} x {found.width}", *step_lines(found), *memory_lines(found)]
    )


def step_lines(found: Retraining) -> Iterable[str]:
    """Times."""
    names = "weights", "density", "threads", "masked ms", "fused ms", "foreach ms", "of fastest"
    yield "".join(f"{name:>12}" for name in names)
    for row in found.steps:
        times = (f"{1e3 * seconds:.1f}" for seconds in (row.seconds, row.fused_seconds, row.foreach_seconds))
        cells = row.dtype, f"{row.density:g}", str(row.threads), *times, f"{row.of_fastest:.2f}"
        yield "".join(f"{cell:>12}" for cell in cells)


def memory_lines(found: Retraining) -> Iterable[str]:
    """Bytes."""
    names = "weights", "density", "gradients", "state B/p", "at most", "peak B/p", "s/step"
    yield "".join(f"{name:>12}" for name in names)
    for row in found.memory:
        most = "" if row.gradients == "AdamW" else f"{row.state_bar:.2f}"
        cells = row.dtype, f"{row.density:g}", row.gradients, f"{row.state:.2f}", most, f"{row.peak:.2f}"
        yield "".join(f"{cell:>12}" for cell in (*cells, f"{row.seconds:.2f}"))
