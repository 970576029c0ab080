"""What wrappers put into the names of a model's parameters."""

from __future__ import annotations

import re

_WITHIN = r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|base_layer)\."
_WRAPPERS = re.compile(rf"\A(?:module\.|base_model\.model\.|{_WITHIN})+|(?<=\.){_WITHIN}")
"""DataParallel, PEFT, torch.compile, FSDP, activation checkpointing, and PEFT around one layer."""


def bare(name: str) -> str:
    """A name without what wrappers put into it."""
    return _WRAPPERS.sub("", name)
