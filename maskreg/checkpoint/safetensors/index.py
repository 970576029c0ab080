"""The weight index that a sharded safetensors checkpoint is written with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from maskreg.checkpoint.safetensors.header import Shard

INDEX_NAME = "model.safetensors.index.json"
"""The file that says which tensor is in which shard."""


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
