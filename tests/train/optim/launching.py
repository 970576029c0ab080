"""Takes steps with Triton's kernels: ``python -m tests.train.optim.launching [cpu|cuda]``.

On the CPU that takes ``TRITON_INTERPRET=1``, before anything imports Triton; hence a process of its own. What went
wrong is printed as JSON, by the name of each case: nothing, when all is well.
"""

from __future__ import annotations

import json
import sys
from itertools import product

import torch

from maskreg.train.optim import triton_step
from maskreg.train.optim.backends import Plain
from maskreg.train.optim.triton_step import Triton
from tests.train.optim.tensors import frozen, same, steps, task, written

DTYPES = [torch.bfloat16, torch.float32]
FORMS = [*product(DTYPES, [False, True])]
SIZES = [(0, 0.5), (1, 1.0), (63, 0.5), (4096, 0.0), (4096, 1.0), (9001, 0.02), (9001, 0.48), (5003, 0.3)]


def main(device: str) -> None:
    """Print what went wrong."""
    triton_step.PROGRAM_NUMEL = (
        1024 if device == "cuda" else 4096
    )  # An interpreted program costs the same, large or small.
    triton_step.MOST_SUMS = 2
    print(json.dumps({name: wrong for name, wrong in cases(device).items() if wrong}))


def cases(device: str) -> dict[str, str]:
    """What went wrong in every case."""
    found = {}
    for seed, (numel, density) in enumerate(2 * SIZES):
        # Every size meets two forms; not each pair of them, as the interpreter is slow.
        dtype, packed = FORMS[(seed + seed // len(SIZES)) % len(FORMS)]
        odd = seed % 3 == 0
        name = f"{numel} {dtype} at {density}{' packed' * packed}{' odd' * odd}"
        found[name] = step(numel, density, (dtype, DTYPES[seed // 2 % 2]), packed, odd, device, seed)
    for packed in (False, True):
        found[f"after loading{' packed' * packed}"] = after_loading(packed, device)
    for numel, density in SIZES:
        found[f"sums of {numel} at {density}"] = sums(numel, density, device)
    return found


def step(
    numel: int, density: float, dtypes: tuple[torch.dtype, torch.dtype], packed: bool, odd: bool, device: str, seed: int
) -> str:
    """What three steps come to that they should not."""
    got = task(numel, density, seed, dtypes, odd, device)
    wanted, before = got.copy(), frozen(got)
    steps(got, Triton(), packed)
    steps(wanted, Plain(), packed)
    try:
        same(got, wanted)
    except AssertionError as error:
        return str(error)
    return "" if frozen(got) == before else "frozen coordinates changed"


def after_loading(packed: bool, device: str) -> str:
    """What steps after weights were written come to that they should not."""
    start = task(9001, 0.48, 5, device=device)
    steps(start, Triton(), packed)
    got, wanted = (written(start, masters_too=masters) for masters in (False, True))
    for one in (got, wanted):
        steps(one, Triton(), packed)
    for left, right in zip((got.weights, *got.state), (wanted.weights, *wanted.state), strict=True):
        if left is None or right is None or not torch.equal(left.nan_to_num(7), right.nan_to_num(7)):
            return "a master differs from the weight's"
    return ""


def sums(numel: int, density: float, device: str) -> str:
    """What accumulating and summing squares come to that they should not."""
    one = task(numel, density, 1, device=device)
    dense = one.slopes[0]
    into, wanted = (torch.ones(one.bits.nnz, device=device) for _ in range(2))
    Triton().accumulate(into, dense, one.bits)
    Plain().accumulate(wanted, dense, one.bits)
    if not torch.equal(into, wanted):
        return "accumulated something else"
    for bits, values in ((one.bits, dense), (None, dense), (None, wanted)):
        total = Triton().square_sum(values, bits)
        if total.dtype != torch.float64 or not torch.isclose(total, Plain().square_sum(values, bits), rtol=1e-12):
            return f"sum of squares {float(total)}"
    return ""


if __name__ == "__main__":
    main(sys.argv[1])
