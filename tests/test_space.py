"""Room on disks."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from maskreg.disk import filling, free_bytes, replacing, require_space
from maskreg.errors import NoSpaceError


def test_space_is_required(tmp_path: Path) -> None:
    require_space(tmp_path / "a" / "b", 0)
    huge = shutil.disk_usage(tmp_path).total + 1
    with pytest.raises(NoSpaceError, match=rf"b: the model needs {huge:,} bytes, and [\d,]+ are free") as caught:
        require_space(tmp_path / "a" / "b", huge, what="the model")
    assert caught.value.hint == f"df -h {tmp_path}"
    with pytest.raises(NoSpaceError) as caught:
        require_space(tmp_path, huge, ref="toy:v1")
    assert (caught.value.hint, caught.value.facts["ref"]) == ("", "toy:v1")
    free = free_bytes(tmp_path)
    with pytest.raises(NoSpaceError, match=rf"the output needs 1 bytes and {free * 2:,} to spare, and"):
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
    assert caught.value.message == (
        f"{out}: the disk became full; the archive needs 1,000 bytes, and 10 are free; what was written is removed"
    )
    assert caught.value.hint == f"df -h {tmp_path}"
    assert list(tmp_path.iterdir()) == []
