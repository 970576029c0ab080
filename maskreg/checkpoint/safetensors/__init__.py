"""Checkpoints in safetensors files, one or sharded with an index: read span by span, written whole or not at all."""

from maskreg.checkpoint.base import Format
from maskreg.checkpoint.index import INDEX_NAME
from maskreg.checkpoint.safetensors.plan import plan_output
from maskreg.checkpoint.safetensors.reader import SINGLE_NAME, open_path, recognize

SAFETENSORS = Format(
    name="safetensors",
    accepts=f"a .safetensors file, a directory with {SINGLE_NAME} or {INDEX_NAME}",
    recognize=recognize,
    open=open_path,
    plan=plan_output,
    hub_files=("*.safetensors", INDEX_NAME),
)
"""The line of the table of formats."""

__all__ = ["SAFETENSORS"]
