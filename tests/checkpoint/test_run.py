"""Which checkpoints a pattern names, in which order, and when one counts as changed."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from maskreg.checkpoint.run import checkpoints_of, stamp_of
from maskreg.errors import NotFoundError
from tests.buckets import bucket, options_of, server, upload
from tests.servers import S3Server

__all__ = ["bucket", "server"]

NAMES = ("step-2", "step-10", "step-100")


def folders(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "model.safetensors").write_bytes(name.encode())
    return root


def names(pattern: str | Path) -> list[str]:
    return [path.name for path in checkpoints_of(str(pattern))]


def test_checkpoints_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folders(tmp_path / "out", *reversed(NAMES))
    assert names(tmp_path / "out" / "step-*") == list(NAMES)
    assert names(tmp_path / "o?t" / "step-1*") == ["step-10", "step-100"]
    assert names(tmp_path / "out" / "step-10") == ["step-10"]


def test_files_beside_folders_hidden_names_and_links_do_not_count(tmp_path: Path) -> None:
    folders(tmp_path, *NAMES, ".step-3")
    (tmp_path / "step-10.log").write_text("loss")
    (tmp_path / "step-last").symlink_to("step-100")
    assert names(tmp_path / "*") == list(NAMES)
    # A link to what the pattern does not name is a checkpoint like others.
    (tmp_path / "link-0").symlink_to("step-2")
    assert names(tmp_path / "link-*") == ["link-0"]


def test_nothing_that_matches_says_to_quote_the_pattern(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"step-\*") as error:
        names(tmp_path / "no" / "step-*")
    assert error.value.hint


def test_a_stamp_changes_with_any_file(tmp_path: Path) -> None:
    path = folders(tmp_path, "step-1") / "step-1"
    before = stamp_of(path)
    assert stamp_of(path) == before
    (path / "config.json").write_text("{}")
    assert stamp_of(path) != (with_config := before)
    os.utime(path / "model.safetensors", ns=(1, 1))
    assert stamp_of(path) != with_config
    with pytest.raises(NotFoundError):
        stamp_of(tmp_path / "step-2")


def test_links_to_nothing_and_back_up_have_a_stamp(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "gone.json").symlink_to("nowhere")
    (folder / "itself.json").symlink_to("itself.json")
    before = stamp_of(folder)
    (folder / "up").symlink_to(".")
    os.mkfifo(folder / "pipe")
    after = stamp_of(folder)
    assert {Path(name.strip("'")).name for name, *_ in set(after) - set(before)} == {"pipe"}
    (folder / "gone.json").unlink()
    assert stamp_of(folder) != after


def test_a_bucket_is_searched_like_a_folder(tmp_path: Path, server: S3Server, bucket: str) -> None:
    prefix = uuid4().hex
    folders(tmp_path, *NAMES)
    path = upload(server, tmp_path, bucket, prefix)
    run = checkpoints_of(f"{path}/step-*", lambda url: options_of(server))
    assert [path.name for path in run] == list(NAMES)
    before = stamp_of(run[0])
    (tmp_path / "step-2" / "model.safetensors").write_bytes(b"other")
    upload(server, tmp_path, bucket, prefix)
    again = checkpoints_of(f"{path}/step-*", lambda url: options_of(server))
    assert stamp_of(again[0]) != before
    assert stamp_of(again[1]) == stamp_of(run[1])
