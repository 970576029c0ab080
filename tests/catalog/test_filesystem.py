from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from maskreg.catalog import file, open_catalog
from maskreg.catalog.file import file_system, journal_mode

TABLE = """\
22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
23 22 0:22 / /home rw - nfs4 server:/home rw,vers=4.2
24 23 0:23 / /home/local\\040disk rw - ext4 /dev/sda1 rw
25 22 0:24 / /mnt/over rw - ext4 /dev/sdb1 rw
26 25 0:25 / /mnt/over rw master:3 - fuse.sshfs me@host: rw
27 22 0:26 / /scratch rw - lustre mds@o2ib:/scratch rw
28 22 0:27 / /win rw - fuseblk /dev/sdc1 rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of mounts in place of the kernel's."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    monkeypatch.setattr(file, "MOUNTINFO", table)
    return table


@pytest.mark.parametrize(
    ("path", "kind", "mode"),
    [
        ("/srv/catalog.db", "overlay", "wal"),
        ("/home/ada/catalog.db", "nfs4", "delete"),
        ("/home/local disk/catalog.db", "ext4", "wal"),
        ("/home/local disks/catalog.db", "nfs4", "delete"),
        ("/mnt/over/catalog.db", "fuse.sshfs", "delete"),
        ("/scratch/a/b/c.db", "lustre", "delete"),
        ("/win/c.db", "fuseblk", "wal"),
    ],
)
def test_the_longest_and_latest_mount_decides(mounts: Path, path: str, kind: str, mode: str) -> None:
    assert file_system(Path(path)) == kind
    assert journal_mode(Path(path)) == mode


@pytest.mark.parametrize("kind", ["nfs", "cifs", "smb3", "gpfs", "beegfs", "ceph", "9p", "virtiofs", "fuse.s3fs"])
def test_network_file_systems_get_a_rollback_journal(mounts: Path, kind: str) -> None:
    mounts.write_text(f"22 1 0:21 / / rw - {kind} x rw\n")
    assert journal_mode(Path("/a.db")) == "delete"


def journal_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    return mode


def test_a_catalog_changes_its_journal_with_its_file_system(tmp_path: Path, mounts: Path) -> None:
    path = tmp_path / "catalog.db"
    open_catalog(f"sqlite:///{path}").close()
    assert journal_of(path) == "wal"
    mounts.write_text("22 1 0:21 / / rw - nfs4 x rw\n")
    with open_catalog(f"sqlite:///{path}") as catalog:
        catalog.saw_source("root", "/a")
        assert {found.name for found in tmp_path.iterdir()} == {"catalog.db", "mountinfo"}
    assert journal_of(path) == "delete"
