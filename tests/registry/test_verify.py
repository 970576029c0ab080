"""Every damaged byte is found and named, and the rest is still looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.verify import verify
from maskreg.store import FileStore
from maskreg.store.entry import entry_key
from tests.artifact.making import pair, write
from tests.registry.conftest import REF


def test_every_kind_of_damage_in_one_go(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    prefix = artifact_prefix(digest)
    local.store.delete([prefix + "tensors.json", prefix + "data.zarr/delta/zarr.json"])
    local.store.put(prefix + "files/config.json", b"longer than it was")
    local.store.put(prefix + "data.zarr/stray", b"")
    second = write(local.root, pair(1), parts=("mask",))
    local.publish(Ref.parse("second"), second, card=Card())
    local.store.put(artifact_prefix(second) + MANIFEST, b"{}")
    third = write(local.root, pair(2), parts=("mask",))
    local.append(Ref.parse("gone"), Digest.of(b"nothing"), card=Card(), after=None)
    report = verify(local)
    assert report.artifacts == 4
    found = {(d.key.split("/", 3)[-1], d.names): d.fault for d in report.damaged}
    assert found == {
        ("tensors.json", (str(REF),)): "missing",
        ("data.zarr/delta/zarr.json", (str(REF),)): "missing",
        ("files/config.json", (str(REF),)): "longer than its 2 bytes",
        ("data.zarr/stray", (str(REF),)): "not an object of this artifact",
        (MANIFEST, ("second",)): "its bytes do not match the artifact's digest",
        (MANIFEST, ("gone",)): f"artifact {Digest.of(b'nothing').short} is not in {local.url}",
    }
    assert all(next_step(d.error) for d in report.damaged)
    assert verify(local, Ref.parse(f"third@{third}")).ok


def test_an_artifact_that_is_not_there_is_not_damaged(local: Registry, digest: Digest) -> None:
    with pytest.raises(NotFoundError, match=r"sha256:[0-9a-f]{12} is not in"):
        verify(local, Digest.of(b"nothing"))


def test_one_artifact_alone(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    second = write(local.root, pair(1), parts=("mask",))
    local.store.put(artifact_prefix(second) + "tensors.json", b"")
    assert verify(local, REF).ok
    assert not verify(local).ok
    with pytest.raises(NotFoundError):
        verify(local, Ref.parse("nothing"))


def test_a_part_that_was_not_pulled_is_no_damage(
    local: Registry, digest: Digest, remote: Registry, empty: Registry
) -> None:
    push(local, remote, REF)
    pull(empty, remote, REF, parts=("mask",))
    assert verify(empty).ok
    assert verify(empty).objects < verify(local).objects


def test_a_flipped_bit_anywhere_on_disk_is_found(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    files = [p for p in (Path(local.root) / "artifacts").rglob("*") if p.is_file()]
    for path in files:
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 5)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
            assert not verify(local, REF if path.name != MANIFEST else None).ok, (path, place)
        path.write_bytes(whole)
    assert verify(local).ok


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to(path.parents[4] / "maskreg.json"),
        lambda path: path.symlink_to("gone"),
        lambda path: path.symlink_to(path.parent),
        lambda path: path.symlink_to(path),
        lambda path: path.mkdir(),
        os.mkfifo,
    ],
    ids=["link", "broken link", "link to a folder", "link to itself", "folder", "pipe"],
)
def test_what_stands_where_an_entry_should_be_is_damage(
    local: Registry, digest: Digest, tmp_path: Path, put: Callable[[Path], None]
) -> None:
    store = FileStore(tmp_path / "disk")
    with Registry(store, name="disk") as disk:
        push(local, disk, REF)
        key = entry_key(REF, 1)
        (store.root / key).unlink()
        put(store.root / key)
        (left_out,) = disk.search(Query()).left_out
        assert (left_out.ref, left_out.digest) == (REF.path.rpartition("/")[0], None)
        assert key in [damage.key for damage in verify(disk).damaged]
        assert key in [error.key for error in collect(disk, timedelta(0), trust_listing=True).damaged]
        assert disk.artifact(digest).present()


def test_a_tag_whose_folder_is_a_link_to_itself_is_damage(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    folder = local.root / "refs/team/looping/v1"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)
    (damage,) = verify(local).damaged
    assert (damage.key, damage.names) == ("refs/team/looping/v1", ("team/looping:v1",))
    found = local.search(Query())
    assert [row.ref for row in found.results] == [REF]
    assert [left.ref for left in found.left_out] == ["team/looping:v1"]
    assert [error.key for error in collect(local, timedelta(0)).damaged] == ["refs/team/looping/v1"]
