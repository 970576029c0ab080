"""Compiled loops on the CPU come to what PyTorch's operations come to, and leave everything else alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maskreg.native import using
from maskreg.train.optim import ranges
from maskreg.train.optim.backends import Cpu, Plain, backend_of
from maskreg.train.optim.step import AdamWStep, AdamWUpdate, Gradient, Operands
from tests.kernels import KERNELS
from tests.train.optim.tensors import Task, frozen, same, steps, task

BF16, FP32 = torch.bfloat16, torch.float32
SIZES = st.one_of(st.integers(0, 200), st.integers(0, 5000))
DENSITIES = st.sampled_from([0.0, 0.005, 0.03, 0.1, 0.48, 0.97, 1.0])
DTYPES = st.sampled_from([BF16, FP32])
TASKS = st.builds(task, SIZES, DENSITIES, st.integers(0, 2**32 - 1), st.tuples(DTYPES, DTYPES), st.booleans())


@given(TASKS, st.booleans())
@settings(max_examples=100, deadline=None)
def test_steps_are_those_of_pytorch_on_the_mask_and_nothing_elsewhere(got: Task, packed: bool) -> None:
    wanted, before = got.copy(), frozen(got)
    steps(got, Cpu(), packed)
    steps(wanted, Plain(), packed)
    assert frozen(got) == before
    same(got, wanted)


@given(TASKS)
@settings(max_examples=100, deadline=None)
def test_accumulating_and_summing_squares(one: Task) -> None:
    dense = one.slopes[0]
    into, wanted = torch.ones(one.bits.nnz), torch.ones(one.bits.nnz)
    Cpu().accumulate(into, dense, one.bits)
    Plain().accumulate(wanted, dense, one.bits)
    assert bits_of(into) == bits_of(wanted)
    for bits, values in ((one.bits, dense[one.moved]), (None, dense)):
        exact = values.double().square().sum()
        for backend in (Cpu(), Plain()):
            found = backend.square_sum(dense, bits)
            assert found.dtype == torch.float64 and found.shape == ()
            torch.testing.assert_close(found, exact, rtol=1e-13, atol=0, equal_nan=True)


def bits_of(*tensors: torch.Tensor | None) -> list[list[int]]:
    """Bits of tensors, except for NaNs in fp32, which the order of operands decides."""
    found = []
    for tensor in tensors:
        if tensor is not None and tensor.dtype == FP32:
            tensor = tensor.clone()
            tensor[tensor.isnan()] = torch.nan
        widths = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        found.append([] if tensor is None else tensor.view(widths[tensor.element_size()]).tolist())
    return found


def results(start: Task, level: str, packed: bool) -> list[list[int]]:
    """Bits of all that the backend computes from a task, by one build of the kernels."""
    dense = start.slopes[0]
    with using(level):
        one = start.copy()
        steps(one, Cpu(), packed)
        total = torch.ones(start.bits.nnz)
        Cpu().accumulate(total, dense, start.bits)
        sums = [Cpu().square_sum(dense, bits).reshape(1).nan_to_num(7) for bits in (start.bits, None)]
        return bits_of(one.weights, *one.state, total, *sums)


@given(TASKS, st.booleans())
@example(task(64 * 129 + 3, 0.48, 1, (BF16, BF16)), False)
@example(task(64 * 129 + 3, 0.03, 2, (FP32, FP32), odd=True), False)
@example(task(64 * 128, 1.0, 3, (BF16, FP32), odd=True), True)
@example(task(65, 1.0, 4, (FP32, BF16)), False)
@settings(max_examples=40, deadline=None)
def test_all_kernels_come_to_the_same_bits(start: Task, packed: bool) -> None:
    wanted = results(start, KERNELS[0], packed)
    for level in KERNELS[1:]:
        assert results(start, level, packed) == wanted, level


@pytest.mark.parametrize("level", KERNELS)
def test_bf16_is_rounded_as_pytorch_rounds_it(level: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    near = (codes[:, None] << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).reshape(-1)
    floats = torch.from_numpy(near.view(np.float32))
    bits = task(floats.numel(), 1.0).bits
    wanted = floats.bfloat16()
    weights, master = wanted.clone(), floats.clone()
    moments = torch.zeros(floats.numel()), torch.zeros(floats.numel())
    # A step of nothing keeps every master whose rounding the weight is, and writes its rounding.
    nothing = AdamWStep(0.0, 0.9, 0.99, 1e-8, 0.0, 1)
    with using(level):
        Cpu().adamw(Operands(weights, Gradient(torch.zeros(floats.numel()), True), bits, master), *moments, nothing)
    assert torch.equal(master.nan_to_num(7), floats.nan_to_num(7))
    assert torch.equal(weights.isnan(), wanted.isnan())
    assert torch.equal(weights[~weights.isnan()], wanted[~wanted.isnan()])
    assert set(weights[weights.isnan()].view(torch.int16).tolist()) == {0x7FC0}


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_and_ranges_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE", 64)
    start = task(64 * 64 * 40 + 5, 0.4)
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        one = start.copy()
        steps(one, Cpu(), packed=False)
        found.append(bits_of(one.weights, *one.state, Cpu().square_sum(one.slopes[0], one.bits).reshape(1)))
    assert found[0] == found[1]


@pytest.mark.parametrize("level", KERNELS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("threads")
def test_tensors_together_come_to_what_each_does_alone(level: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE", 2)
    torch.set_num_threads(count)
    sizes = (0, 64, 128, 129, 1, 1000, 0)
    alone = [task(size, (0.0, 0.5)[size != 64], number, (FP32, BF16)) for number, size in enumerate(sizes)]
    together = [one.copy() for one in alone]
    adam = AdamWStep(1e-3, 0.9, 0.99, 1e-8, 0.1, 1, 0.5)
    with using(level):
        updates = [
            AdamWUpdate(Operands(one.weights, Gradient(one.slopes[0], False), one.bits, None), *one.state[:2], adam)
            for one in together
        ]
        Cpu().update(updates)
        pairs = [(one.slopes[0], bits) for one in alone for bits in (one.bits, None)]
        sums = Cpu().square_sums(pairs)
        assert bits_of(*(total.reshape(1) for total in sums)) == bits_of(
            *(Cpu().square_sum(values, bits).reshape(1) for values, bits in pairs)
        )
        for one in alone:
            operands = Operands(one.weights, Gradient(one.slopes[0], False), one.bits, None)
            Cpu().adamw(operands, one.state[0], one.state[1], adam)
    for one, wanted in zip(together, alone, strict=True):
        assert bits_of(one.weights, *one.state) == bits_of(wanted.weights, *wanted.state)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("threads")
def test_threads_are_there_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE", 1)
    torch.set_num_threads(2)
    one = task(1000, 0.5)
    wanted = float(Cpu().square_sum(one.slopes[0], one.bits))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(float(Cpu().square_sum(one.slopes[0], one.bits))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(read, 100)) == wanted


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        pytest.param(torch.zeros(8), "Cpu", id="fp32"),
        pytest.param(torch.zeros(8, dtype=BF16), "Cpu", id="bf16"),
        pytest.param(torch.zeros(8, dtype=torch.float16), "Plain", id="fp16"),
        pytest.param(torch.zeros(8, dtype=torch.float64), "Plain", id="fp64"),
        pytest.param(torch.zeros(16)[::2], "Plain", id="strided"),
        pytest.param(torch.zeros(8, device="meta"), "Plain", id="elsewhere"),
    ],
)
def test_what_compiled_loops_cannot_do_is_done_by_pytorch(tensor: torch.Tensor, name: str) -> None:
    assert type(backend_of(tensor)).__name__ == name
    assert type(backend_of(torch.zeros(8), tensor)).__name__ == name
