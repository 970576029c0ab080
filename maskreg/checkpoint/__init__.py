"""Checkpoints in safetensors files: read run by run, written whole or not at all, never mapped or loaded."""

from maskreg.checkpoint.base import INDEX_NAME, ITEM_BYTES, Checkpoint, Shard, TensorInfo
from maskreg.checkpoint.opening import open_checkpoint
from maskreg.checkpoint.place import clean_stale
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.roles import ROLES, layer_of, role_of
from maskreg.checkpoint.writer import CheckpointWriter, write_checkpoint

__all__ = [
    "INDEX_NAME",
    "ITEM_BYTES",
    "ROLES",
    "Checkpoint",
    "CheckpointWriter",
    "OutputPlan",
    "Shard",
    "TensorInfo",
    "clean_stale",
    "layer_of",
    "open_checkpoint",
    "plan_like",
    "role_of",
    "write_checkpoint",
]
