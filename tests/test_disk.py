"""Atomic writes, free space, and what the operating system says about files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from maskreg.disk import (
    barrier,
    creating,
    filling,
    free_bytes,
    is_alive,
    is_read_only,
    make_folder,
    make_root,
    new_file,
    remove_drafts,
    rename_new,
    replacing,
    require_space,
    write_all,
)
from maskreg.errors import CannotCreateError, NoSpaceError, OutputExistsError
from tests.people import not_root


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("force", [True, False])
def test_a_file_appears_when_it_is_whole(tmp_path: Path, force: bool, sync: bool) -> None:
    path = tmp_path / "file"
    with replacing(path, force=force, sync=sync) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == {"file"}


KILLED = """
import os, signal, sys
from pathlib import Path
from maskreg.disk import replacing

with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path, another = tmp_path / "file", tmp_path / "another"
    for name in (path, another):
        subprocess.run([sys.executable, "-c", KILLED, name], check=False)
    left = names(tmp_path)
    assert len(left) == 2
    kept = tmp_path / ".file.elsewhere-12-0123abcd.draft"
    kept.touch()
    with replacing(path) as file:
        file.write(b"new")
        # Another process's draft of another file is not this one's to remove, nor is one that is being written.
        assert len(remove_drafts(tmp_path, ".file.")) == 0
        assert len(names(tmp_path)) == 3
    assert path.read_bytes() == b"new"
    assert [draft.name for draft in remove_drafts(tmp_path)] == sorted(name for name in left if "another" in name)
    assert names(tmp_path) == {"file", kept.name}


def test_a_file_is_replaced_at_once_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with replacing(path, mode=0o600):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_file_has_the_mode_of_the_process(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "default"):
            pass
        with replacing(tmp_path / "chosen", mode=0o666):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "default").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "chosen").stat().st_mode) == 0o666


@pytest.mark.parametrize(
    ("mode", "umask", "folder", "file"),
    [
        (0o700, 0o000, 0o700, 0o600),
        (0o700, 0o022, 0o700, 0o600),
        (0o755, 0o022, 0o755, 0o644),
        (0o755, 0o077, 0o700, 0o600),
        (0o775, 0o022, 0o775, 0o664),
        (0o770, 0o077, 0o770, 0o660),
        (0o2770, 0o022, 0o2770, 0o660),
        (0o777, 0o022, 0o755, 0o644),
        (0o1777, 0o022, 0o755, 0o644),
    ],
    ids=lambda value: f"{value:o}",
)
def test_what_is_made_has_the_rights_of_its_folder(
    tmp_path: Path, mode: int, umask: int, folder: int, file: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    before = os.umask(umask)
    try:
        make_root(root)
        make_folder(root / "a" / "b")
        make_folder(root / "a" / "b")
        with new_file(root / "f") as opened:
            write_all(opened, b"data")
        with pytest.raises(FileExistsError):
            new_file(root / "f")
        new_file(root / "f", replace=True).close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "a", root / "f")] == [mode, folder, file]
    if not mode & 0o002:
        assert stat.S_IMODE((root / "a" / "b").stat().st_mode) == folder
    assert (root / "f").read_bytes() == b""


def test_folders_that_threads_make_at_once_are_all_the_groups(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    before = os.umask(0o022)
    try:
        with ThreadPoolExecutor(8) as pool:
            for turn in range(50):
                list(pool.map(make_folder, [tmp_path / f"{turn}" / "a" / f"{number}" / "b" for number in range(8)]))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")} == {0o2770}
    assert len(list(tmp_path.rglob("*"))) == 50 * (2 + 2 * 8)


def test_the_folder_of_a_registry_is_its_owners_alone(tmp_path: Path) -> None:
    make_root(tmp_path / "above" / "root")
    assert stat.S_IMODE((tmp_path / "above" / "root").stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    for make in (make_root, make_folder):
        with pytest.raises(FileExistsError):
            make(tmp_path / "file")
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make(tmp_path / "file" / "folder")


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"new")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"file"}


def test_without_force_no_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OutputExistsError), replacing(path, force=False):
        pytest.fail("nothing is to be written")
    path.unlink()
    with pytest.raises(OutputExistsError), replacing(path, force=False) as file:
        file.write(b"new")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("kind", ["folder", "link", "dangling", "fifo"])
@pytest.mark.parametrize("force", [True, False])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str, force: bool) -> None:
    path = tmp_path / "out"
    (tmp_path / "file").write_bytes(b"old")
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("file")
        case "dangling":
            path.symlink_to("nowhere")
        case _:
            os.mkfifo(path)
    with pytest.raises(OutputExistsError, check=lambda error: not error.facts), replacing(path, force=force):
        pytest.fail("nothing is to be written")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_names_that_nothing_can_have(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path, fault in [
        (tmp_path / "file" / "x", "Not a directory"),
        (tmp_path / ("x" * 256), "name too long"),
        (tmp_path / "loop" / "x", "symbolic links"),
    ]:
        with pytest.raises(CannotCreateError, match=fault), replacing(path):
            pytest.fail("nothing is to be written")


FULL = """
import resource, signal, sys
from pathlib import Path
from maskreg.disk import replacing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    with replacing(Path(sys.argv[1])) as file:
        file.write(bytes(11))
except OSError as error:
    print(error.errno)
"""


def test_what_cannot_be_written_never_appears(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", FULL, tmp_path / "file"], check=True, capture_output=True, text=True)
    assert int(result.stdout) == errno.EFBIG
    assert names(tmp_path) == set()


def test_a_new_name_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("theirs")
    (tmp_path / "work").write_text("ours")
    with pytest.raises(OutputExistsError):
        rename_new(tmp_path / "work", tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").touch()
    (tmp_path / "works").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(OutputExistsError):
            rename_new(tmp_path / "works", tmp_path / name)
    assert (tmp_path / "file").read_text() == "theirs"


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(work: Path, path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "work").write_text("ours")
    rename_new(tmp_path / "work", tmp_path / "file")
    assert names(tmp_path) == {"file"}


def test_where_something_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotCreateError) as caught, creating(tmp_path / "a b" / "staging" / "out"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert caught.value.hint == f"ls -ld {tmp_path}"
    (tmp_path / "a b").mkdir()
    assert barrier(tmp_path / "a b" / "staging") == tmp_path / "a b"
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "closed" / "below").mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "closed").chmod(0)
        with not_root():
            assert barrier(folder / "closed" / "below" / "file") == folder / "closed"
            assert is_read_only(folder / "closed")
        (folder / "closed").chmod(0o755)


def test_who_is_alive() -> None:
    assert is_alive(os.getpid())
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not is_alive(ended.pid)
    assert not is_alive(1 << 40)


def test_space_is_required(tmp_path: Path) -> None:
    require_space(tmp_path / "a" / "b", 0)
    huge = shutil.disk_usage(tmp_path).total + 1
    with pytest.raises(NoSpaceError, match=f"the model .*{huge:,} ") as caught:
        require_space(tmp_path / "a" / "b", huge, what="the model")
    assert caught.value.hint == f"df -h {tmp_path}"
    with pytest.raises(NoSpaceError) as caught:
        require_space(tmp_path, huge, ref="toy:v1")
    assert (caught.value.hint, caught.value.facts["ref"]) == ("", "toy:v1")
    free = free_bytes(tmp_path)
    with pytest.raises(NoSpaceError, match=rf"\b1 .*{free * 2:,} "):
        require_space(tmp_path, 1, spare=free * 2)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_becomes_full_is_reported_with_both_figures(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.disk.free_bytes", lambda _: 10)
    out = tmp_path / "out"
    with pytest.raises(NoSpaceError) as caught, filling(out, lambda: 1_000, what="the archive"), replacing(out) as file:
        file.write(b"begun")
        raise OSError(number, os.strerror(number))
    assert re.match(rf"{out}: .*the archive .*\b1,000 .*\b10 ", caught.value.message)
    assert caught.value.hint == f"df -h {tmp_path}"
    assert list(tmp_path.iterdir()) == []
