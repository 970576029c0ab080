"""Reading an artifact: the manifest is checked against its digest, all else against the manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.arrays import StoredArray
from maskreg.artifact.layout import (
    ARRAYS,
    FILES,
    GROUP,
    REVERSE_FILES,
    TENSORS,
    artifact_prefix,
    check_array,
    check_group,
    metadata_key,
    part_of,
)
from maskreg.artifact.manifest import SCHEMA, Manifest, Object, Side
from maskreg.artifact.objects import CACHE_BYTES, VerifiedObjects
from maskreg.artifact.presence import listing, objects_of, part_lacking, read_manifest, whole_parts
from maskreg.artifact.shards import check_shard
from maskreg.artifact.tensors import Tensor, load_tensors
from maskreg.artifact.totals import check_table
from maskreg.checkpoint.files import check_small_file
from maskreg.codec import Codec, get_codec
from maskreg.digest import Digest, LeafHashes
from maskreg.errors import CorruptError, FormatError, NotFoundError, PartAbsentError
from maskreg.limits import LIMITS
from maskreg.mask import Mask, TensorMask, packed_bytes
from maskreg.parallel import each
from maskreg.progress import SILENT, Progress
from maskreg.store.base import Store
from maskreg.words import counted, human_bytes

if TYPE_CHECKING:
    import zarr


class Artifact:
    """One artifact in a store. Opening reads the manifest and the tensor table; the payload is read on demand.

    Attributes:
        name: the reference that it was opened by; empty for a digest.
        bring: fetches a part that is absent, where a remote can have it; None where none is known.
        manifest: what was computed, and from what.
        by_name: the same by tensor name, aliases included.
    """

    def __init__(self, store: Store, digest: Digest, manifest: Manifest) -> None:
        """Use :meth:`open`."""
        self.store = store
        self.digest = digest
        self.name = ""
        self.bring: Callable[[str], None] | None = None
        self.manifest = manifest
        self._arrays: dict[str, StoredArray] = {}
        self._indexes: dict[str, npt.NDArray[np.uint64]] = {}
        self._sizes = {o.key: o.size for o in manifest.objects}
        self._objects = VerifiedObjects(store, digest, manifest, self._check_shard)
        self.tensors: tuple[Tensor, ...] = load_tensors(self.document(TENSORS, LIMITS.tensors_json_bytes))
        check_table(self.tensors, manifest)
        self.by_name: dict[str, Tensor] = {n: t for t in self.tensors for n in (t.name, *t.aliases)}

    @classmethod
    def open(cls, store: Store, digest: Digest) -> Artifact:
        """Open an artifact by digest."""
        _, manifest = read_manifest(store, digest)
        return cls(store, digest, manifest)

    def hold_at_most(self, nbytes: int) -> None:
        """Keep fewer bytes of verified objects in memory than usual, for a reader of many artifacts at a time.

        Without room for two shards, two chunks of 1 MiB of each array that is read are kept instead; for 0 bytes, one.
        """
        self._objects.room = min(nbytes, CACHE_BYTES)

    def __repr__(self) -> str:
        return f"<Artifact {self.label}: {self.manifest.kind}, {self.manifest.summary}, {human_bytes(self.size)}>"

    @property
    def label(self) -> str:
        """Its name with the first digits of its digest, for people."""
        return " ".join(filter(None, (self.name, self.digest.short)))

    @property
    def size(self) -> int:
        """Size of all objects in bytes."""
        return self.manifest.size

    @property
    def density(self) -> float:
        """Share of the compared coordinates that moved."""
        return self.manifest.totals.density

    @property
    def source(self) -> Side:
        """The checkpoint that it was computed from: its root, its hub id if known, and its size."""
        return self.manifest.source

    # Presence

    def present(self) -> frozenset[str]:
        """The parts that are completely present; compares sizes, reads no bytes."""
        return whole_parts(self.store, self.digest, self.manifest, listing(self.store, self.digest))

    def require(self, part: str) -> None:
        """Make sure that a part is present; fetch it where it is not and a remote is known."""
        if part not in self.manifest.parts:
            raise part_lacking(f"artifact {self.digest.short}", part, **self._facts)
        if part not in self.present() and self.bring is not None:
            self.bring(part)
        if part not in self.present():
            raise PartAbsentError(
                f"the {part} part of artifact {self.digest.short} was not pulled", not_pulled=part, **self._facts
            )

    @property
    def _facts(self) -> dict[str, Any]:
        return {"artifact": self.digest, **({"ref": self.name} if self.name else {})}

    def verify(
        self, parts: Collection[str] | None = None, *, progress: Progress = SILENT, jobs: int = 4
    ) -> frozenset[str]:
        """Hash every object of ``parts`` (by default of all that are present) and compare with the manifest."""
        for part in parts or ():
            self.require(part)
        checked = self.present() if parts is None else frozenset(parts)
        self._hash(objects_of(self.manifest, checked), progress, jobs)
        return checked

    def verify_rest(self, *, jobs: int = 4) -> None:
        """Hash those objects of the present parts that were not hashed yet."""
        present = objects_of(self.manifest, self.present())
        self._hash([o for o in present if o.key not in self._objects.hashed], SILENT, jobs)

    def check_layout(self) -> None:
        """Open all that the present parts consist of, as reading does: array metadata, lengths, codecs, file names.

        Shards are checked by :meth:`check_object`, whose checks this prepares.
        """
        present = self.present()
        for key in (o.key for o in self.manifest.objects if part_of(o.key) in present):
            if key.startswith((FILES, REVERSE_FILES)):
                check_small_file(key.partition("/")[2], self._sizes[key])
        if "analysis" in self.manifest.parts:
            return
        for name in (name for name in ARRAYS if part_of(metadata_key(name)) in {"", *present}):
            if name not in ("whole", "reverse_whole") or self._lengths[name]:
                self._array(name)
        for part in {"delta", "reverse"} & present:
            self.codec(part)

    def check_object(self, entry: Object) -> None:
        """Read an object whole, compare it with the manifest, and a shard with its array's metadata."""
        self._objects.check(entry)

    # Payload

    @cached_property
    def zarr_group(self) -> zarr.Group:
        """The arrays of an artifact on this machine, as the library Zarr opens them, after every object was hashed.

        Absent parts have no arrays. Damage that happens afterwards is found by the checksums of chunks alone.

        Raises:
            CorruptError: an object is damaged or missing.
            NotFoundError: the artifact lies in a bucket or on a server.
        """
        import zarr

        if (files := self.store.files) is None:
            raise NotFoundError(f"{self.label} is not in a folder of this machine", hint="pull it, and open that one")
        self.verify()
        return zarr.open_group(files.path(artifact_prefix(self.digest) + GROUP), mode="r", zarr_format=3)

    @cached_property
    def mask(self) -> Mask:
        """The mask: tensor name (aliases included) to packed bits, read on access."""
        self.require("mask")
        return _LazyMask(self)

    def mask_bits(self, row: Tensor, start: int = 0, stop: int | None = None) -> npt.NDArray[np.uint8]:
        """Packed bits of coordinates ``[start, stop)`` of a tensor; ``start`` is a multiple of 64."""
        stop = row.numel if stop is None else stop
        if start % 64 or not 0 <= start <= stop <= row.numel:
            raise ValueError(f"{row.name}: [{start}, {stop}) is not a span of {row.numel} coordinates")
        first = (row.bit_offset + start) // 8
        return self._rows("mask", first, first + packed_bytes(stop - start))

    def block(self, part: str, index: int) -> bytes:
        """A coded block of ``delta`` or ``reverse``; ``index`` counts over the whole artifact."""
        start, stop = self.block_span(part, index)
        return self._rows(part, start, stop).tobytes()

    def block_span(self, part: str, index: int) -> tuple[int, int]:
        """Where a coded block lies in the array of its part: first byte, and one past the last."""
        start, stop = self._index(part)[index : index + 2].tolist()
        return start, stop

    def read_bytes(self, array: str, start: int, stop: int, into: npt.NDArray[np.uint8]) -> None:
        """Fill ``into`` with bytes ``[start, stop)`` of an array of bytes."""
        self._array(array).read(start, stop, into)

    def rows_of_objects(self, array: str) -> list[tuple[int, int]]:
        """Rows of an array that each of its objects has, first and one past the last, in order."""
        layout = self._array(array).layout
        rows = layout.chunk_bytes * layout.chunks_per_shard // layout.row_bytes
        return [(at, min(at + rows, layout.length)) for at in range(0, layout.length, rows)]

    def codec(self, part: str) -> Codec:
        """The codec of ``delta`` or ``reverse``."""
        return get_codec(self.manifest.parts[part].codec)  # type: ignore[index]

    def leaves(self, row: Tensor) -> tuple[LeafHashes, LeafHashes]:
        """Leaf hashes of source and target, each uint8 ``[leaves, 16]``; the shorter side ends in zeros."""
        both = self._rows("leaves", row.first_leaf, row.first_leaf + row.leaves)
        return both[:, 0], both[:, 1]

    def files(self, part: str = "delta") -> dict[str, bytes]:
        """Small files that belong to the result of applying ``delta`` or ``reverse``: name to bytes."""
        prefix = FILES if part == "delta" else REVERSE_FILES
        keys = [o.key for o in self.manifest.objects if o.key.startswith(prefix)]
        return {key.removeprefix(prefix): self.document(key, LIMITS.small_file_bytes) for key in keys}

    def document(self, key: str, max_bytes: int) -> bytes:
        """An object that is not an array, whole and verified."""
        if key not in self._sizes:
            raise FormatError(f"manifest.json: lists no {key}")
        return self._objects.get(key, max_bytes=max_bytes)

    # Arrays

    def _array(self, name: str) -> StoredArray:
        if name not in self._arrays:
            data = self.document(metadata_key(name), LIMITS.zarr_json_bytes)
            layout = check_array(data, name, self._length(name))
            for key in map(layout.shard_key, range(layout.shards)):
                if key not in self._sizes:
                    # Zarr would read zeros for it.
                    raise CorruptError(key, "the manifest does not list this chunk")
            if not self._arrays:
                check_group(self.document(f"{GROUP}/zarr.json", LIMITS.zarr_json_bytes), SCHEMA)
            self._arrays[name] = StoredArray(self._objects, layout, LIMITS.object_bytes)
        return self._arrays[name]

    def _length(self, name: str) -> int:
        """Rows that an array has to have, by the tensor table; by their index for ``delta`` and ``reverse``."""
        if name in ("delta", "reverse"):
            return int(self._index(name)[-1])
        return self._lengths[name]

    @cached_property
    def _lengths(self) -> Mapping[str, int]:
        blocks = sum(t.blocks for t in self.tensors)
        return {
            "mask": sum(packed_bytes(t.numel) for t in self.tensors),
            "leaves": sum(t.leaves for t in self.tensors),
            "delta_index": blocks + 1,
            "reverse_index": blocks + 1,
            "whole": sum(t.whole_bytes for t in self.tensors),
            "reverse_whole": sum(t.reverse_whole_bytes for t in self.tensors),
        }

    def _rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        return self._array(name).rows(start, stop)

    def _index(self, part: str) -> npt.NDArray[np.uint64]:
        if part not in self._indexes:
            index = self._rows(f"{part}_index", 0, self._lengths[f"{part}_index"])
            if index[0] or not (index[1:] >= index[:-1]).all():
                raise FormatError(f"{GROUP}/{part}_index: not the starts of {len(index) - 1} blocks")
            self._indexes[part] = index
        return self._indexes[part]

    def _check_shard(self, key: str, data: memoryview) -> None:
        segments = key.split("/")
        if segments[0] == GROUP and len(segments) > 3 and segments[1] in self._arrays:
            check_shard(self._arrays[segments[1]].layout, key, data)

    def _hash(self, objects: list[Object], progress: Progress, jobs: int) -> None:
        progress.start("verify", sum(o.size for o in objects))

        def check(entry: Object) -> None:
            self._objects.check(entry)
            progress.advance(entry.size)

        each(objects, check, jobs)


class _LazyMask(Mapping[str, TensorMask]):
    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._rows = {n: t for n, t in artifact.by_name.items() if t.source_shape is not None and _compared(t)}

    def __repr__(self) -> str:
        tensors, manifest = counted(len(self), "tensor"), self._artifact.manifest
        return f"<Mask of {self._artifact.label}: {tensors}, {manifest.summary}>"

    def __getitem__(self, name: str) -> TensorMask:
        if name not in self._rows:
            similar = get_close_matches(str(name), self._rows, n=1)
            raise KeyError(f"{name}; similar: {similar[0]}" if similar else name)
        row = self._rows[name]
        return TensorMask(name, row.source_shape or (), self._artifact.mask_bits(row))

    def __contains__(self, name: object) -> bool:
        # A mapping's own reads the mask.
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _compared(row: Tensor) -> bool:
    return row.numel > 0 or (row.source_shape == row.target_shape and 0 in (row.source_shape or ()))
