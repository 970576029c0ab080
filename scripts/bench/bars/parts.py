"""The work in ``extract`` and ``apply`` that nothing can avoid, done on the same bytes without anything around it.

One thread goes through both checkpoints block by block, in buffers that it uses again::

    extract   copy in both sides    xxh3 of both           encode    copy out mask and delta, and sync
    apply     copy in the source    xxh3 before, after     decode    copy out the target, and sync

``copy in`` reads from the page cache, ``copy out`` writes a new file. What the commands also do,
but the bars leave out of the sum, is measured with it: comparing both sides, checksums of what is stored, and writing
past the page cache.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.codec import DEFAULT_CODEC, get_codec, grid_at
from maskreg.codec.base import Codes
from maskreg.digest import leaf_hashes
from maskreg.direct import DirectFile, phase
from maskreg.flow.extract.comparing import compare
from maskreg.mask import packed_bytes
from maskreg.parallel import Buffers
from maskreg.tensors.blocks import BLOCK_NUMEL, blocks_of
from scripts.bench.bars.sampling import Stopwatch
from scripts.bench.processes import Cost

PARTS = {
    "extract": ("copy in", "xxh3 twice", "encode", "copy out"),
    "apply": ("copy in", "xxh3 twice", "decode", "copy out"),
}
"""What the bars add up, by command."""

DIRECT = "copy out past the page cache"
"""What apply does instead of ``copy out``, where the file system offers it."""

BESIDES = {
    "extract": ("compare", "sha256 and crc32c of what is stored"),
    "apply": ("sha256 of what is stored", DIRECT),
}
"""What was measured with it, by command."""


@dataclass(frozen=True)
class Span:
    """A block of a tensor in a file of bf16 matrices.

    Attributes:
        file: name of the file, the same in source and target.
        offset: of the block in the file.
        shape: of the tensor.
        start, stop: elements of the block.
    """

    file: str
    offset: int
    shape: tuple[int, ...]
    start: int
    stop: int


class Parts:
    """Two generated checkpoints, and the buffers of the one thread that goes through them."""

    def __init__(self, source: Path, target: Path, artifact: Path, scratch: Path) -> None:
        """Prepare.

        Args:
            source: folder of the source checkpoint.
            target: of the target.
            artifact: folder of the artifact between both.
            scratch: a file to write.
        """
        self._source, self._target, self._artifact, self._scratch = source, target, artifact, scratch
        self._codec = get_codec(DEFAULT_CODEC)
        self._before, self._after = (np.zeros(BLOCK_NUMEL, np.uint16) for _ in range(2))
        self._buffers = Buffers()
        self._packed = np.zeros(packed_bytes(BLOCK_NUMEL), np.uint8)
        self._coded: list[bytes] = []

    def extract(self) -> Mapping[str, Cost]:
        """What each part of extracting takes; keeps the coded blocks."""
        watch, coded = Stopwatch(), []
        with closing(_Files(self._source)) as before, closing(_Files(self._target)) as after, self._writing() as out:
            for span in spans(self._source):
                source, target = self._before[: span.stop - span.start], self._after[: span.stop - span.start]
                with watch("copy in"):
                    before.read(span, source)
                    after.read(span, target)
                with watch("xxh3 twice"):
                    leaf_hashes(source)
                    leaf_hashes(target)
                packed = self._packed[: packed_bytes(source.size)]
                with watch("compare"):
                    compare(source, target, packed)
                with watch("encode"):
                    coded.append(self._codec.encode(source, target, grid_at(span.shape, span.start)))
                with watch("copy out"):
                    out.write(packed.data)
                    out.write(coded[-1])
                with watch("sha256 and crc32c of what is stored"):
                    _checksums(packed)
                    _checksums(np.frombuffer(coded[-1], np.uint8))
            with watch("copy out"):
                os.fsync(out.fileno())
        self._coded = coded
        return watch.costs

    def apply(self) -> Mapping[str, Cost]:
        """What each part of applying takes; after :meth:`extract`."""
        watch, offset = Stopwatch(), 0
        beside = self._scratch.with_suffix(".direct")
        with closing(_Files(self._source)) as before, self._writing() as out, closing(DirectFile(beside)) as direct:
            for span, block in zip(spans(self._source), self._coded, strict=True):
                source = self._before[: span.stop - span.start]
                values = self._buffers.array("values", source.size, np.uint16, phase(offset))
                with watch("copy in"):
                    before.read(span, source)
                with watch("xxh3 twice"):
                    leaf_hashes(source)
                with watch("decode"):
                    self._codec.decode_into(source, block, 0, values)
                with watch("xxh3 twice"):
                    leaf_hashes(values)
                with watch("copy out"):
                    out.write(values.data)
                with watch(DIRECT):
                    direct.write_at(offset, values.data.cast("B"))
                offset += values.nbytes
            with watch("copy out"):
                os.fsync(out.fileno())
            with watch(DIRECT):
                direct.sync()
        beside.unlink()
        with watch("sha256 of what is stored"):
            for path in self._artifact.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        hashlib.file_digest(file, "sha256")
        return watch.costs

    def loop(self) -> Mapping[str, Cost]:
        """Reading a checkpoint, hashing it twice, writing and syncing it, and nothing else."""
        watch = Stopwatch()
        piece = memoryview(self._before.data).cast("B")
        with self._writing() as out, watch("loop"):
            for path in sorted(self._source.glob("*.safetensors")):
                with path.open("rb", buffering=0) as file:
                    while size := file.readinto(piece):
                        for _ in range(2):
                            xxhash.xxh3_128_digest(piece[:size])
                        out.write(piece[:size])
            os.fsync(out.fileno())
        return watch.costs

    def _writing(self) -> Any:
        # A new file, as the commands write it; not the pages of an old one.
        self._scratch.unlink(missing_ok=True)
        return self._scratch.open("wb", buffering=0)


def spans(folder: Path) -> Iterator[Span]:
    """Blocks of all tensors of a generated checkpoint, in the order of its files."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for entry in header.values():
            first, last = entry["data_offsets"]
            for start, stop in blocks_of((last - first) // 2):
                yield Span(path.name, 8 + size + first + 2 * start, tuple(entry["shape"]), start, stop)


class _Files:
    """The files of a checkpoint, open."""

    def __init__(self, folder: Path) -> None:
        self._handles = {path.name: os.open(path, os.O_RDONLY) for path in folder.glob("*.safetensors")}

    def read(self, span: Span, into: Codes) -> None:
        """Fill ``into`` with a block."""
        if os.preadv(self._handles[span.file], [into.data], span.offset) != into.nbytes:
            raise SystemExit(f"{span.file} is shorter than its header says")

    def close(self) -> None:
        """Close all files."""
        for handle in self._handles.values():
            os.close(handle)


def _checksums(data: npt.NDArray[np.uint8]) -> None:
    hashlib.sha256(data.data)
    google_crc32c.value(data)
