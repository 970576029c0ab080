"""Hashes leaves with Triton's kernel: ``python -m tests.live.hashing [cpu|cuda]``.

On the CPU that takes ``TRITON_INTERPRET=1``, before anything imports Triton; hence a process of its own. What differs
from the CPU's hashes is printed as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.live import triton_leaves
from maskreg.tensors.bus import counted

BYTES = [0, 1, 3, 16, 128, 240, 241, 255, 256, 257, 320, 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2048, 2049, 5000]
"""Around every border of the algorithm: short ones, stripes of 64 bytes, blocks of 1,024."""

NUMEL = [121, 130, 5001, LEAF_NUMEL, LEAF_NUMEL + 7, 2 * LEAF_NUMEL + 130]
"""Of 2 bytes each: several leaves, the last of them short, and of any length."""


def main(device: str) -> None:
    """Print what differs, and what crossed the bus."""
    triton_leaves.PROGRAM_LEAVES = (
        1 if device == "cuda" else 64
    )  # An interpreted program costs the same, large or small.
    draw = np.random.default_rng(0)
    spans = [torch.from_numpy(draw.integers(0, 256, n, dtype=np.uint8)).to(device) for n in BYTES]
    wide = [torch.from_numpy(draw.integers(-(1 << 15), 1 << 15, n, dtype=np.int16)).to(device) for n in NUMEL]
    wider = [torch.from_numpy(draw.integers(-9, 9, 300, dtype=kind)).to(device) for kind in (np.int32, np.int64)]
    unaligned = [wide[2][1:], spans[-1][3:]]
    wrong = []
    with counted() as bus:
        for group in (spans, wide, wider[:1], wider[1:], unaligned[:1], unaligned[1:]):
            for span, hashes in zip(group, triton_leaves.leaves_on_device(group), strict=True):
                if not np.array_equal(hashes, leaf_hashes(span.cpu().numpy())):
                    wrong.append([str(span.dtype), span.numel()])
    print(json.dumps({"wrong": wrong, "bus": bus}))


if __name__ == "__main__":
    main(*sys.argv[1:])
