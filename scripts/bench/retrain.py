"""Time of a masked optimizer step beside PyTorch's AdamW, and memory of training.

The model is a stack of square linear layers without biases. PyTorch's optimizer updates fp32 parameters: for bf16
weights those are master copies, copied back after each step. Its gradients are in fp32 beforehand, so it is not charged
for a cast. Its memory is measured in the way that needs least: each gradient is widened, used and freed alone. Both
optimizers take turns in one process and the fastest repetition of each counts. Each memory figure comes from a process
of its own: its peak resident set, less what it held before the model existed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

import numpy as np
import torch

from maskreg.mask.packed import TensorMask, pack_spans
from maskreg.train import MaskedAdamW
from scripts.bench import process_memory

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
GradientStorage = Literal["dense", "packed", "in-backward"]
LR = 1e-5
TOKENS = 8

MAX_STATE = {"bf16": 12, "fp32": 8}
"""Bytes of state allowed for a masked coordinate; a quarter of a byte is allowed for any coordinate."""


@dataclass(frozen=True)
class Model:
    """Sizes of the model."""

    layers: int
    width: int

    @property
    def params(self) -> int:
        """Number of weights."""
        return self.layers * self.width**2

    def build(self, dtype: str) -> torch.nn.Sequential:
        """Layers of random weights."""
        torch.manual_seed(0)
        linear = (torch.nn.Linear(self.width, self.width, bias=False, dtype=DTYPES[dtype]) for _ in range(self.layers))
        return torch.nn.Sequential(*linear)


@dataclass(frozen=True)
class Case:
    """One way to train.

    Attributes:
        dtype: of the weights.
        density: of the mask.
        gradients: how the masked optimizer stores them; None for PyTorch's AdamW on all coordinates.
    """

    dtype: str
    density: float
    gradients: GradientStorage | None


@dataclass(frozen=True)
class StepTime:
    """One optimizer step on all layers, with dense gradients.

    Attributes:
        dtype: of the weights.
        density: of the mask.
        threads: of PyTorch and maskreg.
        seconds: of a masked step.
        fused_seconds: of ``torch.optim.AdamW(fused=True)``.
        foreach_seconds: of ``torch.optim.AdamW(foreach=True)``.
        of_fastest: ``seconds`` / the smaller of those two.
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
    """Bytes for each parameter of a model in training.

    Attributes:
        dtype: of the weights.
        gradients: storage of gradients, or ``AdamW`` for PyTorch's optimizer.
        density: of the mask.
        state: of the optimizer: moments, master copies, mask bits and ranks.
        state_bar: what ``state`` may be at most.
        peak: weights, gradients, activations and state together.
        seconds: of a step, forward and backward included.
    """

    dtype: str
    gradients: str
    density: float
    state: float
    state_bar: float
    peak: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """All figures.

    Attributes:
        layers: of the model.
        width: of each layer.
        params: of the model.
        steps: step times.
        memory: memory of training.
    """

    layers: int
    width: int
    params: int
    steps: list[StepTime]
    memory: list[Memory]


def bench(
    model: Model, densities: Sequence[float], threads: Sequence[int], repeat: int, say: Callable[[str], None]
) -> Result:
    """Measure all of it; ``say`` gets progress messages."""
    steps = []
    before = torch.get_num_threads()
    for count in threads:
        torch.set_num_threads(count)
        for dtype in DTYPES:
            for density in densities:
                say(f"steps of {dtype} weights at density {density:g}, {count} threads")
                steps.append(step_time(model, dtype, density, repeat))
    torch.set_num_threads(before)
    cases = []
    for dtype in DTYPES:
        cases.append(Case(dtype, 1.0, None))
        for density in densities:
            cases += [
                Case(dtype, density, "dense"),
                Case(dtype, density, "packed"),
                Case(dtype, density, "in-backward"),
            ]
    say(f"memory of {len(cases)} ways to train")
    return Result(model.layers, model.width, model.params, steps, isolated(model, cases))


def isolated(model: Model, cases: Sequence[Case]) -> list[Memory]:
    """:func:`memory` of each case in a process of its own."""
    # Freed memory returns to the system at once, so a peak is what is in use.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    # The parent of these processes has imported everything but computed nothing, so they inherit no threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scripts.bench.retrain"])
    results = []
    for case in cases:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=send_memory, args=(sender, model, case))
        process.start()
        sender.close()
        try:
            results.append(receiver.recv())
        except EOFError:
            raise SystemExit("memory could not be measured") from None
        process.join()
    return results


def send_memory(sender: Connection, model: Model, case: Case) -> None:
    """Send what :func:`memory` returns."""
    sender.send(memory(model, case))


def random_mask(net: torch.nn.Module, density: float) -> dict[str, TensorMask]:
    """Random coordinates of that density, drawn row by row."""
    rng = np.random.default_rng(1)
    masks = {}
    for name, p in net.named_parameters():
        rows = (rng.random(p.shape[1], np.float32) < density for _ in range(p.shape[0]))
        masks[name] = TensorMask(name, tuple(p.shape), pack_spans(rows))
    return masks


def step_time(model: Model, dtype: str, density: float, repeat: int) -> StepTime:
    """Steps of all optimizers in turn, on gradients computed beforehand."""
    net = model.build(dtype)
    for p in net.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    masked = MaskedAdamW(net.named_parameters(), lr=LR, mask=random_mask(net, density))
    steps: dict[str, Callable[[], object]] = {
        "masked": masked.step,
        "fused": dense_step(net, "fused"),
        "foreach": dense_step(net, "foreach"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeat + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    best = {name: min(times[1:]) for name, times in seconds.items()}
    return StepTime(
        dtype=dtype,
        density=density,
        threads=torch.get_num_threads(),
        seconds=best["masked"],
        fused_seconds=best["fused"],
        foreach_seconds=best["foreach"],
        of_fastest=best["masked"] / min(best["fused"], best["foreach"]),
    )


def dense_step(net: torch.nn.Module, kind: Literal["fused", "foreach"]) -> Callable[[], object]:
    """A step of PyTorch's AdamW on fp32 copies with gradients, copied back where weights are bf16."""
    weights = [p.detach().clone() for p in net.parameters()]
    masters = [torch.nn.Parameter(p.detach().float().clone()) for p in net.parameters()]
    for master, p in zip(masters, net.parameters(), strict=True):
        assert p.grad is not None
        master.grad = p.grad.float()
    optimizer = torch.optim.AdamW(masters, lr=LR, fused=kind == "fused", foreach=kind == "foreach")

    @torch.no_grad()
    def step() -> None:
        optimizer.step()
        if weights[0].dtype != torch.float32:
            for master, weight in zip(masters, weights, strict=True):
                weight.copy_(master)

    return step


def memory(model: Model, case: Case) -> Memory:
    """Memory of three training steps, without what importing and compiling take."""
    train(Model(1, 64).build(case.dtype), case)
    before = process_memory.resident()
    state, seconds = train(model.build(case.dtype), case)
    return Memory(
        dtype=case.dtype,
        gradients=case.gradients or "AdamW",
        density=case.density,
        state=state / model.params,
        state_bar=MAX_STATE[case.dtype] * case.density + 0.25,
        peak=(process_memory.peak() - before) / model.params,
        seconds=seconds,
    )


def train(net: torch.nn.Module, case: Case) -> tuple[int, float]:
    """Three steps.

    Returns:
        Bytes of optimizer state, and seconds of the last step.
    """
    step = masked_training(net, case) if case.gradients else dense_training(net)
    x = torch.randn(TOKENS, next(net.parameters()).shape[1], dtype=next(net.parameters()).dtype)
    size, seconds = 0, 0.0
    for _ in range(3):
        start = time.perf_counter()
        net(x).float().square().mean().backward()
        size = step()
        seconds = time.perf_counter() - start
    return size, seconds


def masked_training(net: torch.nn.Module, case: Case) -> Callable[[], int]:
    """A function that takes a masked step and returns the bytes of its state."""
    assert case.gradients is not None
    mask = random_mask(net, case.density)
    optimizer = MaskedAdamW(net.named_parameters(), lr=LR, mask=mask, gradients=case.gradients)

    def step() -> int:
        optimizer.step()
        optimizer.zero_grad()
        return optimizer.state_bytes

    return step


def dense_training(net: torch.nn.Module) -> Callable[[], int]:
    """A function that takes a dense fp32 step, one parameter at a time, and returns the bytes of its state."""
    pairs = [(p, p if p.dtype == torch.float32 else torch.nn.Parameter(p.detach().float())) for p in net.parameters()]
    optimizers = [torch.optim.AdamW([master], lr=LR, fused=True) for _, master in pairs]

    @torch.no_grad()
    def step() -> int:
        size = 0
        for (p, master), optimizer in zip(pairs, optimizers, strict=True):
            assert p.grad is not None
            if master is not p:
                master.grad = p.grad.float()
                size += master.nbytes
            optimizer.step()
            if master is not p:
                p.copy_(master)
            p.grad = master.grad = None
            size += sum(value.nbytes for value in optimizer.state[master].values())
        return size

    return step


def table(result: Result) -> str:
    """The figures as text."""
    lines = [f"{result.layers} layers of {result.width} x {result.width}", *step_lines(result), *memory_lines(result)]
    return "\n".join(lines)


def step_lines(result: Result) -> Iterator[str]:
    """Step times."""
    names = "weights", "density", "threads", "masked ms", "fused ms", "foreach ms", "of fastest"
    yield "".join(f"{name:>12}" for name in names)
    for row in result.steps:
        times = (f"{1e3 * seconds:.1f}" for seconds in (row.seconds, row.fused_seconds, row.foreach_seconds))
        cells = row.dtype, f"{row.density:g}", str(row.threads), *times, f"{row.of_fastest:.2f}"
        yield "".join(f"{cell:>12}" for cell in cells)


def memory_lines(result: Result) -> Iterator[str]:
    """Bytes for each parameter."""
    names = "weights", "density", "gradients", "state B/p", "at most", "peak B/p", "s/step"
    yield "".join(f"{name:>12}" for name in names)
    for row in result.memory:
        most = "" if row.gradients == "AdamW" else f"{row.state_bar:.2f}"
        cells = row.dtype, f"{row.density:g}", row.gradients, f"{row.state:.2f}", most, f"{row.peak:.2f}"
        yield "".join(f"{cell:>12}" for cell in (*cells, f"{row.seconds:.2f}"))
