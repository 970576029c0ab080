from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.disk import DIRECT_BYTES, DirectFile, phase, preload
from maskreg.parallel import PAGE, Buffers

FLAG: int = getattr(os, "O_DIRECT", 0)
LARGE = DIRECT_BYTES + 3 * PAGE

Pwrite = Callable[[int, memoryview, int], int]


def is_direct(handle: int) -> bool:
    return bool(FLAG and fcntl.fcntl(handle, fcntl.F_GETFL) & FLAG)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int, int]]:
    """Whether each write went to the disk directly, its offset and its length."""
    calls: list[tuple[bool, int, int]] = []
    pwrite = os.pwrite

    def spy(handle: int, data: memoryview, offset: int) -> int:
        calls.append((is_direct(handle), offset, len(data)))
        return pwrite(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", spy)
    return calls


def supports_direct(folder: Path) -> bool:
    probe = folder / "probe"
    probe.touch()
    if not FLAG or os.statvfs(folder).f_bsize > PAGE:
        return False
    try:
        os.close(os.open(probe, os.O_WRONLY | FLAG))
    except OSError:
        return False
    return True


def piece(size: int, offset: int, seed: int) -> memoryview:
    """Random bytes in memory with the phase of the offset."""
    data = Buffers().bytes("piece", size, phase(offset))
    data[:] = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return data.data


def write(path: Path, offset: int, data: memoryview) -> bytes:
    """The file after writing one piece."""
    file = DirectFile(path)
    file.write_at(offset, data)
    file.sync()
    file.close()
    return path.read_bytes()


@given(
    lengths=st.lists(st.one_of(st.integers(1, 5_000), st.integers(LARGE, LARGE + 9_000)), min_size=1, max_size=5),
    header=st.integers(0, 2 * PAGE),
    order=st.randoms(use_true_random=False),
)
def test_pieces_of_any_length_in_any_order_make_the_file(lengths: list[int], header: int, order: Random) -> None:
    stops = np.cumsum([header, *lengths]).tolist()
    pieces = [(start, piece(stop - start, start, start)) for start, stop in pairwise(stops)]
    expected = b"".join([bytes(header), *(bytes(data) for _, data in pieces)])
    order.shuffle(pieces)
    with TemporaryDirectory() as folder:
        path = Path(folder, "file")
        file = DirectFile(path)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda item: file.write_at(*item), pieces))
        file.sync()
        file.close()
        assert path.read_bytes() == expected


def test_whole_pages_go_to_the_disk_directly(tmp_path: Path, writes: list[tuple[bool, int, int]]) -> None:
    offset = PAGE + 24
    data = piece(LARGE, offset, 1)
    assert write(tmp_path / "file", offset, data)[offset:] == data
    if supports_direct(tmp_path):
        assert writes == [(False, offset, PAGE - 24), (True, 2 * PAGE, LARGE - PAGE), (False, PAGE + LARGE, 24)]
    else:
        assert sum(length for _, _, length in writes) == LARGE


@pytest.mark.parametrize(("size", "shift"), [(DIRECT_BYTES - 1, 0), (LARGE, 8), (LARGE, 1)])
def test_short_pieces_and_memory_of_another_phase_go_through_the_cache(
    tmp_path: Path, writes: list[tuple[bool, int, int]], size: int, shift: int
) -> None:
    offset = 3 * PAGE
    data = piece(size + shift, offset, 2)[shift:]
    assert write(tmp_path / "file", offset, data)[offset:] == data
    assert writes == [(False, offset, size)]


def refusing(pwrite: Pwrite, number: int = errno.EINVAL) -> Pwrite:
    def write(handle: int, data: memoryview, offset: int) -> int:
        if is_direct(handle):
            raise OSError(number, os.strerror(number))
        return pwrite(handle, data, offset)

    return write


def halving(pwrite: Pwrite) -> Pwrite:
    return lambda handle, data, offset: pwrite(handle, data[: -(-len(data) // 2)], offset)


@pytest.mark.parametrize("fault", [refusing, partial(refusing, number=errno.EOPNOTSUPP), halving])
def test_what_is_not_written_directly_goes_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Pwrite], Pwrite]
) -> None:
    monkeypatch.setattr(os, "pwrite", fault(os.pwrite))
    data = piece(LARGE, 40, 3)
    assert write(tmp_path / "file", 40, data)[40:] == data


def opening(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let files be opened for direct writes with an error alone."""
    opened = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if FLAG and flags & FLAG:
            raise OSError(number, os.strerror(number))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)


@pytest.fixture(params=["no flag", errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, "large blocks"])
def cached_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system, or a file system, that writes nothing directly."""
    if request.param == "no flag":
        monkeypatch.delattr(os, "O_DIRECT", raising=False)
    elif isinstance(request.param, int):
        opening(monkeypatch, request.param)
    else:
        real = os.fstatvfs

        def large(handle: int) -> os.statvfs_result:
            return os.statvfs_result((1 << 20, *tuple(real(handle))[1:]))

        monkeypatch.setattr(os, "fstatvfs", large)
    yield


@pytest.mark.usefixtures("cached_only")
def test_without_direct_writes_everything_goes_through_the_cache(
    tmp_path: Path, writes: list[tuple[bool, int, int]]
) -> None:
    data = piece(LARGE, 0, 5)
    assert write(tmp_path / "file", 0, data) == data
    assert writes == [(False, 0, LARGE)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what the page cache has")
def test_a_file_that_was_written_directly_is_read_into_the_page_cache(tmp_path: Path) -> None:
    path, data = tmp_path / "file", piece(16 * DIRECT_BYTES, 0, 1)
    with closing(DirectFile(path)) as file:
        file.write_at(0, data)
        file.sync()
    preload(path)
    assert int(subprocess.check_output(["fincore", "--raw", "-n", "-b", "-o", "RES", path])) >= len(data)
