"""Masked optimizer steps on fp32 weights beside PyTorch's, in a process of their own: the others do without torch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

from scripts.bench.bars.figures import Step

DENSITIES = (0.01, 0.25, 0.48)


def measure(layers: int, width: int, threads: Sequence[int], rounds: int) -> tuple[Step, ...]:
    """Steps at every density with every number of threads.

    Args:
        layers: of the model.
        width: of each of them.
        threads: of PyTorch and maskreg.
        rounds: repetitions of each optimizer.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (layers, width, tuple(threads), rounds))


def _measure(layers: int, width: int, threads: Sequence[int], rounds: int) -> tuple[Step, ...]:
    import torch

    from maskreg.train import MaskedAdamW
    from scripts.bench import retrain
    from scripts.bench.bars.kernels import shares
    from scripts.bench.bars.sampling import take_turns, timed

    model = retrain.Model(layers, width)
    steps = []
    for density in DENSITIES:
        net = model.build("fp32")
        for p in net.parameters():
            p.grad = torch.randn_like(p) * 1e-3
        masked = MaskedAdamW(net.named_parameters(), lr=retrain.LR, mask=retrain.random_mask(net, density))
        works = [
            timed("masked", masked.step),
            timed("fused", retrain.dense_step(net, "fused")),
            timed("foreach", retrain.dense_step(net, "foreach")),
        ]
        for count in threads:
            torch.set_num_threads(count)
            samples = take_turns(works, rounds)
            kernels = shares(masked.step) if count == 1 else {}
            masked_s, fused_s, foreach_s = (samples[name] for name in ("masked", "fused", "foreach"))
            steps.append(Step(density, count, model.params, masked_s, fused_s, foreach_s, kernels))
    return tuple(steps)
