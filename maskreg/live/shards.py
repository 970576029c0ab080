"""The part of a parameter that is in this process."""

from __future__ import annotations

import torch


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor in this process, sharing memory with it; itself where it is not sharded."""
    to_local = getattr(tensor, "to_local", None)
    local: torch.Tensor = tensor if to_local is None else to_local()
    return local
