"""Whether blocks can be decoded on the device that holds a tensor: on a GPU, that takes Triton."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from maskreg.codec.layout import Layout

    Decode = Callable[[Sequence[torch.Tensor], Sequence[Layout]], list[torch.Tensor]]


def decoder_for(source: torch.Tensor) -> Decode | None:
    """A function that decodes blocks on this tensor's device; None when they have to be decoded on the CPU.

    The latter includes a GPU without Triton, of which it warns once.
    """
    interpreted = source.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    return _triton_decoder() if source.is_cuda or interpreted else None


@cache
def _triton_decoder() -> Decode | None:
    # Triton takes a second to import and exists on Linux only; nobody else should notice.
    try:
        from maskreg.codec.triton_decode import decode_layouts
    except ImportError as error:
        warnings.warn(
            f"blocks are decoded on the CPU, because Triton is not installed ({error}); "
            "to decode them on the GPU: pip install maskreg[gpu]",
            stacklevel=4,
        )
        return None
    return decode_layouts
