"""Pull: what arrives, what is used again, which tags move, and what a crash leaves behind."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg import errors
from maskreg.artifact.layout import MANIFEST, artifact_prefix, part_of
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate, remove
from maskreg.registry.verify import verify
from maskreg.store import FileStore, ObjectInfo
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, Heard, new_local, objects, root_of, second
from tests.store.memory import MemoryStore
from tests.store.wrapped import Killed, Steps


def test_mask_and_delta_arrive(empty: Registry, remote: Registry, pushed: Digest) -> None:
    heard = Heard()
    pulled = pull(empty, remote, REF, progress=heard)
    assert pulled.resolved.digest == pushed
    assert pulled.path == root_of(empty) / artifact_prefix(pushed)
    assert (pulled.path / MANIFEST).is_file()
    assert pulled.artifact.present() == {"mask", "delta"}
    assert pulled.note == ""
    assert heard.promised == heard.done == pulled.fetched_bytes
    entry = empty.resolve(REF).entry
    assert entry is not None
    assert (entry.origin, entry.card, entry.by) == (remote.uuid, CARD, "bob@there")
    again = pull(empty, remote, REF)
    assert (again.fetched_objects, again.reused_bytes) == (0, pulled.fetched_bytes)
    assert len(empty.history(REF)) == 1


def test_one_part_and_a_later_pull_completes(empty: Registry, remote: Registry, pushed: Digest) -> None:
    first = pull(empty, remote, REF, parts=("mask",))
    assert first.artifact.present() == {"mask"}
    everything = pull(empty, remote, REF, parts=("mask", "delta", "reverse"))
    assert everything.artifact.present() == {"mask", "delta", "reverse"}
    assert everything.reused_bytes == first.fetched_bytes
    assert objects(empty, pushed) == objects(remote, pushed)


def test_a_part_that_the_artifact_lacks(empty: Registry, local: Registry, remote: Registry, other: Digest) -> None:
    push(local, remote, Ref.parse(f"plain@{other}"))
    with pytest.raises(errors.PartAbsentError, match="reverse"):
        pull(empty, remote, Ref.parse("plain"), parts=("reverse",))
    assert list(empty.store.list("artifacts/")) == []


def test_a_part_that_the_remote_lacks(empty: Registry, remote: Registry, pushed: Digest, tmp_path: Path) -> None:
    pull(empty, remote, REF, parts=("mask",))
    masks = Registry(MemoryStore(), name="masks")
    assert push(empty, masks, REF).parts == {"mask"}
    with new_local(tmp_path / "third") as third:
        with pytest.raises(errors.PartAbsentError) as caught:
            pull(third, masks, REF)
        assert caught.value.facts["elsewhere"] == "mask"
        assert pull(third, masks, REF, parts=("mask",)).artifact.present() == {"mask"}
        # The rest comes from another registry.
        assert pull(third, remote, replace(REF, digest=pushed)).artifact.present() == {"mask", "delta"}


def test_damage_here_is_replaced_and_counted(empty: Registry, remote: Registry, pushed: Digest) -> None:
    pull(empty, remote, REF)
    prefix = artifact_prefix(pushed)
    same_size = bytearray(empty.store.get(prefix + "tensors.json", max_bytes=1 << 20))
    same_size[5] ^= 1
    empty.store.put(prefix + "tensors.json", bytes(same_size))
    empty.store.put(prefix + "files/config.json", b"")
    empty.store.delete([prefix + "data.zarr/zarr.json"])
    empty.store.put(prefix + MANIFEST, b"{}")
    assert pull(empty, remote, REF).fetched_objects == 3
    assert verify(empty).ok


def test_damage_on_the_remote_stays_there(tmp_path: Path, remote: Registry, pushed: Digest) -> None:
    for number, (key, data) in enumerate(objects(remote, pushed).items()):
        place = artifact_prefix(pushed) + key
        remote.store.put(place, data[:-1] + bytes([data[-1] ^ 1]) if data else b"x")
        with new_local(tmp_path / str(number)) as fresh:
            if part_of(key) == "reverse":
                pull(fresh, remote, REF)  # not asked for, not looked at
            else:
                with pytest.raises((errors.CorruptError, errors.PartAbsentError)) as refused:
                    pull(fresh, remote, REF)
                assert "artifact" not in refused.value.facts, "to pull it again would bring the same"
                assert fresh.refs.head(REF) is None
                assert list(fresh.store.list("artifacts/")) == []
        remote.store.put(place, data)


def test_a_tag_and_its_card_follow_their_remote(
    local: Registry, empty: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    pull(empty, remote, REF)
    local.publish(REF, other, card=CARD)
    push(local, remote, REF)
    assert pull(empty, remote, REF).resolved.digest == other
    assert [e.digest for e in empty.history(REF)] == [pushed, other]
    annotate(second(remote), REF, {"license": "mit"})
    pull(empty, remote, REF)
    assert empty.resolve(REF).card.license == "mit"


def test_a_tag_that_was_set_here_stays(
    local: Registry, empty: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    mine = write(root_of(empty), pair(1), parts=("mask", "delta"))
    empty.publish(REF, mine, card=CARD)
    with pytest.raises(errors.ConflictError) as caught:
        pull(empty, remote, REF)
    assert mine[:19] in caught.value.message
    assert pushed[:19] in caught.value.message
    assert empty.resolve(REF).digest == mine
    assert empty.store.head(artifact_prefix(pushed) + MANIFEST) is None
    pulled = pull(empty, remote, replace(REF, digest=pushed))
    assert "stays at" in pulled.note
    # A remote without an identity does not move it either.
    remote.store.delete(["maskreg.json"])
    with pytest.raises(errors.ConflictError):
        pull(empty, second(remote), REF)
    assert empty.resolve(REF).digest == mine


def test_a_tag_that_was_pushed_as_it_is_follows_its_remote(
    local: Registry, empty: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    pull(empty, remote, REF)
    theirs = write(root_of(empty), pair(2), parts=("mask", "delta"))
    empty.publish(REF, theirs, card=CARD)
    push(empty, remote, REF)
    local.publish(REF, other, card=CARD)
    with pytest.raises(errors.ConflictError):
        pull(local, remote, REF)
    local.publish(REF, pushed, card=CARD)
    pull(local, remote, REF)
    assert local.resolve(REF).digest == theirs


def test_a_tag_that_another_remote_set_stays(
    local: Registry, empty: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    elsewhere = Registry(MemoryStore(), name="elsewhere")
    push(local, elsewhere, Ref.parse(f"team/qwen3-8b-opd@{other}"))
    pull(empty, elsewhere, REF)
    with pytest.raises(errors.ConflictError):
        pull(empty, remote, REF)
    # The same artifact from both is no conflict, and whose tag it is does not change.
    push(local, elsewhere, REF)
    pull(empty, elsewhere, REF)
    pull(empty, remote, REF)
    entry = empty.resolve(REF).entry
    assert entry is not None
    assert entry.origin == elsewhere.uuid


def test_a_removed_local_tag_is_absent(empty: Registry, remote: Registry, pushed: Digest) -> None:
    pull(empty, remote, REF)
    remove(empty, REF)
    pull(empty, remote, REF)
    assert empty.resolve(REF).digest == pushed


def test_a_removed_remote_tag_says_who_and_when(empty: Registry, remote: Registry, pushed: Digest) -> None:
    remove(second(remote), REF)
    with pytest.raises(errors.NotFoundError, match=r" bob@there .* 20\d\d-") as caught:
        pull(empty, remote, REF)
    assert next_step(caught.value) == f"maskreg restore {REF} --remote lab"
    assert pull(empty, remote, replace(REF, digest=pushed)).resolved.digest == pushed


class Down(MemoryStore):
    """A store that never answers."""

    def get(self, key: str, *, max_bytes: int) -> bytes:
        raise errors.UnavailableError("lab.example.org does not answer")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise errors.UnavailableError("lab.example.org does not answer")


@pytest.mark.parametrize("down", [Registry(Down(), name="lab"), None], ids=["down", "offline"])
def test_without_the_remote_what_is_here_is_used(
    empty: Registry, remote: Registry, pushed: Digest, down: Registry | None
) -> None:
    with pytest.raises(errors.UnavailableError if down else errors.NotFoundError):
        pull(empty, down, REF)
    first = pull(empty, remote, REF, parts=("mask",))
    with pytest.raises((errors.PartAbsentError, errors.UnavailableError)):
        pull(empty, down, REF)
    pulled = pull(empty, down, REF, parts=("mask",))
    assert (pulled.resolved.digest, pulled.path) == (pushed, first.path)
    assert pulled.reused_bytes == first.fetched_bytes
    assert pulled.note


def test_a_full_disk_is_noticed_before_anything_travels(
    empty: Registry, remote: Registry, pushed: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(1 << 30, 1 << 30, 1000))
    with pytest.raises(errors.NoSpaceError):
        pull(empty, remote, REF)
    assert list(empty.store.list("artifacts/")) == []


def test_a_part_is_not_seen_before_all_of_it_is_here(empty: Registry, remote: Registry, pushed: Digest) -> None:
    pull(empty, remote, REF, parts=("mask",))
    seen = []

    def look() -> None:
        seen.append(empty.artifact(pushed).present())

    k, finished = 0, False
    while not finished:
        steps = Steps(remote.store, at=k, then=look, dies=True)
        try:
            finished = bool(pull(empty, Registry(steps, name="lab"), REF, jobs=1))
        except Killed:
            assert empty.artifact(pushed).present() == {"mask"}
        k += 1
    assert k > 5
    assert set(seen) == {frozenset({"mask"})}
    assert empty.artifact(pushed).present() == {"mask", "delta"}


class LocalSteps(Steps):
    """Steps of a store in a directory."""

    def __init__(self, store: FileStore, *, at: int, dies: bool = True) -> None:
        super().__init__(store, at=at, dies=dies)
        self.root = store.root
        self.path = store.path


def test_killed_at_every_step_of_the_local_side(empty: Registry, remote: Registry, pushed: Digest) -> None:
    assert isinstance(empty.store, FileStore)
    k, finished = 0, False
    while not finished:
        dying = Registry(LocalSteps(empty.store, at=k), root=root_of(empty), by="bob@there")
        try:
            pull(dying, remote, REF, jobs=1)
            finished = True
        except Killed:
            k += 1
        if (empty.refs.head(REF)) is not None:
            assert verify(empty).ok
    assert pull(empty, remote, REF).fetched_objects == 0
    assert verify(empty).ok
    assert k > 10


def test_what_is_whole_needs_no_write(
    empty: Registry, remote: Registry, pushed: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(empty, remote, REF)

    def refuse(store: FileStore, *_: object) -> None:
        raise errors.NotAllowedError(f"cannot write in {store.root}: Permission denied")

    for method in ("put", "create", "delete"):
        monkeypatch.setattr(FileStore, method, refuse)
    again = pull(empty, remote, REF)
    assert (again.resolved.digest, again.fetched_objects, again.note) == (pushed, 0, "")
    assert pull(empty, remote, replace(REF, digest=pushed)).artifact.present() == {"mask", "delta"}


def die_after(renames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills after so many renames into an artifact."""
    rename, left = Path.replace, [None] * renames

    def replace(path: Path, to: Path) -> Path:
        if "incoming" in path.parts:
            if not left:
                raise Killed
            left.pop()
        return rename(path, to)

    monkeypatch.setattr(Path, "replace", replace)


def test_killed_between_two_moves(
    local: Registry, remote: Registry, digest: Digest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(local, remote, REF)
    left, finished, pieces = 0, False, 0
    while not finished:
        folder = tmp_path / str(left)
        with Registry(FileStore(folder), root=folder) as home:
            pull(home, remote, REF, parts=("mask",))
            with monkeypatch.context() as patched:
                die_after(left, patched)
                try:
                    pull(home, remote, REF, jobs=1)
                    finished = True
                except Killed:
                    pass
            if not finished:
                present = home.artifact(digest).present()
                assert "mask" in present
                if "delta" not in present:
                    with pytest.raises(errors.PartAbsentError):
                        home.artifact(digest).require("delta")
                assert verify(home).ok
                pieces += any(folder.glob(f"{artifact_prefix(digest)}data.zarr/delta*"))
                for path in folder.glob("incoming/**/*"):
                    os.utime(path, (1, 1))
                collect(home, timedelta(0))
                assert home.artifact(digest).present() == present
                pull(home, remote, REF, jobs=1)
            assert {"mask", "delta"} <= home.artifact(digest).present()
            assert verify(home).ok
        left += 1
    assert pieces > 1


def test_pieces_that_nothing_completes_are_damage(local: Registry, digest: Digest) -> None:
    local.store.delete([artifact_prefix(digest) + "data.zarr/delta/zarr.json"])
    with pytest.raises(errors.CorruptError, match=r"/data\.zarr/delta/zarr\.json"):
        local.artifact(digest).present()
    assert not verify(local).ok


def test_a_stray_is_refused_by_every_reader(local: Registry, remote: Registry, digest: Digest) -> None:
    local.store.put(artifact_prefix(digest) + "data.zarr/stray", b"")
    for read in (lambda: push(local, remote, REF), lambda: local.artifact(digest).present()):
        with pytest.raises(errors.CorruptError, match=r"/data\.zarr/stray"):
            read()
    assert list(remote.store.list("")) == []


def test_a_readme_that_was_not_pushed_yet_survives_a_pull(remote: Registry, empty: Registry, pushed: Digest) -> None:
    for readme, edited, expected in (("a", "", "a"), ("b", "", "b"), ("c", "mine", "mine"), ("d", "", "mine")):
        if edited:
            annotate(empty, REF, {"readme": edited})
        annotate(remote, REF, {"readme": readme})
        pull(empty, second(remote), REF)
        assert empty.live(REF).card.readme == expected
