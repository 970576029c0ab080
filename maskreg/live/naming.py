"""Which parameter of a running model each tensor of a checkpoint is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from maskreg.errors import UsageError
from maskreg.mask.packed import Mask, TensorMask

_WRAPPED = r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
_WRAPPERS = re.compile(rf"\A(?:module\.|base_model\.model\.|{_WRAPPED})+|(?<=\.){_WRAPPED}")
"""What DataParallel, torch.compile, FSDP, activation checkpointing and PEFT put into names."""


def masks_of(parameters: Mapping[str, tuple[int, ...]], mask: Mask) -> dict[str, TensorMask]:
    """The mask of each parameter, by the parameter's name.

    Args:
        parameters: shapes by the names that the running model gives them.
        mask: by the names in the checkpoint.

    Raises:
        UsageError: a parameter has no mask, has several, or one of another shape.
    """
    found: dict[str, TensorMask] = {}
    for name, shape in parameters.items():
        bare = _WRAPPERS.sub("", name)
        if bare not in mask:
            raise UsageError(f"the mask says nothing of parameter {name}", hint="train only what the mask covers")
        one = mask[bare]
        if one.shape != tuple(shape):
            raise UsageError(f"{name} is {list(shape)} in this model and {list(one.shape)} in the mask")
        found[name] = one
    return found


def bare(names: Iterable[str]) -> dict[str, str]:
    """Names without what wrappers put into them, by the names as they are."""
    return {name: _WRAPPERS.sub("", name) for name in names}
