"""Random tensors, masks and steps for the tests of backends, and what those should come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from maskreg.mask.packed import pack
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.step import AdamWStep, Backend, Gradient, Operands

ODDITIES = (float("nan"), float("inf"), float("-inf"), -0.0, 1e-41)

LR = 1e-3


@dataclass
class Task:
    """A tensor to take steps on, with all state there is.

    Attributes:
        weights: flat.
        slopes: dense gradient, one for each step.
        moved: the mask as booleans.
        bits: and as a backend takes it.
        state: fp32 ``[nnz]``: first moment, second moment, and the master copy or None.
    """

    weights: torch.Tensor
    slopes: list[torch.Tensor]
    moved: torch.Tensor
    bits: Bits
    state: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

    def copy(self) -> Task:
        """Another with the same numbers."""
        first, second, master = self.state
        state = first.clone(), second.clone(), None if master is None else master.clone()
        return Task(self.weights.clone(), self.slopes, self.moved, self.bits, state)


def task(
    numel: int,
    density: float,
    seed: int = 0,
    dtypes: tuple[torch.dtype, torch.dtype] = (torch.bfloat16, torch.bfloat16),
    odd: bool = False,
    device: str = "cpu",
) -> Task:
    """A task on weights and gradients of these dtypes; ``odd`` adds NaNs, infinities and the like, wherever."""
    drawn = np.random.default_rng(seed)
    moved = drawn.random(numel) < density
    numbers = torch.from_numpy(drawn.standard_normal((4, numel))).float()
    if odd:
        for line in numbers:
            where = drawn.random(numel) < 0.2
            line[torch.from_numpy(where)] = torch.from_numpy(drawn.choice(ODDITIES, int(where.sum()))).float()
    weights = (numbers[0] * 0.05).to(dtypes[0]).to(device)
    slopes = [(line * 1e-2).to(dtypes[1]).to(device) for line in numbers[1:]]
    bits = Bits.of(pack(moved), numel).to(torch.device(device))
    inside = torch.from_numpy(moved).to(device)
    first, second = (torch.zeros(bits.nnz, device=device) for _ in range(2))
    master = weights[inside].float() if dtypes[0] != torch.float32 else None
    return Task(weights, slopes, inside, bits, (first, second, master))


def steps(on: Task, backend: Backend, packed: bool, scale: float = 0.5) -> None:
    """Take a step of AdamW with each gradient."""
    first, second, master = on.state
    for number, slopes in enumerate(on.slopes):
        gradient = Gradient(slopes[on.moved].float() if packed else slopes, packed)
        operands = Operands(on.weights, gradient, on.bits, master)
        backend.adamw(operands, first, second, AdamWStep(LR, 0.9, 0.99, 1e-8, 0.1, number + 1, scale))


def same(got: Task, wanted: Task) -> None:
    """Check that two tasks have come to the same, but for what is rounded in another order.

    Raises:
        AssertionError: they have not.
    """
    close: Callable[..., None] = torch.testing.assert_close
    masters = [
        one.weights[one.moved] if one.state[2] is None else one.state[2] for one in (got, wanted)
    ]  # fmt: skip
    close(*masters, rtol=3e-7, atol=0.01 * LR, equal_nan=True)
    close(got.state[0], wanted.state[0], rtol=1e-5, atol=1e-9, equal_nan=True)
    close(got.state[1], wanted.state[1], rtol=1e-5, atol=1e-12, equal_nan=True)
    if got.weights.dtype == torch.bfloat16:
        assert got.state[2] is not None
        # The nearest to the master that it has; and so the reference's, unless that lies across a tie.
        nearest = got.state[2].bfloat16()
        rounded = got.weights[got.moved]
        assert bool(((rounded == nearest) | (rounded.isnan() & nearest.isnan())).all())


def frozen(one: Task) -> list[int]:
    """The bits of all that is not masked."""
    width = torch.int16 if one.weights.element_size() == 2 else torch.int32
    return one.weights.view(width)[~one.moved].tolist()


def written(on: Task, masters_too: bool) -> Task:
    """A copy in which something else wrote a third of the weights; by itself, or with the masters that this implies."""
    one = on.copy()
    drawn = np.random.default_rng(3)
    where = torch.from_numpy(drawn.random(one.weights.numel()) < 0.3).to(one.weights.device)
    new = torch.from_numpy(drawn.choice([1.5, -2.0, *ODDITIES], one.weights.numel())).to(one.weights)
    codes = torch.int16 if one.weights.element_size() == 2 else torch.int32
    differs = where & (one.weights.view(codes) != new.view(codes))
    one.weights[where] = new[where]
    master = one.state[2]
    if masters_too and master is not None:
        master[differs[one.moved]] = one.weights[differs & one.moved].float()
    return one
