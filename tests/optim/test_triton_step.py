"""Steps by Triton's kernels: on a GPU where there is one, and by Triton's interpreter anywhere."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from maskreg.optim import fastest
from maskreg.optim.plain import Plain
from tests.optim.tensors import steps, task

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]

SHORT = {
    torch.uint8: "*u8", torch.int16: "*i16", torch.int32: "*i32", torch.float32: "*fp32", torch.float64: "*fp64",
    int: "i32", float: "fp32",
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_steps_and_sums_are_those_of_pytorch_and_frozen_coordinates_keep_their_bits(device: str) -> None:
    pytest.importorskip("triton")
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "tests.optim.launching", device]
    done = subprocess.run(command, env=os.environ | interpreted, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == {}


class _Recorder:
    """Stands in for a kernel, and keeps what it was launched with."""

    def __init__(self) -> None:
        self.args: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launched

    def _launched(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["adamw", "sgd", "accumulate", "square_sum"])
def test_the_kernels_compile_where_there_is_no_gpu(
    name: str, dtype: torch.dtype, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton")
    from maskreg.optim import triton_kernels
    from maskreg.optim.triton_step import Triton

    kernel = getattr(triton_kernels, name)
    recorder = _Recorder()
    monkeypatch.setattr(triton_kernels, name, recorder)
    one = task(5000, 0.5, dtypes=(dtype, dtype))
    if name == "accumulate":
        Triton().accumulate(torch.zeros(one.bits.nnz), one.slopes[0], one.bits)
    elif name == "square_sum":
        Triton().square_sum(one.slopes[0], one.bits)
    else:
        steps(one, Triton(), "nesterov momentum" if name == "sgd" else name, packed=False)

    names = kernel.arg_names
    kinds = [SHORT[arg.dtype if isinstance(arg, torch.Tensor) else type(arg)] for arg in recorder.args]
    constants = {place: recorder.options[names[place]] for place in range(len(kinds), len(names))}
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=dict(zip(names, [*kinds, *["constexpr"] * len(constants)], strict=True)),
        constexprs={(place,): value for place, value in constants.items()},
    )
    options = {option: value for option, value in recorder.options.items() if option not in names}
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    assert triton.compile(source, target=target, options=options).asm["cubin"]


class _OnGpu:
    """What is asked of a tensor before a backend is chosen."""

    dtype = torch.float32
    device = torch.device("cuda")

    def is_contiguous(self) -> bool:
        return True


def test_a_gpu_without_triton_is_served_by_pytorch_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "maskreg.optim.triton_step", None)
    fastest._on_gpu.cache_clear()
    tensor: Any = _OnGpu()
    with pytest.warns(UserWarning, match=r"pip install maskreg\[gpu\]"):
        assert isinstance(fastest.backend_of(tensor), Plain)
    assert isinstance(fastest.backend_of(tensor), Plain)
    fastest._on_gpu.cache_clear()


def test_a_gpu_is_served_by_triton() -> None:
    pytest.importorskip("triton")
    from maskreg.optim.triton_step import Triton

    tensor: Any = _OnGpu()
    assert isinstance(fastest.backend_of(tensor), Triton)
    assert isinstance(fastest.backend_of(tensor, torch.zeros(1)), Plain)
    fastest._on_gpu.cache_clear()
