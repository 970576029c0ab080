"""The weight index of a sharded checkpoint: which tensor is in which file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from maskreg.checkpoint.companions import is_plain_name
from maskreg.checkpoint.safetensors.header import Shard
from maskreg.document import parse_object
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import check_name, shown

_VALUES = 5
"""JSON values for each tensor; there should be one."""

INDEX_NAME = "model.safetensors.index.json"
"""The file that says which tensor is in which shard."""


def parse_index(data: bytes, limits: Limits = LIMITS) -> Mapping[str, str]:
    """Read a weight index.

    Returns:
        Tensor name to shard file name; every file name is plain, so it stays in its directory.

    Raises:
        FormatError: no well-formed ``weight_map``, or a shard name that is not a plain file name.
        LimitError: too large, too deep or too many tensors.
    """
    document = parse_object(
        data,
        INDEX_NAME,
        max_bytes=limits.index_json_bytes,
        max_depth=limits.json_depth,
        max_values=_VALUES * limits.tensors,
    )
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{INDEX_NAME}: weight_map must be an object that names at least one tensor")
    if len(weight_map) > limits.tensors:
        raise LimitError(f"{INDEX_NAME}: {len(weight_map)} tensors; the limit is {limits.tensors}")
    for name in weight_map:
        check_name(name, INDEX_NAME, limits)
    for shard in set(map(_shard_name, weight_map.values())):
        if not is_plain_name(shard) or not shard.endswith(".safetensors"):
            raise FormatError(f"{INDEX_NAME}: not the plain name of a shard: {shown(shard)}")
    return weight_map


def check_index(weight_map: Mapping[str, str], shards: Iterable[Shard]) -> None:
    """Check that index and shards agree.

    Raises:
        FormatError: a tensor that only one of them knows, or that is in two shards.
    """
    stored: dict[str, str] = {}
    for shard in shards:
        for info in shard.tensors:
            if info.name in stored:
                raise FormatError(f"tensor {info.name} is in {stored[info.name]} and in {shard.file_name}")
            stored[info.name] = shard.file_name
    for name in sorted(stored.keys() | weight_map.keys()):
        listed, actual = weight_map.get(name), stored.get(name)
        if listed != actual:
            raise FormatError(
                f"{INDEX_NAME}: tensor {name} is listed in {listed or 'no shard'} and found in {actual or 'none'}",
                hint="download or copy the checkpoint again",
            )


def build_index(source_index: bytes, shards: Iterable[Shard]) -> bytes:
    """An index for ``shards`` as transformers writes it, with new totals.

    Args:
        source_index: an index whose other metadata is kept; empty for none.
        shards: the weight files.
    """
    shards = tuple(shards)
    infos = [info for shard in shards for info in shard.tensors]
    source_metadata = json.loads(source_index or b"{}").get("metadata")
    metadata: dict[str, Any] = dict(source_metadata) if isinstance(source_metadata, dict) else {}
    metadata["total_size"] = sum(info.nbytes for info in infos)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(info.numel for info in infos)
    weight_map = {info.name: shard.file_name for shard in shards for info in shard.tensors}
    document = {"metadata": metadata, "weight_map": weight_map}
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _shard_name(value: Any) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{INDEX_NAME}: weight_map must name a file for every tensor")
    return value
