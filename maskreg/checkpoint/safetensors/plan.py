"""Which weight files a new checkpoint has: its source's, or new ones for a source of another format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from maskreg.checkpoint.base import Changes, Checkpoint, Format
from maskreg.checkpoint.layouts import INDEX_NAME, is_safetensors
from maskreg.checkpoint.safetensors.header import Shard, build_shard
from maskreg.checkpoint.safetensors.reader import SINGLE_NAME, SafetensorsCheckpoint, open_path
from maskreg.checkpoint.safetensors.writer import SafetensorsPlan
from maskreg.tensors.info import TensorInfo

SHARD_BYTES = 5 * 10**9
"""Maximum data of a new weight file in bytes; only a single larger tensor exceeds it."""

_METADATA = {"format": "pt"}


def plan_output(source: Checkpoint, changes: Changes) -> SafetensorsPlan:
    """Plan the weight files of ``source`` with some changes.

    A shard in which nothing changes keeps its header byte for byte, and so does the index when no shard changes. A
    tensor that is added goes to the end of the last shard; a shard that loses its last tensor goes.
    """
    if not isinstance(source, SafetensorsCheckpoint):
        return _plan_anew(source, changes)
    shards = [_changed(shard, changes) for shard in source.shards]
    kept = [shard for shard in shards if shard.tensors] or shards[:1]
    if changes.add:
        last = kept[-1]
        kept[-1] = build_shard(last.file_name, [*last.tensors, *changes.add], last.metadata)
    unchanged = tuple(kept) == source.shards
    paths = {source.path, *(source.path / shard.file_name for shard in source.shards if source.path.is_dir())}
    return SafetensorsPlan(
        shards=tuple(kept),
        index=source.index if unchanged or not source.index else _build_index(source.index, kept),
        files=changes.small_files(source),
        single_file=source.path.is_file(),
        sources=tuple(sorted(path.resolve() for path in paths)),
    )


def _changed(shard: Shard, changes: Changes) -> Shard:
    tensors = changes.applied_to(shard.tensors)
    return shard if tensors == shard.tensors else build_shard(shard.file_name, tensors, shard.metadata)


def _plan_anew(source: Checkpoint, changes: Changes) -> SafetensorsPlan:
    groups = list(grouped([*changes.applied_to(source.tensors.values()), *changes.add], SHARD_BYTES)) or [[]]
    count = len(groups)
    names = [f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)] if count > 1 else [SINGLE_NAME]
    shards = [build_shard(name, tensors, _METADATA) for name, tensors in zip(names, groups, strict=True)]
    return SafetensorsPlan(
        shards=tuple(shards),
        index=_build_index(b"", shards) if count > 1 else b"",
        files=changes.small_files(source),
        sources=(source.path.resolve(),),
    )


def grouped(tensors: Iterable[TensorInfo], most_bytes: int) -> Iterator[list[TensorInfo]]:
    """Tensors in their order, in groups of at most ``most_bytes``; a larger tensor is a group of its own."""
    group: list[TensorInfo] = []
    size = 0
    for info in tensors:
        if group and size + info.nbytes > most_bytes:
            yield group
            group, size = [], 0
        group.append(info)
        size += info.nbytes
    if group:
        yield group


def _build_index(source_index: bytes, shards: Sequence[Shard]) -> bytes:
    """An index as transformers writes it, with new totals and the other metadata of the source's."""
    infos = [info for shard in shards for info in shard.tensors]
    source_metadata = json.loads(source_index or b"{}").get("metadata")
    metadata: dict[str, Any] = dict(source_metadata) if isinstance(source_metadata, dict) else {}
    metadata["total_size"] = sum(info.nbytes for info in infos)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(info.numel for info in infos)
    weight_map = {info.name: shard.file_name for shard in shards for info in shard.tensors}
    document = {"metadata": metadata, "weight_map": weight_map}
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


SAFETENSORS = Format(
    name="safetensors",
    accepts=f"a .safetensors file, a directory with {SINGLE_NAME} or {INDEX_NAME}",
    recognize=is_safetensors,
    open=open_path,
    plan=plan_output,
    hub_files=("*.safetensors", INDEX_NAME),
)
