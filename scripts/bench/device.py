"""The GPU that is measured."""

from __future__ import annotations

import sys

import torch

UNAVAILABLE = 69
"""What a script exits with where there is no GPU; ``EX_UNAVAILABLE`` of sysexits.h."""


def gpu(name: str) -> torch.device | None:
    """The device of that name; None, which is told, on a machine without one."""
    if torch.cuda.is_available():
        return torch.device(name)
    print("no CUDA device here: nothing was measured", file=sys.stderr)
    return None
