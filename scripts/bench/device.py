"""The GPU to measure."""

from __future__ import annotations

import sys

import torch

UNAVAILABLE = 69
"""Exit code on a machine without a GPU: ``EX_UNAVAILABLE`` of sysexits.h."""


def gpu(name: str) -> torch.device | None:
    """The device of that name; None, with a message, on a machine without a GPU."""
    if torch.cuda.is_available():
        return torch.device(name)
    print("no CUDA device: nothing was measured", file=sys.stderr)
    return None
