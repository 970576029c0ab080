"""Leaves hashed by Triton's kernel: on a GPU where there is one, and by Triton's interpreter anywhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.digest import leaf_hashes
from maskreg.live import memory
from tests.compiling import Recorder, compiled, printed
from tests.live.hashing import BYTES, NUMEL
from tests.machines import DEVICES


@pytest.fixture(scope="module", params=DEVICES)
def outcome(request: pytest.FixtureRequest) -> Any:
    """What :mod:`tests.live.hashing` prints, once per device."""
    return printed("tests.live.hashing", device=request.param)


def test_every_length_has_the_hash_of_the_cpu(outcome: Any) -> None:
    assert outcome["wrong"] == []


def test_addresses_and_hashes_cross_the_bus_and_nothing_else_of_long_leaves(outcome: Any) -> None:
    short = sum(n for n in BYTES if n <= 240)
    leaves_hashed = sum(n > 240 for n in BYTES) + sum(-(-n // (1 << 18)) for n in NUMEL) + 4
    # The leaf of 7 elements behind a whole one takes the CPU's way too.
    assert outcome["bus"]["short leaves"] == short + 14
    assert outcome["bus"]["addresses"] == outcome["bus"]["hashes"] == 16 * (leaves_hashed - 1)
    assert set(outcome["bus"]) == {"short leaves", "addresses", "hashes", "constants"}


def test_the_kernel_compiles_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from maskreg.live import triton_leaves

    kernel, recorder = triton_leaves.leaf_kernel, Recorder()
    monkeypatch.setattr(triton_leaves, "leaf_kernel", recorder)
    triton_leaves.leaves_on_device([torch.zeros(500, dtype=torch.int16)])
    assert compiled(kernel, recorder, 80)


def test_without_triton_the_cpu_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "maskreg.live.triton_leaves", raising=False)
    memory.device_hash.cache_clear()
    span = torch.arange(1000, dtype=torch.int16)
    (hashes,) = memory.leaves_of([span])
    assert np.array_equal(hashes, leaf_hashes(span.numpy()))
    memory.device_hash.cache_clear()
