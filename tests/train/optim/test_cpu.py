"""Compiled loops on the CPU come to what PyTorch's operations come to, and leave everything else alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.train.optim import cpu, tiles
from maskreg.train.optim.cpu import Cpu
from maskreg.train.optim.fastest import backend_of
from maskreg.train.optim.plain import Plain
from tests.machines import needs_vectors
from tests.train.optim.tensors import KINDS, Task, frozen, same, steps, task

BF16, FP32 = torch.bfloat16, torch.float32
SIZES = st.one_of(st.integers(0, 200), st.integers(0, 5000))
DENSITIES = st.sampled_from([0.0, 0.005, 0.03, 0.1, 0.48, 0.97, 1.0])


@given(SIZES, DENSITIES, st.integers(0, 2**32 - 1), st.sampled_from([BF16, FP32]), st.sampled_from([BF16, FP32]),
       st.sampled_from(KINDS), st.booleans(), st.booleans())  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_steps_are_those_of_pytorch_on_the_mask_and_nothing_elsewhere(
    numel: int, density: float, seed: int, weights: torch.dtype, slopes: torch.dtype, kind: str, packed: bool, odd: bool
) -> None:
    got = task(numel, density, seed, (weights, slopes), odd)
    wanted, before = got.copy(), frozen(got)
    steps(got, Cpu(), kind, packed)
    steps(wanted, Plain(), kind, packed)
    assert frozen(got) == before
    same(got, wanted)


@given(SIZES, DENSITIES, st.integers(0, 2**32 - 1), st.sampled_from([BF16, FP32]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_accumulating_and_summing_squares(
    numel: int, density: float, seed: int, slopes: torch.dtype, odd: bool
) -> None:
    one = task(numel, density, seed, (BF16, slopes), odd)
    dense = one.slopes[0]
    into, wanted = torch.ones(one.bits.nnz), torch.ones(one.bits.nnz)
    Cpu().accumulate(into, dense, one.bits)
    Plain().accumulate(wanted, dense, one.bits)
    assert torch.equal(into.view(torch.int32), wanted.view(torch.int32)) or (odd and into.isnan().equal(wanted.isnan()))
    for bits, values in ((one.bits, dense[one.moved]), (None, dense)):
        exact = values.double().square().sum()
        for backend in (Cpu(), Plain()):
            found = backend.square_sum(dense, bits)
            assert found.dtype == torch.float64 and found.shape == ()
            torch.testing.assert_close(found, exact, rtol=1e-13, atol=0, equal_nan=True)


@pytest.mark.parametrize("numel", [64, 1000, 4096 + 17])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@needs_vectors
def test_vectors_move_what_single_bits_move(numel: int, dtype: Any) -> None:
    drawn = np.random.default_rng(numel)
    values = drawn.integers(0, np.iinfo(dtype).max, numel, dtype, endpoint=True)
    for density in (0.1, 0.5, 1.0):
        mask = task(numel, density, numel).bits
        words = mask.words.numpy().view(np.uint64)
        packed, other = (np.zeros(mask.nnz + tiles.SPARE, np.float32) for _ in range(2))
        assert tiles._pack_vectors(values, words, 0, words.size, packed) == mask.nnz
        assert tiles.pack_each(values, words, 0, words.size, other) == mask.nnz
        assert np.array_equal(packed[: mask.nnz].view(np.uint32), other[: mask.nnz].view(np.uint32))
        packed[: mask.nnz] = drawn.standard_normal(mask.nnz)
        for _ in range(3):
            packed[drawn.integers(0, mask.nnz)] = drawn.choice([np.nan, -np.nan, np.inf, -0.0])
        one, two = values.copy(), values.copy()
        assert tiles._spread_vectors(one, words, 0, words.size, packed) == mask.nnz
        assert tiles.spread_each(two, words, 0, words.size, packed) == mask.nnz
        assert np.array_equal(one, two)


def test_bf16_is_rounded_as_pytorch_rounds_it() -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    near = (codes[:, None] << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).reshape(-1)
    floats = near.view(np.float32)
    mask = task(floats.size, 1.0).bits.words.numpy().view(np.uint64)
    wanted = torch.from_numpy(floats.copy()).bfloat16()
    for spread in (tiles._spread_dense, tiles.spread_each):
        values = np.zeros(floats.size, np.uint16)
        spread(values, mask, 0, mask.size, np.concatenate([floats, np.zeros(tiles.SPARE, np.float32)]))
        got = torch.from_numpy(values.view(np.int16)).view(BF16)
        assert torch.equal(got.isnan(), wanted.isnan())
        assert torch.equal(got[~got.isnan()].view(torch.int16), wanted[~got.isnan()].view(torch.int16))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_and_ranges_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_RANGE", 64)
    start = task(64 * 64 * 40 + 5, 0.4)
    found: list[Task] = []
    sums: list[float] = []
    for count in (1, 3):
        torch.set_num_threads(count)
        one = start.copy()
        steps(one, Cpu(), "adamw", packed=False)
        found.append(one)
        sums.append(float(Cpu().square_sum(one.slopes[0], one.bits)))
    assert torch.equal(found[0].weights, found[1].weights)
    assert torch.equal(found[0].state[0], found[1].state[0])
    assert sums[0] == sums[1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("threads")
def test_threads_are_there_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_RANGE", 1)
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


def test_what_raises_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_RANGE", 1)

    def fail(begin: int, end: int) -> None:
        raise ValueError(begin)

    with pytest.raises(ValueError):
        cpu._in_ranges(10, fail)


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
