"""The keys of an artifact's objects, and which part each belongs to.

::

    artifacts/sha256/<hex>/       one prefix per artifact, the same on disk, in a bucket and in the incoming folder
      manifest.json               belongs to no part: its digest is the artifact's
      tensors.json                all parts
      analysis.json               analysis
      data.zarr/zarr.json         all parts
      data.zarr/<array>/...       by array: mask; delta, delta_index, whole; reverse, ...; leaves belong to all parts
      files/ reverse_files/       delta, reverse

The metadata of an artifact's Zarr group and arrays: one document for each array and length, and nothing else.

An array's ``zarr.json`` follows from its name, its length and whether it is compressed, so a reader does not have to
interpret one. It makes the document that there has to be, and compares::

    tensor table:  mask has 1,234 bytes     ->  {"shape": [1234], "data_type": "uint8", ..., "codecs": [...]}
    stored:        {"shape": [1234], ..., "must_understand": true}
    differs at:    must_understand is not a known key                       refused, before Zarr sees it

So Zarr's own parser only ever meets documents that Zarr wrote itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from maskreg.digest import FINGERPRINT_BYTES, Digest
from maskreg.document import parse_object
from maskreg.errors import FormatError
from maskreg.limits import LIMITS

MANIFEST = "manifest.json"
TENSORS = "tensors.json"
ANALYSIS = "analysis.json"
GROUP = "data.zarr"
FILES = "files/"
REVERSE_FILES = "reverse_files/"
PARTS = ("mask", "delta", "reverse")
"""Parts that consist of arrays; the fourth, ``analysis``, is one document."""

ARTIFACTS = "artifacts/sha256/"
"""Prefix of all artifacts in a store."""

INCOMING = "incoming/"
"""Prefix of objects that are not yet part of an artifact in a local registry."""


def artifact_prefix(digest: Digest) -> str:
    """Prefix of an artifact's keys in a store."""
    return f"{ARTIFACTS}{digest.hex}/"


def incoming_prefix(digest: Digest) -> str:
    """Prefix of an artifact's objects that wait until their part is complete."""
    return f"{INCOMING}{digest.hex}/"


def part_of(key: str) -> str:
    """The part that an object belongs to: ``mask``, ``delta``, ``reverse``, ``analysis``; empty for all parts."""
    if key == ANALYSIS:
        return "analysis"
    if key.startswith(FILES):
        return "delta"
    if key.startswith(REVERSE_FILES):
        return "reverse"
    segments = key.split("/")
    return ARRAYS[segments[1]].part if segments[0] == GROUP and len(segments) > 2 and segments[1] in ARRAYS else ""


CHUNK_BYTES = 1 << 20
SHARD_BYTES = 16 << 20
# Measured: larger shards cost memory and speed; smaller ones cost more objects.


class ArrayForm(NamedTuple):
    """What all arrays of one name have in common.

    Attributes:
        part: that they belong to; empty for all parts.
        row: the shape of a row.
        compressible: whether chunks can be Zstandard frames.
    """

    part: str
    dtype: str
    row: tuple[int, ...] = ()
    compressible: bool = False


ARRAYS: Mapping[str, ArrayForm] = {
    "mask": ArrayForm("mask", "uint8", compressible=True),
    "leaves": ArrayForm("", "uint8", (2, FINGERPRINT_BYTES)),
    "delta": ArrayForm("delta", "uint8"),
    "delta_index": ArrayForm("delta", "uint64"),
    "reverse": ArrayForm("reverse", "uint8"),
    "reverse_index": ArrayForm("reverse", "uint64"),
    "whole": ArrayForm("delta", "uint8"),
    "reverse_whole": ArrayForm("reverse", "uint8"),
}
"""Every array that an artifact can have."""


_ITEM_BYTES = {"uint8": 1, "uint64": 8}


@dataclass(frozen=True)
class ArrayLayout:
    """How an array of some length is cut into chunks and shards.

    An array of a shard or more has shards of 16 MiB and chunks of 1 MiB. A smaller one has chunks that fit it, so that
    a small artifact is not padded to 1 MiB for each array::

        mask of 40 MiB       chunks of 2^20 rows, 16 of them in a shard, 3 shards
        mask of 2.5 MiB      3 chunks of 873,814 rows in one shard
        leaves, 5 rows       1 chunk of 5 rows
    """

    name: str
    length: int
    compressed: bool = False

    @property
    def key(self) -> str:
        """Key of its metadata."""
        return metadata_key(self.name)

    @property
    def form(self) -> ArrayForm:
        """Dtype and shape of a row."""
        return ARRAYS[self.name]

    @cached_property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return _ITEM_BYTES[self.form.dtype] * math.prod(self.form.row)

    @cached_property
    def chunks_per_shard(self) -> int:
        """Chunks of a shard, 1 to 16."""
        if self.length * self.row_bytes >= SHARD_BYTES:
            return SHARD_BYTES // CHUNK_BYTES
        return max(1, -(-self.length * self.row_bytes // CHUNK_BYTES))

    @cached_property
    def chunk_rows(self) -> int:
        """Rows of a chunk; the last one can have fewer."""
        first_shard = min(self.length, SHARD_BYTES // self.row_bytes)
        return max(1, -(-first_shard // self.chunks_per_shard))

    @cached_property
    def chunk_bytes(self) -> int:
        """Size of a chunk in bytes, not compressed; the last one of an array is padded to it."""
        return self.chunk_rows * self.row_bytes

    @property
    def chunks(self) -> int:
        """Chunks of the array."""
        return -(-self.length // self.chunk_rows)

    @property
    def shards(self) -> int:
        """Shards of the array, each an object."""
        return -(-self.length // (self.chunk_rows * self.chunks_per_shard))

    def shard_key(self, number: int) -> str:
        """Key of a shard."""
        return f"{GROUP}/{self.name}/c/{number}" + "/0" * len(self.form.row)

    def document(self) -> dict[str, Any]:
        """Its ``zarr.json``, keys in the order in which Zarr writes them."""
        row = list(self.form.row)
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        serializer = little if _ITEM_BYTES[self.form.dtype] > 1 else {"name": "bytes"}
        frames = [{"name": "zstd", "configuration": {"level": 1, "checksum": True}}] if self.compressed else []
        inner = {
            "chunk_shape": [self.chunk_rows, *row],
            "codecs": [serializer, *frames, {"name": "crc32c"}],
            "index_codecs": [little, {"name": "crc32c"}],
            "index_location": "end",
        }
        shard_shape = [self.chunk_rows * self.chunks_per_shard, *row]
        return {
            "shape": [self.length, *row],
            "data_type": self.form.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard_shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "sharding_indexed", "configuration": inner}],
            "attributes": {},
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }


def metadata_key(name: str) -> str:
    """Key of an array's metadata."""
    return f"{GROUP}/{name}/zarr.json"


def group_document(schema: str) -> dict[str, Any]:
    """The group's ``zarr.json``."""
    return {"attributes": {"schema": schema}, "zarr_format": 3, "node_type": "group"}


def dump_metadata(document: Mapping[str, Any]) -> bytes:
    """The bytes of a ``zarr.json``: what Zarr writes, without white space."""
    return json.dumps(document, separators=(",", ":")).encode()


def check_group(data: bytes, schema: str) -> None:
    """Refuse any group metadata but :func:`group_document`."""
    key = f"{GROUP}/zarr.json"
    _require(_parsed(data, key), group_document(schema), key)


def check_array(data: bytes, name: str, length: int) -> ArrayLayout:
    """The layout of an array that has the only metadata which an array of this name and length can have."""
    key = metadata_key(name)
    stored = _parsed(data, key)
    layout = ArrayLayout(name, length)
    if ARRAYS[name].compressible and stored.get("codecs") != layout.document()["codecs"]:
        frames = ArrayLayout(name, length, compressed=True)
        # Otherwise it is compared with the plain one, which names what differs.
        layout = frames if '"zstd"' in json.dumps(stored.get("codecs")) else layout
    _require(stored, layout.document(), key)
    return layout


_SHOWN = 400


def _parsed(data: bytes, key: str) -> dict[str, Any]:
    return parse_object(data, key, max_bytes=LIMITS.zarr_json_bytes)


def _require(stored: Mapping[str, Any], expected: Mapping[str, Any], key: str) -> None:
    # As text, because types count: 1, 1.0 and true are three values.
    texts = [{name: json.dumps(document[name], sort_keys=True) for name in document} for document in (stored, expected)]
    for name in sorted({*stored, *expected}):
        if texts[0].get(name) != texts[1].get(name):
            found, due = (text.get(name, "missing") for text in texts)
            raise FormatError(f"{key}: {json.dumps(name)} is {found[:_SHOWN]}, not {due[:_SHOWN]}")
