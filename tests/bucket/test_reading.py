"""Reading objects part by part: what is asked for, and what is fetched ahead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from maskreg.bucket import BucketPath
from maskreg.bucket.path import Bucket
from maskreg.bucket.reading import GAP_BYTES, TOGETHER_BYTES, BucketFile
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.ahead import LeafReader
from maskreg.errors import CorruptError
from tests.buckets import upload
from tests.checkpoints import Tensor, bf16, make_checkpoint
from tests.servers import S3Server

if TYPE_CHECKING:
    from typing_extensions import Buffer

DATA = np.random.default_rng(0).bytes(3 << 20)


@pytest.fixture
def path(server: S3Server, bucket: str, tmp_path: Path) -> BucketPath:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data").write_bytes(DATA)
    return upload(server, tmp_path / "run", bucket, "run") / "data"


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Every range that was asked for."""
    read_ranges: list[tuple[int, int]] = []
    read = Bucket.read

    def counted(self: Bucket, key: str, start: int, stop: int, etag: str = "") -> Buffer:
        read_ranges.append((start, stop))
        return read(self, key, start, stop, etag)

    monkeypatch.setattr(Bucket, "read", counted)
    return read_ranges


def filled(file: BucketFile, start: int, stop: int) -> bytes:
    into = bytearray(stop - start)
    assert file.fill(memoryview(into), start)
    return bytes(into)


def test_any_part(path: BucketPath) -> None:
    file = BucketFile(path)
    assert file.size == len(DATA)
    for start, stop in [(0, 0), (0, 1), (5, 1000), (len(DATA) - 7, len(DATA)), (0, len(DATA))]:
        assert filled(file, start, stop) == DATA[start:stop]
    assert not file.fill(memoryview(bytearray(2)), len(DATA) - 1)
    file.close()
    file.close()


def test_what_is_expected_is_fetched_once(path: BucketPath, ranges: list[tuple[int, int]]) -> None:
    file = BucketFile(path)
    assert file.expect(0, 1 << 20) == 1 << 20
    assert file.expect(0, 1 << 20) == 1 << 20
    for _ in range(2):
        for start in range(0, 1 << 20, 1 << 18):
            assert filled(file, start, start + (1 << 18)) == DATA[start : start + (1 << 18)]
    assert ranges == [(0, 1 << 20)]
    # Read as often as expected, it is forgotten.
    assert filled(file, 0, 10) == DATA[:10]
    assert ranges[1:] == [(0, 10)]


def test_what_arrived_is_used_where_it_lies(server: S3Server, bucket: str, tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {"large": bf16((1024, 1024), 1), "odd": ("U8", np.arange(3, dtype=np.uint8))}
    tensors |= {"shifted": bf16((5, 7), 2)}
    folder = make_checkpoint(tmp_path / "model", tensors)
    with open_checkpoint(upload(server, folder, bucket, "lying")) as checkpoint:
        into = np.zeros(2 << 20, np.uint8)
        for name, (_, values) in tensors.items():
            for expected in (False, True):
                if expected:
                    checkpoint.expect("odd", 0, 3)
                    checkpoint.expect(name, 0, values.size)
                room = into[: values.nbytes]
                read = checkpoint.read(name, 0, values.size, room)
                assert np.array_equal(read, values.reshape(-1))
                assert read.flags.aligned
                assert np.shares_memory(read, room) or not read.flags.writeable
        reader = LeafReader(checkpoint, "large", 0, 1 << 20, into)
        assert np.array_equal(np.concatenate([leaf for _, leaf in reader.leaves()]), tensors["large"][1].reshape(-1))
        assert not np.shares_memory(reader.values, into)


def test_small_parts_come_together(path: BucketPath, ranges: list[tuple[int, int]]) -> None:
    file = BucketFile(path)
    starts = range(0, 10 * GAP_BYTES, GAP_BYTES)
    for start in starts:
        file.expect(start, 100)
    assert ranges == []
    assert [filled(file, start, start + 100) for start in starts] == [DATA[start : start + 100] for start in starts]
    # Nothing but what was expected, and what lies between.
    assert ranges == [(0, starts[-1] + 100)]
    file.expect(0, 100)
    file.expect(1 << 20, 100)
    file.expect((1 << 20) + 100, TOGETHER_BYTES)
    file.expect(len(DATA) - 10, 100)
    for start, stop in [(0, 100), (1 << 20, (1 << 20) + 100 + TOGETHER_BYTES), (len(DATA) - 10, len(DATA))]:
        assert filled(file, start, stop) == DATA[start:stop]
    assert sorted(ranges[1:]) == [(0, 100), (1 << 20, (1 << 20) + 100 + TOGETHER_BYTES), (len(DATA) - 10, len(DATA))]
    assert file.expect(len(DATA), 1) == 0


def test_what_is_never_read_does_not_pile_up(
    path: BucketPath, ranges: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.bucket.reading.HELD_BYTES", 1 << 20)
    file = BucketFile(path)
    for start in range(0, len(DATA), 1 << 19):
        file.expect(start, 1 << 19)
    assert filled(file, 0, 1 << 19) == DATA[: 1 << 19]
    assert (0, 1 << 19) in ranges  # the oldest was dropped, and is fetched again
    assert filled(file, 0, len(DATA)) == DATA


def test_threads_share_a_file(path: BucketPath) -> None:
    file = BucketFile(path)
    with ThreadPoolExecutor(8) as pool:
        for start in range(0, len(DATA), 1 << 17):
            file.expect(start, 1 << 17)
        parts = pool.map(lambda start: filled(file, start, start + (1 << 16)), range(0, len(DATA), 1 << 16))
        assert b"".join(parts) == DATA


@pytest.mark.parametrize("ahead", [False, True])
def test_an_object_that_is_replaced_is_noticed(path: BucketPath, server: S3Server, bucket: str, ahead: bool) -> None:
    file = BucketFile(path)
    assert filled(file, 0, 10) == DATA[:10]
    server.client.put_object(Bucket=bucket, Key=path.key, Body=bytes(len(DATA)))
    if ahead:
        file.expect(10, 10)
    with pytest.raises(CorruptError, match="run/data: "):
        filled(file, 10, 20)
