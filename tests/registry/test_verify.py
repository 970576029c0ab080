"""One verification of identity, tags, artifacts and catalog, of every kind of store; no damage ends it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from maskreg_cli.next_step import next_step
from msgspec import to_builtins

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.tensors import load_tensors
from maskreg.artifact.totals import totals_of
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.document import canonical
from maskreg.errors import NotFoundError, RolledBackError, UnavailableError
from maskreg.progress import Silent
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import remove, tag
from maskreg.registry.verify import verify
from maskreg.settings import Remote, Settings
from maskreg.store import FileStore, Store
from maskreg.store.entry import entry_key, tag_hash
from tests.artifact.making import pair, write
from tests.artifact.test_hostile import forge, tensors_of
from tests.buckets import log_in, new_store
from tests.registry.conftest import REF, over, root_of
from tests.servers import S3Server
from tests.store.memory import MemoryStore
from tests.store.wrapped import Wrapped


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if getattr(request, "param", "") == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        log_in(server, monkeypatch)
        with new_store(server) as bucket:
            yield bucket
    else:
        yield MemoryStore()


@pytest.fixture
def lab(store: Store, local: Registry, digest: Digest, other: Digest) -> Registry:
    """A remote with two artifacts, three tags and a log of two entries."""
    registry = over(store)
    local.publish(Ref.parse("team/second"), other, card=Card())
    for ref in (REF, Ref.parse("team/second")):
        push(local, registry, ref)
    tag(registry, REF, Ref.parse("team/third"))
    registry.append(Ref.parse("team/third"), other, card=Card(), after=registry.head(Ref.parse("team/third")))
    return registry


def flip(store: Store, key: str) -> None:
    data = bytearray(store.get(key, max_bytes=1 << 27))
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))


stores = pytest.mark.parametrize("store", ["memory", "s3"], indirect=True)


@stores
def test_a_sound_registry_is_counted(lab: Registry) -> None:
    report = verify(lab, recount=True)
    assert report.damaged == ()
    assert (report.tags, report.entries, report.artifacts) == (3, 4, 2)
    assert (report.recounted, report.catalog) == (True, False)
    assert verify(lab, REF).to_json()["entries"] == 1
    assert verify(lab, lab.resolve(REF).digest).tags == 0


@stores
def test_everything_that_is_damaged_is_in_one_report(lab: Registry, digest: Digest, other: Digest) -> None:
    third = Ref.parse("team/third")
    lab.store.put(f"refs/{third.path}/notes.txt", b"x")
    flip(lab.store, entry_key(third, 1))
    lab.store.delete(["maskreg.json"])
    flip(lab.store, artifact_prefix(digest) + "data.zarr/mask/c/0")
    lab.store.put(artifact_prefix(digest) + "data.zarr/stray", b"")
    lab.store.delete([artifact_prefix(other) + "tensors.json"])
    lab.store.put("artifacts/sha256/short/manifest.json", b"{}")
    report = verify(lab)
    damaged = {digest: ("data.zarr/mask/c/0", "data.zarr/stray"), other: ("tensors.json",)}
    assert [damage.key for damage in report.damaged] == [
        *(artifact_prefix(of) + key for of in sorted(damaged) for key in damaged[of]),
        entry_key(third, 1),
        f"refs/{third.path}/notes.txt",
        "artifacts/sha256/short/manifest.json",
        "maskreg.json",
    ]
    assert {
        damage.key: damage.names for damage in report.damaged if "tensors" in damage.key or "refs/" in damage.key
    } == {
        artifact_prefix(other) + "tensors.json": ("team/second",),
        entry_key(third, 1): ("team/third",),
        f"refs/{third.path}/notes.txt": ("team/third",),
    }
    assert report.artifacts == 2
    assert all(next_step(damage.error) for damage in report.damaged)


@pytest.mark.parametrize("content", [b"{}", b"not json", b'{"schema":"maskreg.registry/1","uuid":"x"}', None])
def test_a_damaged_identity_is_damage_and_not_the_end(lab: Registry, content: bytes | None) -> None:
    # None: another digit in the uuid, which is a uuid as well.
    uuid = lab.uuid.encode()
    another = lab.store.get("maskreg.json", max_bytes=1 << 10).replace(
        uuid, uuid[:-1] + (b"1", b"0")[uuid[-1:] == b"1"]
    )
    lab.store.put("maskreg.json", another if content is None else content)
    with Registry(lab.store, name="lab") as again:
        report = verify(again)
    assert [damage.key for damage in report.damaged] == ["maskreg.json"]
    assert report.artifacts == 2


def test_a_store_that_does_not_answer_is_no_damage(lab: Registry) -> None:
    class Down(Wrapped):
        def get(self, key: str, *, max_bytes: int) -> bytes:
            if key.endswith("/c/0"):
                raise UnavailableError("the store is down")
            return super().get(key, max_bytes=max_bytes)

    with pytest.raises(UnavailableError):
        verify(Registry(Down(lab.store), name="lab"))


# Forged artifacts: digests fit, content does not


def publish(local: Registry, digest: Digest, name: str) -> None:
    local.append(Ref.parse(name), digest, card=Card(), after=None)


def test_forged_metadata_and_files_are_found_by_opening(local: Registry, digest: Digest) -> None:
    key = "data.zarr/mask/zarr.json"
    meta = json.loads(local.store.get(artifact_prefix(digest) + key, max_bytes=1 << 16))
    meta["fill_value"] = 1
    publish(local, forge(root_of(local), digest, {key: canonical(meta)}), "metadata")
    publish(local, write(root_of(local), pair(4), files={"run.sh": b"rm"}), "script")
    publish(local, write(root_of(local), pair(5)), "sound")
    assert {damage.names for damage in verify(local).damaged} == {("metadata",), ("script",)}


def test_a_recount_finds_figures_that_agree_with_each_other(local: Registry, digest: Digest) -> None:
    table = tensors_of(root_of(local), digest)
    table["tensors"][0]["nnz"] += 5

    def edit(manifest: dict[str, Any]) -> None:
        manifest["totals"] = to_builtins(totals_of(load_tensors(canonical(table))))

    forged = forge(root_of(local), digest, {"tensors.json": canonical(table)}, edit)
    publish(local, forged, "forged")
    assert verify(local).ok
    assert verify(local, REF, recount=True).ok
    (damage,) = verify(local, recount=True).damaged
    assert damage.names == ("forged",)
    assert damage.key == artifact_prefix(forged) + "tensors.json"


def test_what_a_collection_deletes_meanwhile_is_not_damaged(local: Registry, digest: Digest, other: Digest) -> None:
    class Collects(Silent):
        def start(self, label: str, total_bytes: int) -> None:
            if label.startswith("verify artifact 1 "):
                remove(local, REF)
                assert len(collect(local, timedelta(0)).collected) == 2

    assert verify(local, progress=Collects()).ok


@pytest.mark.parametrize("key", ["names/sha256/{hex}/{n}-{tag}.json", "names/sha256/{hex}/stray"])
def test_a_damaged_guard_is_reported(lab: Registry, digest: Digest, key: str) -> None:
    collect(lab)
    name = key.format(hex=digest.hex, n=f"{1:020d}", tag=tag_hash(REF))
    assert verify(lab).damaged == ()
    for data in (b"{}", b"junk"):
        lab.store.put(name, data)
        (damage,) = verify(lab).damaged
        assert (damage.digest, damage.key) == (None, name)
        assert next_step(damage.error)


def test_what_was_seen_of_a_remote_is_part_of_its_verification(
    local: Registry, digest: Digest, other: Digest, tmp_path: Path
) -> None:
    settings = Settings(home=root_of(local), config_path=tmp_path / "config.toml")
    (tmp_path / "lab").mkdir()
    with Registry.remote(Remote("lab", f"file://{tmp_path}/lab"), settings) as lab:
        push(local, lab, REF)
        tag(lab, REF, Ref.parse("team/second"))
        entry = lab.append(Ref.parse("team/second"), other, card=Card(), after=lab.head(Ref.parse("team/second")))
        # The new entry names an artifact that was never pushed.
        (missing,) = verify(lab).damaged
        assert missing.names == ("team/second",)
        lab.store.delete([entry.key])
        (damage,) = verify(lab).damaged
        assert (damage.key, damage.names) == (entry.key, ("team/second",))
        assert isinstance(damage.error, RolledBackError)


def test_an_artifact_without_any_of_its_objects_is_damaged(local: Registry, digest: Digest) -> None:
    prefix = artifact_prefix(digest)
    local.store.delete(
        [info.key for info in local.store.list(prefix) if "/data.zarr/" in info.key or "/files/" in info.key]
    )
    (damage,) = verify(local, digest).damaged
    assert damage.key == f"{prefix}manifest.json"


def test_one_artifact_alone(local: Registry, digest: Digest) -> None:
    second = write(root_of(local), pair(1), parts=("mask",))
    local.store.put(artifact_prefix(second) + "tensors.json", b"")
    assert verify(local, REF).ok
    assert not verify(local).ok
    with pytest.raises(NotFoundError):
        verify(local, Ref.parse("nothing"))
    with pytest.raises(NotFoundError, match=Digest.of(b"nothing").short):
        verify(local, Digest.of(b"nothing"))


def test_a_part_that_was_not_pulled_is_no_damage(
    local: Registry, digest: Digest, remote: Registry, empty: Registry
) -> None:
    push(local, remote, REF)
    pull(empty, remote, REF, parts=("mask",))
    assert verify(empty).ok
    assert verify(empty).objects < verify(local).objects


def test_a_flipped_bit_anywhere_on_disk_is_found(local: Registry, digest: Digest) -> None:
    files = [p for p in (root_of(local) / "artifacts").rglob("*") if p.is_file()]
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
    folder = root_of(local) / "refs/team/looping/v1"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)
    (damage,) = verify(local).damaged
    assert (damage.key, damage.names) == ("refs/team/looping/v1", ("team/looping:v1",))
    found = local.search(Query())
    assert [row.ref for row in found.results] == [REF]
    assert [left.ref for left in found.left_out] == ["team/looping:v1"]
    assert [error.key for error in collect(local, timedelta(0)).damaged] == ["refs/team/looping/v1"]
