"""Checkpoints of models, whatever their format: read span by span, written whole or not at all."""

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.opening import FORMATS, open_checkpoint
from maskreg.checkpoint.output import clean_stale
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.renaming import named_like, with_both_names
from maskreg.checkpoint.roles import ROLES, Selection, layer_of, module_of, role_of
from maskreg.checkpoint.writer import CheckpointWriter
from maskreg.checkpoint.writing import copy_tensors, write_checkpoint

__all__ = [
    "FORMATS",
    "ROLES",
    "Checkpoint",
    "CheckpointWriter",
    "OutputPlan",
    "Selection",
    "clean_stale",
    "copy_tensors",
    "layer_of",
    "module_of",
    "named_like",
    "open_checkpoint",
    "plan_like",
    "role_of",
    "with_both_names",
    "write_checkpoint",
]
