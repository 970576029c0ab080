"""Writing an artifact: payload into a staging folder, the manifest last, one rename to publish it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from maskreg.artifact.arrays import GrowingArray
from maskreg.artifact.layout import FILES, GROUP, PARTS, REVERSE_FILES, TENSORS, dump_metadata, group_document
from maskreg.artifact.manifest import ENCODER, SCHEMA, Manifest, PartName, Side, part_entry
from maskreg.artifact.staging import Staging
from maskreg.artifact.storing import ShardStorer
from maskreg.artifact.tensors import Tensor, dump_tensors
from maskreg.artifact.totals import rounded, totals_of
from maskreg.digest import FINGERPRINT_BYTES, Digest, LeafHashes, fingerprint
from maskreg.mask import Counts, packed_bytes
from maskreg.tensors.info import TensorInfo

Coded = bytes | npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockRecord:
    """One block of a tensor, as an artifact stores it.

    Attributes:
        mask: packed bits, padded to 64; an artifact without a mask needs none.
        delta: coded target values; None in an artifact without values.
    """

    mask: npt.NDArray[np.uint8] | None
    counts: Counts
    delta: Coded | None = None
    reverse: Coded | None = None


class ArtifactWriter:
    """Writes one artifact into a registry's folder, tensor after tensor, in bounded memory.

    A context manager: leaving it without :meth:`finish`, or with an exception, removes the staging folder.
    """

    def __init__(self, root: Path, parts: Collection[PartName], *, jobs: int = 1) -> None:
        """Start an artifact of ``{"mask"}``, ``{"delta"}`` or both, with ``reverse``; ``jobs`` threads store shards."""
        self._parts = frozenset(parts)
        self._staging = Staging(root)
        self._store = self._staging.store
        self._storer = ShardStorer(self._store, jobs)
        with ExitStack() as undo:
            undo.push(self.__exit__)
            # First of all, so that a folder that cannot be written is noticed before any work is done.
            self._store.put(f"{GROUP}/zarr.json", dump_metadata(group_document(SCHEMA)))
            self._mask = GrowingArray(self._storer, "mask", compress=True) if "mask" in self._parts else None
            self._leaves = GrowingArray(self._storer, "leaves")
            self._coded = {p: GrowingArray(self._storer, p) for p in PARTS[1:] if p in self._parts}
            self._index = {p: GrowingArray(self._storer, f"{p}_index") for p in self._coded}
            undo.pop_all()
        self._whole: dict[str, GrowingArray] = {}
        self._blocks = 0
        self._open: _OpenTensor | None = None
        self.tensors: list[Tensor] = []
        """Rows of the finished tensors."""

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._storer.close()
        self._staging.discard()

    def begin(self, name: str, *, role: str, layer: str, source: TensorInfo | None, target: TensorInfo | None) -> None:
        """Start a tensor; ``target`` has the dtype of the values in this artifact."""
        self._open = _OpenTensor(name, role, layer, source, target)

    def add_block(self, block: BlockRecord) -> None:
        """The next block of the open tensor; its numel is a multiple of 64 in all but the last."""
        tensor = self._current()
        if self._mask is not None:
            size = 0 if block.mask is None else block.mask.size
            if block.mask is None or tensor.counts.numel % 64 or size != packed_bytes(block.counts.numel):
                raise ValueError(f"{tensor.name}: {block.counts.numel} coordinates with {size} bytes of mask")
            self._mask.append(block.mask)
        tensor.counts += block.counts
        values: dict[PartName, Coded | None] = {"delta": block.delta, "reverse": block.reverse}
        coded = {part: data for part, data in values.items() if data is not None}
        if coded:
            if coded.keys() != self._coded.keys():
                raise ValueError(f"{tensor.name}: a block for {set(coded)}, not for {set(self._coded)}")
            tensor.waiting.append(coded)
            # A tensor that stays as it is needs none.
            if tensor.counts.differing:
                for waiting in tensor.waiting:
                    for part, data in waiting.items():
                        self._index[part].append(np.array([self._coded[part].length], np.uint64))
                        self._coded[part].append(np.frombuffer(data, np.uint8))
                tensor.blocks += len(tensor.waiting)
                tensor.waiting.clear()

    def add_leaves(self, source: LeafHashes | None, target: LeafHashes | None) -> None:
        """The next leaf hashes of the open tensor, for either side or both; can be called per block."""
        tensor = self._current()
        for leaves, new in ((tensor.source_leaves, source), (tensor.target_leaves, target)):
            if new is not None:
                leaves.append(new)

    def add_whole(self, target: bytes) -> None:
        """The next raw bytes of the open tensor's target."""
        self._current().whole_bytes += self._append_whole("whole", target)

    def add_reverse_whole(self, source: bytes) -> None:
        """The next raw bytes of the open tensor's source."""
        self._current().reverse_whole_bytes += self._append_whole("reverse_whole", source)

    def end(self, aliases: Iterable[str] = ()) -> Tensor:
        """Finish the open tensor and return its row."""
        tensor = self._current()
        none = np.empty((0, FINGERPRINT_BYTES), np.uint8)
        source, target = (np.concatenate([none, *leaves]) for leaves in (tensor.source_leaves, tensor.target_leaves))
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
            **rounded(tensor.counts),
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
        source: Side,
        target: Side | None = None,
        exact: bool = False,
        codec: str = "",
        parents: Sequence[Digest] = (),
        recipe: Mapping[str, Any] | None = None,
    ) -> Digest:
        """Write the manifest, with these fields of :class:`Manifest`, and publish the artifact under its digest.

        ``target``: by default the source, as of a mask that has none. ``codec``: of delta and reverse; empty for a
        mask. See :meth:`Staging.publish`.
        """
        for part, coded in self._coded.items():
            self._index[part].append(np.array([coded.length], np.uint64))
        masks = () if self._mask is None else (self._mask,)
        for array in (*masks, self._leaves, *self._coded.values(), *self._index.values(), *self._whole.values()):
            array.finish()
            self._store.put(array.layout.key, dump_metadata(array.layout.document()))
        self._store.put(TENSORS, dump_tensors(tuple(self.tensors)))
        self._storer.finish()
        objects = self._staging.objects
        manifest = Manifest(
            schema=SCHEMA,
            kind=kind,
            encoder=ENCODER,
            rule=rule,
            exact=exact,
            source=source,
            target=target or source,
            parents=tuple(map(str, parents)),
            recipe=None if recipe is None else dict(recipe),
            totals=totals_of(self.tensors),
            parts={p: part_entry(p, objects, "bits" if p == "mask" else codec) for p in PARTS if p in self._parts},
            objects=objects,
        )
        return self._staging.publish(manifest)

    def _append_whole(self, name: str, data: bytes) -> int:
        if name not in self._whole:
            self._whole[name] = GrowingArray(self._storer, name)
        self._whole[name].append(np.frombuffer(data, np.uint8))
        return len(data)

    def _whole_length(self, name: str) -> int:
        return self._whole[name].length if name in self._whole else 0

    def _current(self) -> _OpenTensor:
        if self._open is None:
            raise ValueError("no tensor is open")
        return self._open


class _OpenTensor:
    def __init__(self, name: str, role: str, layer: str, source: TensorInfo | None, target: TensorInfo | None) -> None:
        self.name = name
        self.role = role
        self.layer = layer
        self.source, self.target = source, target
        self.counts, self.blocks = Counts(), 0
        self.waiting: list[dict[PartName, Coded]] = []
        self.whole_bytes = self.reverse_whole_bytes = 0
        self.source_leaves: list[LeafHashes] = []
        self.target_leaves: list[LeafHashes] = []
