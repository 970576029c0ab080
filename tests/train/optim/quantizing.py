"""An optimizer whose momentum is in blocks of 8-bit numbers, in a tensor of a class of its own, as torchao's are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class Quantized(torch.Tensor):
    """Codes int8 ``[n]``, and of each block its scale."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> Quantized:
        made: Quantized = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
        made.codes, made.scale = codes, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Mapping[str, torch.Tensor], context: None, *_: Any) -> Quantized:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise TypeError(f"{function} does not take quantized tensors")


class QuantizedMomentum(torch.optim.Optimizer):
    """Vectors of whole blocks have a quantized momentum, others one in fp32; the learning rate has to be a tensor."""

    def __init__(self, params: Any, lr: float = 0.1, block_size: int = 64) -> None:
        self.block_size = block_size
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            group["lr"] = torch.tensor(group["lr"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            assert isinstance(group["lr"], torch.Tensor)
            for p in group["params"]:
                if p.grad is None:
                    continue
                old = self.state[p].get("momentum")
                if isinstance(old, Quantized):
                    old = (old.codes.view(-1, self.block_size) * old.scale).view(-1)
                now = p.grad if old is None else 0.9 * old + p.grad
                p -= group["lr"] * now
                self.state[p]["momentum"] = now.clone()
                if p.numel() % self.block_size == 0:
                    blocks = now.view(-1, self.block_size)
                    scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
                    codes = (blocks / scale).round().to(torch.int8).view(-1)
                    self.state[p]["momentum"] = Quantized(codes, scale)
