"""What wrappers add to the names of a model's parameters."""

from __future__ import annotations

import re

_WITHIN = r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|base_layer)\."
_WRAPPERS = re.compile(rf"\A(?:module\.|base_model\.model\.|{_WITHIN})+|(?<=\.){_WITHIN}")
"""Of DataParallel, PEFT, torch.compile, FSDP, activation checkpointing, and PEFT around a single layer."""


def bare(name: str) -> str:
    """A name without what wrappers add."""
    return _WRAPPERS.sub("", name)
