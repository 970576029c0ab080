"""What a new checkpoint consists of, decided before a byte of it is written: its source's files, or new ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from operator import attrgetter
from typing import Any

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import check_small_file
from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.safetensors import SINGLE_NAME, SafetensorsCheckpoint, Shard, build_shard
from maskreg.errors import WrongCheckpointError
from maskreg.tensors.info import TensorInfo, batches

SHARD_BYTES = 5 * 10**9
"""Maximum data of a new weight file in bytes; only a single larger tensor exceeds it."""

_METADATA = {"format": "pt"}


@dataclass(frozen=True)
class _Changes:
    """How a new checkpoint differs from the one it is modeled on; ``files`` win over the source's small files."""

    replace: Mapping[str, TensorInfo] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    add: tuple[TensorInfo, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    remove_files: frozenset[str] = frozenset()

    def applied_to(self, tensors: Iterable[TensorInfo]) -> tuple[TensorInfo, ...]:
        """Tensors of the source as the new checkpoint has them, in their order; without those that are added."""
        kept = (info for info in tensors if info.name not in self.remove)
        return tuple(replaced(self.replace.get(info.name, info), name=info.name) for info in kept)

    def small_files(self, source: Checkpoint) -> Mapping[str, bytes | Location]:
        """Small files of the new checkpoint: their bytes, or a path to copy from."""
        kept = {name: path for name, path in source.small_files().items() if name not in self.remove_files}
        return {**kept, **self.files}


@dataclass(frozen=True)
class OutputPlan:
    """Every file of a checkpoint that is about to be written.

    Attributes:
        shards: the weight files in order.
        index: the weight index; empty when there is a single weight file.
        files: small files by name: their bytes, or a path to copy from.
        single_file: the source is one file without a directory of its own.
        sources: resolved paths that the output must not replace.
    """

    shards: tuple[Shard, ...]
    index: bytes = b""
    files: Mapping[str, bytes | Location] = field(default_factory=dict)
    single_file: bool = False
    sources: tuple[Location, ...] = ()

    @property
    def tensors(self) -> Iterator[TensorInfo]:
        """All tensors, in the order in which their data must be written."""
        return (info for shard in self.shards for info in shard.tensors)

    @property
    def data_bytes(self) -> int:
        """Size of all tensors' data in bytes."""
        return sum(shard.data_bytes for shard in self.shards)

    @property
    def total_bytes(self) -> int:
        """Size of all files together in bytes."""
        headers = sum(len(shard.header) for shard in self.shards)
        return headers + self.data_bytes + len(self.index) + sum(map(_size, self.files.values()))

    @property
    def names(self) -> frozenset[str]:
        """Names of all files in a directory of this plan."""
        index = {INDEX_NAME} if self.index else set()
        return frozenset({shard.file_name for shard in self.shards} | index | self.files.keys())


def plan_like(
    source: Checkpoint,
    *,
    replace: Mapping[str, TensorInfo] | None = None,
    remove: Collection[str] = (),
    add: Sequence[TensorInfo] = (),
    files: Mapping[str, bytes] | None = None,
    remove_files: Collection[str] = (),
) -> OutputPlan:
    """Plan a checkpoint in safetensors with the source's files, tensor order and metadata.

    Of a source in safetensors, a shard in which nothing changes keeps its header byte for byte, and so does the index
    when no shard changes. A tensor that is added goes to the end of the last shard; a shard that loses its last tensor
    goes.

    ``add``: tensors that the source does not have.
    """
    changes = _Changes(replace or {}, frozenset(remove), tuple(add), files or {}, frozenset(remove_files))
    _check_tensors(source, changes)
    for name, data in changes.files.items():
        check_small_file(name, len(data))
    return _plan_changed(source, changes) if isinstance(source, SafetensorsCheckpoint) else _plan_anew(source, changes)


def _check_tensors(source: Checkpoint, changes: _Changes) -> None:
    for name in (*changes.replace, *changes.remove):
        if name not in source.tensors:
            raise WrongCheckpointError(name, f"not in {source.path}")
    known = set(source.tensors)
    for info in changes.add:
        if info.name in known:
            raise WrongCheckpointError(info.name, f"already in {source.path}")
        known.add(info.name)


def _plan_changed(source: SafetensorsCheckpoint, changes: _Changes) -> OutputPlan:
    shards = [_changed(shard, changes) for shard in source.shards]
    kept = [shard for shard in shards if shard.tensors] or shards[:1]
    if changes.add:
        last = kept[-1]
        kept[-1] = build_shard(last.file_name, [*last.tensors, *changes.add], last.metadata)
    unchanged = tuple(kept) == source.shards
    paths = {source.path, *(source.path / shard.file_name for shard in source.shards if source.path.is_dir())}
    return OutputPlan(
        shards=tuple(kept),
        index=source.index if unchanged or not source.index else _build_index(source.index, kept),
        files=changes.small_files(source),
        single_file=source.path.is_file(),
        sources=tuple(sorted(path.resolve() for path in paths)),
    )


def _changed(shard: Shard, changes: _Changes) -> Shard:
    tensors = changes.applied_to(shard.tensors)
    return shard if tensors == shard.tensors else build_shard(shard.file_name, tensors, shard.metadata)


def _plan_anew(source: Checkpoint, changes: _Changes) -> OutputPlan:
    tensors = [*changes.applied_to(source.tensors.values()), *changes.add]
    groups = list(batches(tensors, SHARD_BYTES, attrgetter("nbytes"))) or [[]]
    count = len(groups)
    names = [f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)] if count > 1 else [SINGLE_NAME]
    shards = [build_shard(name, group, _METADATA) for name, group in zip(names, groups, strict=True)]
    return OutputPlan(
        shards=tuple(shards),
        index=_build_index(b"", shards) if count > 1 else b"",
        files=changes.small_files(source),
        sources=(source.path.resolve(),),
    )


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


def _size(content: bytes | Location) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
