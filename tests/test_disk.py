"""What rooms ask the operating system about disks."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from maskreg.disk import existing, free_bytes, is_alive, sync_folder


def test_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert existing(tmp_path) == tmp_path
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert existing(Path("surely-not-here")) == Path.cwd()


def test_free_bytes_are_those_of_the_disk_that_would_be_written(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    assert 0 <= free_bytes(tmp_path / "a" / "b") <= total


def test_a_folder_can_be_synced_and_a_file_is_none(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")


def test_who_is_alive() -> None:
    assert is_alive(os.getpid())
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not is_alive(ended.pid)
    assert not is_alive(1 << 40)
