"""What wrappers add to the names of a model's parameters."""

from __future__ import annotations

import re

from maskreg.checkpoint.statedict import WRAPPERS

_WITHIN = rf"(?:{'|'.join(sorted(WRAPPERS | {'base_layer'}))})\."
_WRAPPERS = re.compile(rf"\A(?:module\.|base_model\.model\.|{_WITHIN})+|(?<=\.){_WITHIN}")
"""Of DataParallel, PEFT, those that checkpoints are rid of too, and PEFT around a single layer."""


def bare(name: str) -> str:
    """A name without what wrappers add."""
    return _WRAPPERS.sub("", name)
