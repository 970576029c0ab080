"""What a new checkpoint will consist of, decided before a byte of it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path

from maskreg.checkpoint.base import Checkpoint, Shard
from maskreg.checkpoint.companions import is_small_file
from maskreg.checkpoint.safetensors.header import build_header
from maskreg.checkpoint.safetensors.index import build_index
from maskreg.errors import FormatError, LimitError, WrongCheckpointError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import TensorInfo


@dataclass(frozen=True)
class OutputPlan:
    """Every file of a checkpoint that is about to be written.

    Attributes:
        shards: the weight files in order; each lists its tensors in the order of their data.
        index: the weight index; empty when there is a single weight file.
        files: small files by name: their bytes, or a path to copy from.
        single_file: the source is one file without a directory of its own.
        source: paths that the output must not replace.
    """

    shards: tuple[Shard, ...]
    index: bytes = b""
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    single_file: bool = False
    source: tuple[Path, ...] = ()

    @property
    def tensors(self) -> Iterator[TensorInfo]:
        """All tensors in the order in which their data is written."""
        return (info for shard in self.shards for info in shard.tensors)

    @property
    def total_bytes(self) -> int:
        """Size of all files together in bytes."""
        weights = sum(len(shard.header) + shard.data_bytes for shard in self.shards)
        return weights + len(self.index) + sum(map(_size, self.files.values()))


def plan_like(
    source: Checkpoint,
    *,
    replace: Mapping[str, TensorInfo] | None = None,
    remove: Collection[str] = (),
    add: Sequence[TensorInfo] = (),
    files: Mapping[str, bytes] | None = None,
    limits: Limits = LIMITS,
) -> OutputPlan:
    """Plan a checkpoint with the source's files, tensor order and metadata.

    A shard in which nothing changes keeps its header byte for byte, and so does the index when no shard
    changes. A tensor that is added goes to the end of the last shard; a shard that loses its last tensor goes.

    Args:
        source: the checkpoint to be like.
        replace: new dtype and shape by the name of a tensor of the source.
        remove: names to leave out.
        add: tensors that the source does not have.
        files: small files that win over the source's.
        limits: the largest small file.

    Raises:
        WrongCheckpointError: the source lacks a tensor to replace or remove, or has one to add.
        FormatError: a small file that is none by its name.
        LimitError: a small file that is too large.
    """
    replace, files, gone = replace or {}, files or {}, frozenset(remove)
    _check_tensors(source, [*replace, *gone], add)
    _check_files(files, limits)
    shards = [_shard_like(shard, replace, gone) for shard in source.shards]
    kept = [shard for shard in shards if shard.tensors] or shards[:1]
    if add:
        kept[-1] = _with_tensors(kept[-1], [*kept[-1].tensors, *add])
    unchanged = tuple(kept) == source.shards
    paths = {source.path, *(source.path / shard.file_name for shard in source.shards if source.path.is_dir())}
    return OutputPlan(
        shards=tuple(kept),
        index=source.index if unchanged or not source.index else build_index(source.index, kept),
        files={**source.small_files(), **files},
        single_file=source.path.is_file(),
        source=tuple(sorted(path.resolve() for path in paths)),
    )


def _shard_like(shard: Shard, replace: Mapping[str, TensorInfo], gone: frozenset[str]) -> Shard:
    tensors = [
        replaced(replace.get(info.name, info), name=info.name) for info in shard.tensors if info.name not in gone
    ]
    return shard if tuple(tensors) == shard.tensors else _with_tensors(shard, tensors)


def _with_tensors(shard: Shard, tensors: list[TensorInfo]) -> Shard:
    # Readers view a tensor in place, which needs it at a multiple of its element's width.
    if not _aligned(tensors):
        tensors = sorted(tensors, key=lambda info: -info.item_bytes)
    return replaced(shard, tensors=tuple(tensors), header=build_header(tensors, shard.metadata))


def _aligned(tensors: list[TensorInfo]) -> bool:
    place = 0
    for info in tensors:
        if place % info.item_bytes:
            return False
        place += info.nbytes
    return True


def _check_tensors(source: Checkpoint, named: list[str], add: Sequence[TensorInfo]) -> None:
    for name in named:
        if name not in source.tensors:
            raise WrongCheckpointError(name, f"not in {source.path}")
    known = set(source.tensors)
    for info in add:
        if info.name in known:
            raise WrongCheckpointError(info.name, f"already in {source.path}")
        known.add(info.name)


def _check_files(files: Mapping[str, bytes], limits: Limits) -> None:
    for name, data in files.items():
        if not is_small_file(name):
            raise FormatError(f"not a file that travels with a checkpoint: {ascii(name)[:80]}")
        if len(data) > limits.small_file_bytes:
            raise LimitError(f"{name}: {len(data)} bytes; the limit is {limits.small_file_bytes}")


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
