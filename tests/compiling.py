"""Kernels of Triton: compiled for GPUs that are not here, and launched by processes of their own."""

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

_TYPES = {
    torch.int8: "*i8", torch.uint8: "*u8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64",
    torch.float32: "*fp32", torch.float64: "*fp64", int: "i32", float: "fp32",
}  # fmt: skip


class Recorder:
    """Stands in for a kernel, and keeps what it was launched with."""

    def __init__(self) -> None:
        self.args: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launched

    def _launched(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options


def printed(module: str, *args: str, device: str) -> Any:
    """What a module of tests prints as JSON, whose kernels run on a device, or are interpreted."""
    pytest.importorskip("triton")
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-m", module, *args, device]
    done = subprocess.run(command, env=os.environ | interpreted, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def compiled(kernel: Any, launched: Recorder, capability: int) -> bytes:
    """What a GPU of NVIDIA's runs of a kernel that was launched so."""
    import triton

    names = kernel.arg_names
    types = [_TYPES[arg.dtype if isinstance(arg, torch.Tensor) else type(arg)] for arg in launched.args]
    constants = {place: launched.options[names[place]] for place in range(len(types), len(names))}
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=dict(zip(names, [*types, *["constexpr"] * len(constants)], strict=True)),
        constexprs={(place,): value for place, value in constants.items()},
    )
    options = {option: value for option, value in launched.options.items() if option not in names}
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    found: bytes = triton.compile(source, target=target, options=options).asm["cubin"]
    return found
