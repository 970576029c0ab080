from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maskreg.errors import CannotCreateError, CorruptError, MaskregError, NoSpaceError, NotFoundError, RefusedError
from maskreg.store import FileStore


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_objects_are_plain_files_and_nothing_is_left_beside_them(store: FileStore) -> None:
    store.put("a/b", b"x")
    store.create("a/c", b"y")
    store.create("a/c", b"z")
    assert store.path("a/b").read_bytes() == b"x"
    assert files(store.root) == ["a/b", "a/c"]
    assert store.url == store.root.as_uri()


def test_reading_does_not_make_the_root(store: FileStore) -> None:
    assert list(store.list("")) == []
    assert store.head("a") is None
    store.delete(["a"])
    store.clock()
    assert not store.root.exists()


def test_delete_removes_folders_that_are_left_empty(store: FileStore) -> None:
    store.put("a/b/c", b"")
    store.put("a/d", b"")
    store.delete(["a/b/c"])
    assert not (store.root / "a/b").exists()
    store.delete(["a/d"])
    assert not (store.root / "a").exists()
    assert store.root.exists()


def test_writes_survive_those_who_remove_empty_folders(store: FileStore) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            store.delete(["a/b/c/other"])
            store.put("a/b/c/other", b"")
            store.delete(["a/b/c/other"])

    def write(i: int) -> None:
        for turn in range(40):
            store.put(f"a/b/c/{i}", b"%d" % turn)
            assert store.get(f"a/b/c/{i}", max_bytes=10) == b"%d" % turn
            store.delete([f"a/b/c/{i}"])
            assert store.create(f"a/b/c/{i}", b"")
            store.delete([f"a/b/c/{i}"])

    with ThreadPoolExecutor(4) as pool:
        remover = pool.submit(remove)
        try:
            list(pool.map(write, range(3)))
        finally:
            stop.set()
        remover.result()
    assert list(store.list("")) == []


def test_readers_see_the_old_or_the_new_bytes(store: FileStore) -> None:
    versions = [bytes([i]) * 300_000 for i in range(8)]
    store.put("a", versions[0])

    def write() -> None:
        for version in versions * 5:
            store.put("a", version)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            assert store.get("a", max_bytes=300_000) in versions
        writing.result()


@pytest.mark.parametrize("action", ["put", "create"])
def test_a_writer_that_is_killed_leaves_no_half_object(tmp_path: Path, action: str) -> None:
    code = (
        "import sys, itertools; from pathlib import Path; from maskreg.store.file import FileStore\n"
        "store = FileStore(Path(sys.argv[1])); print('go', flush=True)\n"
        f"for i in itertools.count(): store.{action}(f'a/{{i % 50 if {action!r} == 'put' else i}}', b'x' * 200_000)"
    )
    store = FileStore(tmp_path)
    for wait in (0.0, 0.01, 0.03):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(wait)
            writer.kill()
        assert all(info.size == 200_000 for info in store.list(""))


def test_create_works_where_there_are_no_links(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert store.create("a/b", b"first") is True
    assert store.create("a/b", b"second") is False
    with pytest.raises(MaskregError):
        store.create("a", b"a folder has its place")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.create("race", b"%d" % i), range(8)))
    assert won.count(True) == 1
    assert store.get("race", max_bytes=9) == b"%d" % won.index(True)
    assert files(store.root) == ["a/b", "race"]


@pytest.mark.parametrize("key", ["link", "link/secret", "inside/link/secret"])
def test_symbolic_links_are_not_followed(tmp_path: Path, key: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store = FileStore(tmp_path / "store")
    store.put("inside/a", b"")
    target = outside / "secret" if key == "link" else outside
    (store.root / key.removesuffix("/secret")).symlink_to(target)

    def listed() -> list[str]:
        return [info.key for info in store.list("")]

    actions: list[Callable[[], object]] = [
        lambda: store.put(key, b"overwritten"),
        lambda: store.create(key + "x" if key != "link" else key, b"made"),
    ]
    if key != "link":
        actions += [listed, lambda: store.get(key, max_bytes=10), lambda: store.head(key)]
    for action in actions:
        with pytest.raises(RefusedError, match="/store/"):
            action()
    if key == "link":
        assert listed() == ["inside/a", "link"]
        assert store.head(key) is not None
        with pytest.raises(CorruptError, match=r"^link: "):
            store.get(key, max_bytes=10)
        store.delete([key])
        assert not (store.root / "link").is_symlink()
    else:
        with pytest.raises(RefusedError, match="/store/"):
            store.delete([key])
        with pytest.raises(RefusedError, match="/store/"):
            list(store.list(key.removesuffix("secret")))
    assert files(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_the_temporary_folder_may_not_lead_elsewhere_either(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    store = FileStore(tmp_path / "store")
    store.root.mkdir()
    (store.root / ".tmp").symlink_to(tmp_path / "outside")
    with pytest.raises(RefusedError, match="/store/"):
        store.put("a", b"")
    assert files(tmp_path) == []


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    store = FileStore(tmp_path / "link")
    store.put("a", b"x")
    assert files(tmp_path / "disk") == ["a"]
    assert store.root == (tmp_path / "disk").resolve()


def test_what_is_no_file_is_listed_and_not_read(store: FileStore) -> None:
    store.put("folder/a", b"")
    os.mkfifo(store.root / "pipe")
    (store.root / "gone").symlink_to(store.root / "nowhere")
    (store.root / "loop").symlink_to("loop")
    for name in ("1.json", "empty"):
        (store.root / name).mkdir()
    (store.root / "with\nnewline").touch()
    assert [info.key for info in store.list("")] == ["1.json", "folder/a", "gone", "loop", "pipe"]
    with pytest.raises(RefusedError):
        store.get("loop/a", max_bytes=10)
    for key in ("folder", "1.json", "pipe", "gone", "loop"):
        with pytest.raises(CorruptError):
            store.get(key, max_bytes=10)
        store.delete([key])
    with pytest.raises(NotFoundError):
        store.get("folder/a/b", max_bytes=10)
    assert [info.key for info in store.list("")] == ["1.json", "folder/a"]


def test_a_key_cannot_lie_under_another(store: FileStore) -> None:
    store.put("a/b", b"x")
    for key in ("a", "a/b/c", "a/b/c/d"):
        for write in (store.put, store.create):
            with pytest.raises(CannotCreateError):
                write(key, b"")
    assert files(store.root) == ["a/b"]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EACCES, RefusedError),
        (errno.EROFS, RefusedError),
        (errno.EIO, CannotCreateError),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_a_write_that_fails_says_why_and_changes_nothing(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, number: int, error: type[MaskregError]
) -> None:
    store.put("a", b"before")

    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for write, key in ((store.put, "a"), (store.create, "b")):
            with pytest.raises(error, match=os.strerror(number)):
                write(key, b"after")
    assert store.get("a", max_bytes=10) == b"before"
    assert files(store.root) == ["a"]
