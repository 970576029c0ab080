"""The delta directory of SkyRL's weight sync, which its inference workers apply to the checkpoint before it.

A version is a directory ``delta-00000001`` with ``manifest.json``, which SkyRL uploads last, and files of payload. A
changed tensor is one zstd frame (:mod:`maskreg.exchange.frames`) of the target's bytes XOR the source's::

    {"version": 1, "base_version": 0, "payload_files": ["delta-rank00000-file000000.safetensors"],
     "total_uncompressed_num_bytes": 512, "total_compressed_num_bytes": 61,
     "tensors": [{"name": "model.norm.weight", "dtype": "bfloat16", "shape": [256], "uncompressed_num_bytes": 512,
                  "compressed_num_bytes": 61, "payload_file": "delta-rank00000-file000000.safetensors",
                  "payload_key": "model.norm.weight", "checksum": "32 hex digits", "checksum_algorithm": "xxh3-128"}]}

The checksum is of the tensor's bytes in the target. A version's base is the version before it; version 0 is the
checkpoint that training began with. After SkyRL's ``skyrl/backends/skyrl_train/weight_sync/delta_checkpoint.py`` of
2026-08-21 (https://github.com/NovaSky-AI/SkyRL, pull request 1935).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from maskreg.checkpoint.archive import DTYPES
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import is_plain_name
from maskreg.checkpoint.layouts import check_index
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.errors import FormatError, UsageError
from maskreg.exchange.base import KEY, Format, Values, Written
from maskreg.exchange.frames import Frame, FramePatches, unxored, write_frames, xor
from maskreg.exchange.incoming import MANIFEST_NAME, Patch, parse_manifest, patched, same_form
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import folder_written
from maskreg.tensors.info import shown

FILE_BYTES = 1 << 30
"""Bytes of the tensors that one file is about; only a single larger tensor exceeds it."""

_CHECKSUMS: Mapping[str, Callable[[], Any]] = {"xxh3-128": xxhash.xxh3_128, "sha256": hashlib.sha256}
_NAMES = {code: name for name, code in DTYPES.items()}


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    payload_file: str
    payload_key: str
    checksum: str = ""
    checksum_algorithm: str = "xxh3-128"


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    base_version: int
    tensors: tuple[_Record, ...]
    payload_files: tuple[str, ...]
    maskreg: str | None = None


def write(update: Outgoing, out: Path, *, force: bool, version: int = 1) -> Written:
    """Write a version directory; see :class:`maskreg.exchange.base.Format`."""
    if version < 1:
        raise UsageError(f"version {version}: version 0 is the source", hint="set version=1 or a later one")

    def describe(parts: Mapping[str, Mapping[str, Frame]]) -> Mapping[str, Any]:
        records = [
            {
                "name": name,
                "dtype": _NAMES[update.changed[name].dtype],
                "shape": update.changed[name].shape,
                "uncompressed_num_bytes": update.changed[name].nbytes,
                "compressed_num_bytes": frame.size,
                "payload_file": file,
                "payload_key": name,
                "checksum": frame.checksum,
                "checksum_algorithm": "xxh3-128",
            }
            for file, frames in parts.items()
            for name, frame in frames.items()
        ]
        return {
            "version": version,
            "base_version": version - 1,
            "tensors": records,
            "total_uncompressed_num_bytes": sum(update.changed[name].nbytes for name in update.changed),
            "total_compressed_num_bytes": sum(frame.size for frames in parts.values() for frame in frames.values()),
            "payload_files": list(parts),
            KEY: update.lineage(),
        }

    return folder_written(
        update,
        out,
        MANIFEST_NAME,
        "delta-rank00000-file{n:06d}.safetensors",
        FILE_BYTES,
        write_file=partial(write_frames, update=update, encode=xor, checksum=xxhash.xxh3_128),
        describe=describe,
        weights="delta-rank*.safetensors",
        force=force,
    )


def read(path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Values:
    """Open a version directory; see :class:`maskreg.exchange.base.Reader`."""
    manifest, document = parse_manifest(path, _Manifest, FORMAT.accepts), str(path / MANIFEST_NAME)
    if manifest.base_version != manifest.version - 1:
        raise FormatError(
            f"{document}: version {manifest.version} on version {manifest.base_version}, not the one before"
        )
    if wrong := [name for name in manifest.payload_files if not is_plain_name(name)]:
        raise FormatError(f"{document}: not the plain name of a file: {shown(wrong[0])}")
    file = SafetensorsCheckpoint(path, [path / name for name in manifest.payload_files])
    closing(file)
    listed = {record.name: record.payload_file for record in manifest.tensors}
    if len(listed) < len(manifest.tensors):
        raise FormatError(f"{document}: a tensor is in it twice")
    check_index(listed, [(shard.file_name, [info.name for info in shard.tensors]) for shard in file.shards], document)
    frames = FramePatches(source, file, unxored)
    patches = {record.name: _patch(record, frames, source) for record in manifest.tensors}
    return patched(source, patches, path, manifest.maskreg, document=path / MANIFEST_NAME)


def _patch(record: _Record, frames: FramePatches, source: Checkpoint) -> Patch:
    info = same_form(source, record.name, record.dtype, record.shape)
    if record.payload_key != record.name:
        raise FormatError(f"tensor {info.name}: its payload has another name, {shown(record.payload_key)}")
    if record.checksum_algorithm not in _CHECKSUMS:
        known = ", ".join(_CHECKSUMS)
        raise FormatError(f"tensor {info.name}: its checksum is {shown(record.checksum_algorithm)}; known: {known}")
    return frames.patch(info, record.checksum, _CHECKSUMS[record.checksum_algorithm])


FORMAT = Format(
    name="skyrl",
    holds="values",
    accepts=f"a directory with {MANIFEST_NAME} and the payload files that it names",
    write=write,
    read=read,
    options={"version": 1},
)
