"""Masked AdamW with moments of 32, 8 and 4 bits: ``python -m scripts.bench.moments [--compile]``; needs torchao.

A Qwen3 of two layers in bf16 learns random tokens by heart for 50 steps, on a random mask of 30 %.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torchao.optim import AdamW4bit, AdamW8bit

from maskreg.train import Masked
from tests.train.optim.training import masked
from tests.train.small import small_model

STEPS = 50
SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 768, "head_dim": 64, "initializer_range": 0.05}


def trained(optimizer_class: Any) -> tuple[torch.Tensor, float, float, float]:
    """Masked weights, loss, bytes of moments for each masked coordinate, and tokens a second after the first step."""
    model = small_model(vocabulary=97, dtype=torch.bfloat16, **SIZES)
    mask = masked(model)
    optimizer = Masked(model.named_parameters(), optimizer_class, mask=mask, lr=1e-3)
    tokens = torch.randint(2, 97, (4, 16), generator=torch.Generator().manual_seed(0))
    for step in range(STEPS + 1):
        if step == 1:
            start = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        if step < STEPS:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    seconds = time.perf_counter() - start
    inside = [p.detach()[torch.from_numpy(mask[name].to_bool())] for name, p in model.named_parameters()]
    weights = torch.cat(inside)
    moments = sum(v.nbytes for s in optimizer.state.values() for key, v in s.items() if key.startswith("exp_avg"))
    return weights, float(loss), moments / len(weights), (STEPS - 1) * tokens.numel() / seconds


def main() -> None:
    if "--compile" not in sys.argv:
        torch.compiler.set_stance("force_eager")
    expected: torch.Tensor | None = None
    for kind in (torch.optim.AdamW, AdamW8bit, AdamW4bit):
        weights, loss, moments, speed = trained(kind)
        expected = weights if expected is None else expected
        other = (weights.view(torch.int16) != expected.view(torch.int16)).float().mean()
        figures = (
            f"{moments:.2f} B of moments a coordinate, loss {loss:.4f}, {other:.1%} other bits, {speed:.0f} tokens/s"
        )
        print(f"{kind.__name__}: {figures}", flush=True)


if __name__ == "__main__":
    main()
