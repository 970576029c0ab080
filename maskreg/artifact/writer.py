"""Writing an artifact: payload into a staging folder, the manifest last, then one rename."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import zarr

from maskreg.artifact.arrays import GrowingArray
from maskreg.artifact.layout import (
    FILES,
    GROUP,
    MANIFEST,
    PARTS,
    REVERSE_FILES,
    TENSORS,
    artifact_prefix,
    incoming_prefix,
    part_of,
)
from maskreg.artifact.manifest import (
    ENCODER,
    SCHEMA,
    Manifest,
    Object,
    Part,
    PartName,
    Side,
    Tensor,
    check_objects,
    dump_manifest,
    dump_tensors,
)
from maskreg.artifact.totals import six_digits, totals_of
from maskreg.digest import FINGERPRINT_BYTES, Digest, fingerprint
from maskreg.disk import sync_folder
from maskreg.mask import packed_bytes
from maskreg.store.file import FileStore
from maskreg.store.zarr_view import ZarrView

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes


class TensorLike(Protocol):
    """What the writer needs to know of one side of a tensor."""

    @property
    def dtype(self) -> str:
        """Safetensors dtype code."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Empty for a 0-D tensor."""


_SYNC_THREADS = 16
# They wait for the disk, which commits many at once.


class StagingStore(FileStore):
    """A folder that nobody else sees yet: remembers size and digest of every object, and is synced once, at the end."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: dict[str, Object] = {}

    def put(self, key: str, data: bytes) -> None:
        """Write an object and remember it; durable after :meth:`sync`."""
        path = self.path(key)
        with self.errors("write", key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.written[key] = Object(key=key, size=len(data), sha256=str(Digest.of(data)))

    def sync(self) -> None:
        """Make everything durable, files and folders."""
        with self.errors("write", ""), ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync, [self.root, *self.root.rglob("*")]))


class ArtifactWriter:
    """Writes one artifact into a registry's folder, tensor after tensor, in bounded memory.

    A context manager: leaving it without :meth:`finish`, or with an exception, removes the staging folder.
    """

    def __init__(self, root: Path, parts: Collection[PartName]) -> None:
        """Start an artifact.

        Args:
            root: folder of the registry's file store.
            parts: ``{"mask"}``, with ``delta``, with ``reverse``.
        """
        nonce = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._root = root
        self._parts = frozenset(parts)
        self._staging = root / "staging" / nonce
        self._store = StagingStore(self._staging)
        self._group = zarr.open_group(
            ZarrView(self._store, GROUP + "/"), mode="w-", zarr_format=3, attributes={"schema": SCHEMA}
        )
        self._mask = GrowingArray(self._group, "mask", "uint8", compress=True)
        self._leaves = GrowingArray(self._group, "leaves", "uint8", (2, FINGERPRINT_BYTES))
        self._coded = {p: GrowingArray(self._group, p, "uint8") for p in PARTS[1:] if p in self._parts}
        self._index = {p: GrowingArray(self._group, f"{p}_index", "uint64") for p in self._coded}
        self._whole: dict[str, GrowingArray] = {}
        self._blocks = 0
        self._open: _OpenTensor | None = None
        self.tensors: list[Tensor] = []
        """Rows of the tensors that have ended."""

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._staging.exists():
            shutil.rmtree(self._staging)

    def begin(self, name: str, *, role: str, layer: str, source: TensorLike | None, target: TensorLike | None) -> None:
        """Start a tensor; ``target`` has the dtype of the values that the artifact holds."""
        self._open = _OpenTensor(name, role, layer, source, target)

    def add_block(
        self,
        mask: npt.NDArray[np.uint8],
        *,
        numel: int,
        nnz: int,
        differing: int,
        energy: float,
        delta: bytes | None = None,
        reverse: bytes | None = None,
    ) -> None:
        """The next block of the open tensor.

        Args:
            mask: its packed bits, padded to 64; only a tensor's last block may have a rest.
            numel: coordinates.
            nnz: of them moved.
            differing: of them with other bits.
            energy: sum of squared differences.
            delta: coded target values; None for a tensor without values in this artifact.
            reverse: coded source values, likewise.
        """
        tensor = self._current()
        if tensor.numel % 64 or mask.size != packed_bytes(numel):
            raise ValueError(f"{tensor.name}: a block of {numel} coordinates with {mask.size} bytes of mask")
        self._mask.append(mask)
        tensor.numel += numel
        tensor.nnz += nnz
        tensor.differing += differing
        tensor.energy += energy
        coded: dict[PartName, bytes | None] = {"delta": delta, "reverse": reverse}
        given = {p: block for p, block in coded.items() if block is not None}
        if given:
            if given.keys() != self._coded.keys():
                raise ValueError(f"{tensor.name}: a block for {set(given)}, not for {set(self._coded)}")
            for part, block in given.items():
                self._index[part].append(np.array([self._coded[part].length], np.uint64))
                self._coded[part].append(np.frombuffer(block, np.uint8))
            tensor.blocks += 1

    def add_leaves(self, source: LeafHashes | None, target: LeafHashes | None) -> None:
        """Leaf hashes, in order, of either side of the open tensor; may be called per block."""
        tensor = self._current()
        for leaves, given in ((tensor.source_leaves, source), (tensor.target_leaves, target)):
            if given is not None:
                leaves.append(given)

    def add_whole(self, target: bytes) -> None:
        """The next raw bytes of the open tensor's target."""
        self._current().whole_bytes += self._append_whole("whole", target)

    def add_reverse_whole(self, source: bytes) -> None:
        """The next raw bytes of the open tensor's source."""
        self._current().reverse_whole_bytes += self._append_whole("reverse_whole", source)

    def end(self, aliases: Iterable[str] = ()) -> Tensor:
        """Finish the open tensor and return its row."""
        tensor = self._current()
        source, target = (_stack(leaves) for leaves in (tensor.source_leaves, tensor.target_leaves))
        count = max(len(source), len(target))
        both = np.zeros((count, 2, FINGERPRINT_BYTES), np.uint8)
        both[: len(source), 0] = source
        both[: len(target), 1] = target
        before = self.tensors[-1] if self.tensors else None
        row = Tensor(
            name=tensor.name,
            role=tensor.role,
            layer=tensor.layer,
            source_shape=tensor.source.shape if tensor.source else None,
            source_dtype=tensor.source.dtype if tensor.source else "",
            target_shape=tensor.target.shape if tensor.target else None,
            target_dtype=tensor.target.dtype if tensor.target else "",
            numel=tensor.numel,
            nnz=tensor.nnz,
            differing=tensor.differing,
            energy=six_digits(tensor.energy),
            bit_offset=before.bit_offset + 8 * packed_bytes(before.numel) if before else 0,
            first_block=self._blocks,
            blocks=tensor.blocks,
            first_leaf=self._leaves.length,
            leaves=count,
            whole_offset=self._whole_length("whole") - tensor.whole_bytes,
            whole_bytes=tensor.whole_bytes,
            reverse_whole_offset=self._whole_length("reverse_whole") - tensor.reverse_whole_bytes,
            reverse_whole_bytes=tensor.reverse_whole_bytes,
            source_fingerprint=fingerprint(source) if tensor.source else "",
            target_fingerprint=fingerprint(target) if tensor.target else "",
            aliases=tuple(aliases),
        )
        self._blocks += tensor.blocks
        self._leaves.append(both)
        self.tensors.append(row)
        self._open = None
        return row

    def add_file(self, name: str, data: bytes) -> None:
        """A small file of the target that differs from the source's, or that the source lacks."""
        self._store.put(FILES + name, data)

    def add_reverse_file(self, name: str, data: bytes) -> None:
        """A small file of the source that differs from the target's, or that the target lacks."""
        self._store.put(REVERSE_FILES + name, data)

    def finish(
        self,
        *,
        kind: Literal["mask", "delta", "baseline"],
        rule: str,
        exact: bool,
        source: Side,
        target: Side,
        codec: str,
        parents: Sequence[Digest] = (),
        recipe: Mapping[str, Any] | None = None,
    ) -> Digest:
        """Write the manifest and move the artifact to its place.

        An artifact that is there already is kept, and any of its objects that are missing or damaged are
        replaced by the fresh ones.

        Returns:
            The artifact's digest.
        """
        for part, coded in self._coded.items():
            self._index[part].append(np.array([coded.length], np.uint64))
        for array in (self._mask, self._leaves, *self._coded.values(), *self._index.values(), *self._whole.values()):
            array.finish()
        self._store.put(TENSORS, dump_tensors(tuple(self.tensors)))
        objects = tuple(self._store.written[k] for k in sorted(self._store.written))
        manifest = Manifest(
            schema=SCHEMA,
            kind=kind,
            encoder=ENCODER,
            rule=rule,
            exact=exact,
            source=source,
            target=target,
            parents=tuple(str(p) for p in parents),
            recipe=None if recipe is None else dict(recipe),
            totals=totals_of(self.tensors),
            parts={p: _part(p, objects, "bits" if p == "mask" else codec) for p in PARTS if p in self._parts},
            objects=objects,
        )
        check_objects(manifest)
        data = dump_manifest(manifest)
        digest = Digest.of(data)
        self._store.put(MANIFEST, data)
        self._publish(digest, objects)
        return digest

    def _publish(self, digest: Digest, objects: tuple[Object, ...]) -> None:
        place = self._root / artifact_prefix(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._store.sync()
        try:
            self._staging.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            self._heal(digest, place, objects)
        sync_folder(place.parent)

    def _heal(self, digest: Digest, place: Path, objects: tuple[Object, ...]) -> None:
        # From a place where readers look for what is about to be moved: a kill in between leaves no broken part.
        waiting = self._root / incoming_prefix(digest) / self._staging.name
        waiting.parent.mkdir(parents=True, exist_ok=True)
        self._staging.rename(waiting)
        try:
            for key in [*(o.key for o in objects), MANIFEST]:
                fresh, there = waiting / key, place / key
                if not there.is_file() or there.read_bytes() != fresh.read_bytes():
                    there.parent.mkdir(parents=True, exist_ok=True)
                    fresh.replace(there)
        finally:
            shutil.rmtree(waiting)
            with contextlib.suppress(OSError):  # somebody else's objects wait there too
                waiting.parent.rmdir()

    def _append_whole(self, name: str, data: bytes) -> int:
        if name not in self._whole:
            self._whole[name] = GrowingArray(self._group, name, "uint8")
        self._whole[name].append(np.frombuffer(data, np.uint8))
        return len(data)

    def _whole_length(self, name: str) -> int:
        return self._whole[name].length if name in self._whole else 0

    def _current(self) -> _OpenTensor:
        if self._open is None:
            raise ValueError("no tensor is open")
        return self._open


class _OpenTensor:
    def __init__(self, name: str, role: str, layer: str, source: TensorLike | None, target: TensorLike | None) -> None:
        self.name = name
        self.role = role
        self.layer = layer
        self.source = source
        self.target = target
        self.numel = self.nnz = self.differing = self.blocks = 0
        self.whole_bytes = self.reverse_whole_bytes = 0
        self.energy = 0.0
        self.source_leaves: list[LeafHashes] = []
        self.target_leaves: list[LeafHashes] = []


def _sync(path: Path) -> None:
    if path.is_dir():
        sync_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _stack(leaves: list[LeafHashes]) -> LeafHashes:
    return np.concatenate(leaves) if leaves else np.empty((0, FINGERPRINT_BYTES), np.uint8)


def _part(part: PartName, objects: tuple[Object, ...], codec: str) -> Part:
    mine = [o.size for o in objects if part_of(o.key) == part]
    return Part(codec=codec, objects=len(mine), size=sum(mine))
