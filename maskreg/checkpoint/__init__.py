"""Checkpoints in safetensors files: read run by run, written whole or not at all, never mapped or loaded."""

from maskreg.checkpoint.base import INDEX_NAME, Checkpoint, Shard
from maskreg.checkpoint.opening import open_checkpoint
from maskreg.checkpoint.output import clean_stale
from maskreg.checkpoint.roles import ROLES, layer_of, role_of
from maskreg.checkpoint.safetensors.plan import OutputPlan, plan_like
from maskreg.checkpoint.safetensors.writer import CheckpointWriter, write_checkpoint

__all__ = [
    "INDEX_NAME",
    "ROLES",
    "Checkpoint",
    "CheckpointWriter",
    "OutputPlan",
    "Shard",
    "clean_stale",
    "layer_of",
    "open_checkpoint",
    "plan_like",
    "role_of",
    "write_checkpoint",
]
