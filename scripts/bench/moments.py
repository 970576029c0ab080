"""Masked AdamW with moments of 32, 16, 8 and 4 bits: ``python -m scripts.bench.moments [--compile]``; needs torchao.

A Qwen3 of two layers in bf16 learns 16 batches of random tokens, each for 20 steps, on a random mask of 30 %. What
moments change is beside what another order of the batches does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torchao.optim import AdamW4bit, AdamW8bit

from maskreg.train import Masked, MaskedAdamW
from maskreg.train.optim import MaskedOptimizer
from tests.train.optim.training import masked
from tests.train.small import small_model

STEPS = 320
SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 768, "head_dim": 64, "initializer_range": 0.05}

KINDS: dict[str, Callable[..., MaskedOptimizer]] = {
    "fp32": MaskedAdamW,
    "fp32, another order": MaskedAdamW,
    "bf16": partial(MaskedAdamW, moments="bf16"),
    "AdamW8bit": partial(Masked, optimizer=AdamW8bit),
    "AdamW4bit": partial(Masked, optimizer=AdamW4bit),
}


def trained(kind: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Masters before and after; bytes of moments a coordinate, loss, and tokens a CPU second without the first step."""
    model = small_model(vocabulary=97, dtype=torch.bfloat16, **SIZES)
    mask = masked(model)
    before = torch.cat([p.detach()[torch.from_numpy(mask[name].to_bool())] for name, p in model.named_parameters()])
    optimizer = KINDS[kind](model.named_parameters(), mask=mask, lr=1e-4, weight_decay=1e-2)
    batches = torch.randint(2, 97, (16, 4, 16), generator=torch.Generator().manual_seed(0))
    for step in range(STEPS):
        if step == 1:
            start = time.process_time()
        tokens = batches[(step + ("order" in kind)) % 16]
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    speed = (STEPS - 1) * batches[0].numel() / (time.process_time() - start)
    with torch.no_grad():
        loss = sum(float(model(input_ids=tokens, labels=tokens).loss) for tokens in batches) / len(batches)
    moments = sum(v.nbytes for s in optimizer.state.values() for key, v in s.items() if key.startswith("exp_avg"))
    after = torch.cat([optimizer.state[p]["master"] for p in model.parameters()])
    figures = f"{moments / len(after):.2f} B of moments a coordinate, loss {loss:.4f}, {speed:.0f} tokens a CPU second"
    return before.float(), after, figures


def main() -> None:
    if "--compile" not in sys.argv:
        torch.compiler.set_stance("force_eager")
    expected: torch.Tensor | None = None
    for kind in KINDS:
        before, after, figures = trained(kind)
        expected = after if expected is None else expected
        apart = (after - expected).norm() / (expected - before).norm()
        other = (after.bfloat16() != expected.bfloat16()).float().mean()
        print(f"{kind}: {figures}, update {apart:.1%} apart, {other:.0%} other bits", flush=True)


if __name__ == "__main__":
    main()
