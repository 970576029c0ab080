"""Whether blocks can be decoded where a tensor is: on a GPU, that takes Triton."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from maskreg.codec.step1 import Layout

    Launch = Callable[[Sequence[torch.Tensor], Sequence[Layout]], list[torch.Tensor]]


def launcher(context: torch.Tensor) -> Launch | None:
    """What decodes blocks on this tensor's device; None where they have to be decoded on the CPU.

    A GPU without Triton is one of those places, and is warned of once.
    """
    interpreted = context.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    return _imported() if context.is_cuda or interpreted else None


@cache
def _imported() -> Launch | None:
    try:
        from maskreg.codec.triton_decode import decode_layouts
    except ImportError as error:
        warnings.warn(
            f"blocks for the GPU are decoded on the CPU, because Triton is not here ({error}); "
            "to decode them on the GPU: pip install maskreg[gpu]",
            stacklevel=4,
        )
        return None
    return decode_layouts
