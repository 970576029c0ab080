"""Checkpoints of models in any format: read span by span, written whole or not at all."""

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.opening import FORMATS, open_checkpoint
from maskreg.checkpoint.renaming import named_like, with_both_names
from maskreg.checkpoint.roles import ROLES, Selection, layer_of, module_of, role_of

__all__ = [
    "FORMATS",
    "ROLES",
    "Checkpoint",
    "Selection",
    "layer_of",
    "module_of",
    "named_like",
    "open_checkpoint",
    "role_of",
    "with_both_names",
]
