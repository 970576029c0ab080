from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from maskreg.catalog import file, open_catalog
from maskreg.catalog.file import journal_mode

OTHERS = """\
22 1 0:4021 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
23 22 0:4022 / /home rw - nfs4 server:/home rw,vers=4.2
24 23 0:4023 / /home/local\\040disk rw - ext4 /dev/sda1 rw
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says of what kind the file system of the test's folder is, in a table of mounts in place of the kernel's."""
    table, device = tmp_path / "mountinfo", tmp_path.stat().st_dev
    monkeypatch.setattr(file, "MOUNTINFO", table)

    def say(kind: str) -> None:
        own = f"25 22 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - {kind} x rw\n"
        table.write_text(OTHERS + own)

    return say


NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.s3fs")


@pytest.mark.parametrize("kind", [*NETWORK, "ext4", "xfs", "overlay", "tmpfs", "fuseblk"])
def test_network_file_systems_get_a_rollback_journal_and_others_a_log(
    tmp_path: Path, mounted: Callable[[str], None], kind: str
) -> None:
    mounted(kind)
    assert journal_mode(tmp_path / "a.db") == ("delete" if kind in NETWORK else "wal")


def journal_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    return mode


def test_a_catalog_changes_its_journal_with_its_file_system(tmp_path: Path, mounted: Callable[[str], None]) -> None:
    path = tmp_path / "catalog.db"
    open_catalog(f"sqlite:///{path}").close()
    assert journal_of(path) == "wal"
    mounted("nfs4")
    with open_catalog(f"sqlite:///{path}") as catalog:
        catalog.saw_source("root", "/a")
        assert {found.name for found in tmp_path.iterdir()} == {"catalog.db", "mountinfo"}
    assert journal_of(path) == "delete"
