"""Steps by Triton's kernels: on a GPU where there is one, and by Triton's interpreter anywhere."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import torch

from maskreg.extras import install_command
from maskreg.train.optim import backends
from maskreg.train.optim.backends import Plain
from tests.compiling import Recorder, compiled, printed
from tests.machines import DEVICES
from tests.train.optim.tensors import steps, task


@pytest.mark.parametrize("device", DEVICES)
def test_steps_and_sums_are_those_of_pytorch_and_frozen_coordinates_keep_their_bits(device: str) -> None:
    assert printed("tests.train.optim.launching", device=device) == {}


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["adamw", "accumulate", "square_sum"])
def test_the_kernels_compile_where_there_is_no_gpu(
    name: str, dtype: torch.dtype, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from maskreg.train.optim import triton_kernels
    from maskreg.train.optim.triton_step import Triton

    kernel = getattr(triton_kernels, name)
    recorder = Recorder()
    monkeypatch.setattr(triton_kernels, name, recorder)
    one = task(5000, 0.5, dtypes=(dtype, dtype))
    if name == "accumulate":
        Triton().accumulate(torch.zeros(one.bits.nnz), one.slopes[0], one.bits)
    elif name == "square_sum":
        Triton().square_sum(one.slopes[0], one.bits)
    else:
        steps(one, Triton(), packed=False)
    assert compiled(kernel, recorder, capability)


class _OnGpu:
    """What is asked of a tensor before a backend is chosen."""

    dtype = torch.float32
    device = torch.device("cuda")

    def is_contiguous(self) -> bool:
        return True


def test_a_gpu_without_triton_is_served_by_pytorch_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "maskreg.train.optim.triton_step", None)
    backends.gpu_backend.cache_clear()
    tensor: Any = _OnGpu()
    with pytest.warns(UserWarning, match=re.escape(install_command("gpu"))):
        assert isinstance(backends.backend_of(tensor), Plain)
    assert isinstance(backends.backend_of(tensor), Plain)
    backends.gpu_backend.cache_clear()


def test_a_gpu_is_served_by_triton() -> None:
    pytest.importorskip("triton")
    from maskreg.train.optim.triton_step import Triton

    tensor: Any = _OnGpu()
    assert isinstance(backends.backend_of(tensor), Triton)
    assert isinstance(backends.backend_of(tensor, torch.zeros(1)), Plain)
    backends.gpu_backend.cache_clear()
