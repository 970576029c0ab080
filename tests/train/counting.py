"""Which bits of a model changed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from maskreg.mask.packed import Mask

_WIDTHS = {2: torch.int16, 4: torch.int32}


def copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter as it is now."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def changed(model: torch.nn.Module, before: Mapping[str, torch.Tensor], mask: Mask) -> tuple[int, int]:
    """Coordinates whose bits changed, outside the mask and inside."""
    outside = inside = 0
    for name, p in model.named_parameters():
        width = _WIDTHS[p.element_size()]
        differ = (p.detach().contiguous().view(width) != before[name].contiguous().view(width)).numpy()
        bits = mask[name].to_bool()
        outside += int((differ & ~bits).sum())
        inside += int((differ & bits).sum())
    return outside, inside
