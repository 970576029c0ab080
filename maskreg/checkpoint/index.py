"""The weight index of a sharded checkpoint: which tensor is in which file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from maskreg.checkpoint.companions import is_plain_name
from maskreg.document import parse_object
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import check_name, shown

_VALUES = 5
"""JSON values for each tensor; there should be one."""


def parse_index(data: bytes, name: str, suffixes: tuple[str, ...], limits: Limits = LIMITS) -> Mapping[str, str]:
    """Read a weight index."""
    document = parse_object(
        data,
        name,
        max_bytes=limits.index_json_bytes,
        max_depth=limits.json_depth,
        max_values=_VALUES * limits.tensors,
    )
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{name}: weight_map must be an object that names at least one tensor")
    if len(weight_map) > limits.tensors:
        raise LimitError(f"{name}: {len(weight_map)} tensors; the limit is {limits.tensors}")
    for tensor in weight_map:
        check_name(tensor, name, limits)
    for shard in {_shard_name(value, name) for value in weight_map.values()}:
        if not is_plain_name(shard) or not shard.endswith(suffixes):
            raise FormatError(f"{name}: not the plain name of a shard: {shown(shard)}")
    return weight_map


def check_index(weight_map: Mapping[str, str], shards: Iterable[tuple[str, Iterable[str]]], name: str) -> None:
    """Check that index and shards agree."""
    stored: dict[str, str] = {}
    for shard, tensors in shards:
        for tensor in tensors:
            if tensor in stored:
                raise FormatError(f"tensor {tensor} is in {stored[tensor]} and in {shard}")
            stored[tensor] = shard
    for tensor in sorted(stored.keys() | weight_map.keys()):
        listed, actual = weight_map.get(tensor), stored.get(tensor)
        if listed != actual:
            raise FormatError(
                f"{name}: tensor {tensor} is listed in {listed or 'no shard'} and found in {actual or 'none'}",
                hint="save the model again, so that the index fits its files, or download the checkpoint again",
            )


def _shard_name(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{name}: weight_map must name a file for every tensor")
    return value


INDEX_NAME = "model.safetensors.index.json"
"""The file that says which tensor is in which shard."""
