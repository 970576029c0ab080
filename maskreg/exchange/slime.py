"""The delta directory of slime, which SGLang's ``/pull_weights`` applies and ModelExpress keeps on object storage.

A version is a directory like a sharded checkpoint's. Its index says which file has which changed tensor, and in
its metadata, all texts, how: ``version``, ``base_version``, ``delta_encoding``, ``compression_format`` and
``checksum_format``. A changed tensor is one zstd frame (:mod:`maskreg.exchange.frames`), of

* ``xor``: the target's bytes XOR the source's, as many as the tensor has;
* ``overwrite``: a count and so many byte positions, u32 little-endian, then the target's bytes there.

The metadata of each safetensors file has the checksum of each tensor's bytes in the target, by its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import read_whole
from maskreg.checkpoint.layouts import INDEX_NAME, parse_index
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.errors import FormatError, UsageError
from maskreg.exchange.base import KEY, Format, Values, Written
from maskreg.exchange.frames import (
    POSITION,
    Bytes,
    Encoded,
    FramePatches,
    as_bytes,
    unpacked,
    unxored,
    write_frames,
    xor,
)
from maskreg.exchange.incoming import Patch, parse_document, patched, require_folder, tensor_of
from maskreg.exchange.outgoing import ChangedSpan, Outgoing
from maskreg.exchange.output import folder_written
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, shown

ENCODINGS = ("xor", "overwrite")
"""What ``delta_encoding`` can be."""

_FILE_BYTES = 5 * 10**9
"""Bytes of the tensors that one file is about; only a single larger tensor exceeds it."""

_POSITIONS = 1 << 32


class _Adler32:
    def __init__(self) -> None:
        self._value = 1

    def update(self, data: Any) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


CHECKSUMS: Mapping[str, Callable[[], Any]] = {"xxh3-128": xxhash.xxh3_128, "adler32": _Adler32}
"""What ``checksum_format`` can be."""


def write(
    update: Outgoing,
    out: Path,
    *,
    force: bool,
    encoding: str = "xor",
    checksum: str = "xxh3-128",
    version: int = 1,
    base_version: int = 0,
) -> Written:
    """Write a version directory; see :class:`maskreg.exchange.base.Format`."""
    _check_options(encoding, checksum, version, base_version)
    large = [info for info in update.changed.values() if info.nbytes > _POSITIONS]
    if encoding == "overwrite" and large:
        fault = f"{large[0].nbytes:,} bytes, and overwrite has 32 bits for a position"
        raise UsageError(f"tensor {large[0].name}: {fault}", hint="set encoding=xor")

    def describe(parts: Mapping[str, Mapping[str, object]]) -> Mapping[str, Any]:
        return {
            "metadata": {
                "version": f"{version:06d}",
                "base_version": f"{base_version:06d}",
                "delta_encoding": encoding,
                "compression_format": "zstd",
                "checksum_format": checksum,
                KEY: update.lineage(),
            },
            "weight_map": {name: file for file, frames in parts.items() for name in frames},
        }

    encode = xor if encoding == "xor" else _overwrite
    return folder_written(
        update,
        out,
        INDEX_NAME,
        "model-{n:05d}-of-{count:05d}.safetensors",
        _FILE_BYTES,
        write_file=partial(write_frames, update=update, encode=encode, checksum=CHECKSUMS[checksum]),
        describe=describe,
        weights=INDEX_NAME,
        force=force,
    )


def read(path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Values:
    """Open a version directory; see :class:`maskreg.exchange.base.Reader`."""
    require_folder(path, FORMAT.accepts)
    data = read_whole(path / INDEX_NAME, LIMITS.index_json_bytes)
    document = parse_document(data, path / INDEX_NAME)
    metadata = _checked_metadata(document.get("metadata"), path / INDEX_NAME)
    patches: dict[str, Patch] = {}
    decode = unxored if metadata["delta_encoding"] == "xor" else _overwritten
    if document.get("weight_map") != {}:
        weight_map = parse_index(data, INDEX_NAME, (".safetensors",))
        files = [path / name for name in sorted(set(weight_map.values()))]
        file = SafetensorsCheckpoint(path, files, index=data, weight_map=weight_map)
        closing(file)
        frames, hasher = FramePatches(source, file, decode), CHECKSUMS[metadata["checksum_format"]]
        for shard in file.shards:
            for name in (info.name for info in shard.tensors):
                patches[name] = frames.patch(tensor_of(source, name), shard.metadata.get(name, ""), hasher)
    return patched(source, patches, path, metadata.get(KEY), document=path / INDEX_NAME)


def _check_options(encoding: str, checksum: str, version: int, base_version: int) -> None:
    if encoding not in ENCODINGS:
        raise UsageError(f"unknown encoding {encoding!r}", hint=f"choose {' or '.join(ENCODINGS)}")
    if checksum not in CHECKSUMS:
        raise UsageError(f"unknown checksum {checksum!r}", hint=f"choose {' or '.join(CHECKSUMS)}")
    if not 0 <= base_version < version:
        raise UsageError(
            f"version {version} cannot follow version {base_version}", hint="a version is larger than its base"
        )


def _overwrite(span: ChangedSpan) -> Encoded:
    before, after = as_bytes(span.before), as_bytes(span.after)
    local = np.flatnonzero(before != after)
    positions = (local + span.start * span.info.item_bytes).astype(POSITION)
    return Encoded(after.copy(), after[local], positions)


def _checked_metadata(metadata: Any, document: Path) -> dict[str, Any]:
    if not isinstance(metadata, dict) or "delta_encoding" not in metadata:
        raise FormatError(
            f"{document}: its metadata has no delta_encoding: not a delta directory",
            hint="a full checkpoint is a target to extract from",
        )
    known: dict[str, Sequence[str]] = {
        "delta_encoding": ENCODINGS,
        "compression_format": ("zstd",),
        "checksum_format": tuple(CHECKSUMS),
    }
    for key, words in known.items():
        if metadata.get(key) not in words:
            raise FormatError(f"{document}: {key} is {shown(metadata.get(key))}; known: {', '.join(words)}")
    for key in ("version", "base_version"):
        text = metadata.get(key)
        if not isinstance(text, str) or not text.isascii() or not text.isdigit():
            raise FormatError(f"{document}: {key} is {shown(text)}, not a number as text")
    return metadata


def _overwritten(files: Checkpoint, info: TensorInfo, before: Bytes) -> Bytes:
    item = POSITION.itemsize
    delta = unpacked(files, info, item, item + (item + 1) * info.nbytes)
    count = int(delta[:item].view(POSITION)[0])
    if delta.size != item + (item + 1) * count:
        raise FormatError(f"tensor {info.name}: {delta.size:,} bytes are not {count:,} positions and bytes")
    positions = delta[item : item * (1 + count)].view(POSITION)
    if count and int(positions[-1]) >= info.nbytes:
        fault = f"position {int(positions[-1])} is not within its {info.nbytes:,} bytes"
        raise FormatError(f"tensor {info.name}: {fault}")
    if (positions[1:] <= positions[:-1]).any():
        raise FormatError(f"tensor {info.name}: positions are not in ascending order")
    result = before.copy()
    result[positions] = delta[item * (1 + count) :]
    return result


FORMAT = Format(
    name="slime",
    holds="values",
    accepts=f"a directory with {INDEX_NAME} that names a delta_encoding",
    write=write,
    read=read,
    options={"encoding": "xor", "checksum": "xxh3-128", "version": 1, "base_version": 0},
)
