"""Shards are stored on threads: the same bytes on any number of them, few at a time, and no error is lost."""

from __future__ import annotations

import filecmp
import resource
import shutil
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.arrays import GrowingArray
from maskreg.artifact.layout import SHARD_BYTES
from maskreg.artifact.manifest import Side
from maskreg.artifact.reader import Artifact
from maskreg.artifact.staging import StagingStore
from maskreg.artifact.storing import ShardStorer
from maskreg.artifact.writer import ArtifactWriter, BlockRecord
from maskreg.errors import MaskregError
from maskreg.mask import Counts
from maskreg.store import FileStore
from tests.artifact.making import pair, write


class GatedStore(StagingStore):
    """Stores nothing before its gate is open, and counts who waits for that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder)
        self.gate, self._lock = threading.Event(), threading.Lock()
        self.waiting = self.most = 0

    def put_pieces(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        with self._lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self.gate.wait()
        with self._lock:
            self.waiting -= 1
        super().put_pieces(key, pieces)


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_shards_are_on_the_way_as_there_are_threads(jobs: int, tmp_path: Path) -> None:
    store = GatedStore(tmp_path)
    array = GrowingArray(storer := ShardStorer(store, jobs), "delta")
    rows = np.arange(SHARD_BYTES // 8, dtype=np.uint64).view(np.uint8)
    full = threading.Event()

    def fill() -> None:
        for number in range(jobs + 2):
            if number == jobs:
                full.set()
            array.append(rows ^ np.uint8(number))
        array.finish()
        storer.finish()

    filler = threading.Thread(target=fill)
    filler.start()
    assert full.wait(60) and not store.written
    store.gate.set()
    filler.join()
    storer.close()
    assert 1 <= store.most <= jobs
    assert [store.get(f"data.zarr/delta/c/{n}", max_bytes=1 << 30)[:SHARD_BYTES][8:16] for n in range(jobs + 2)] == [
        (rows[8:16] ^ np.uint8(n)).tobytes() for n in range(jobs + 2)
    ]


@pytest.mark.parametrize("jobs", [1, 4])
def test_what_cannot_be_stored_ends_the_writer_and_leaves_nothing(jobs: int, tmp_path: Path) -> None:
    root = tmp_path / "registry"
    with pytest.raises(MaskregError, match="delta"), ArtifactWriter(root, {"mask", "delta"}, jobs=jobs) as writer:
        (folder,) = (root / "staging").iterdir()
        # A file where the folder of the delta's shards would be.
        (folder / "data.zarr" / "delta").write_bytes(b"")
        writer.begin("w", role="", layer="", source=None, target=None)
        for _ in range(20):
            writer.add_block(BlockRecord(np.zeros(8, np.uint8), Counts(64, 0, 1), delta=bytes(1 << 20)))
        writer.end()
        writer.finish(kind="delta", rule="exact", source=Side(root="", params=0, tensors=0, dtypes={}))
    with pytest.raises(MaskregError), ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE))
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        ArtifactWriter(root, {"mask"})
    assert list((root / "staging").iterdir()) == []


def test_what_a_collection_removes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(store: StagingStore | Path, other: Path | None = None, *, shallow: bool = False) -> bool:
        shutil.rmtree(tmp_path / "artifacts", ignore_errors=True)
        return isinstance(store, Path) and other is not None and filecmp.cmp(store, other, shallow)

    for place in ("StagingStore.sync", "cmp"):
        monkeypatch.setattr(f"maskreg.artifact.staging.{place}", remove)
        digest = write(tmp_path, pair())
        Artifact.open(FileStore(tmp_path), digest).verify_rest(jobs=1)
        monkeypatch.undo()
