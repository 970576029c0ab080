"""Push: what travels, what is not sent again, what is refused, and who wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotAllowedError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate
from maskreg.store import FileStore
from tests.registry.conftest import CARD, REF, Heard, copy_artifact, objects, root_of, second
from tests.store.wrapped import Steps


def test_everything_travels_and_nothing_twice(local: Registry, remote: Registry, digest: Digest) -> None:
    heard = Heard()
    pushed = push(local, remote, REF, progress=heard)
    assert pushed.parts == {"mask", "delta", "reverse"}
    assert (pushed.ref, pushed.digest, pushed.remote) == (REF, digest, remote.name)
    entry = remote.live(REF)
    assert (entry.ref, entry.digest, entry.card) == (REF, digest, CARD)
    assert pushed.sent_bytes == heard.promised == heard.done == local.artifact(digest).manifest.size
    assert objects(remote, digest) == objects(local, digest)
    before = remote.store.head(artifact_prefix(digest) + MANIFEST)
    again = push(local, remote, REF)
    assert (again.sent_objects, again.sent_bytes, again.reused_bytes) == (0, 0, pushed.sent_bytes)
    assert len(remote.history(REF)) == 1
    # But the manifest, which is written anew each time.
    after = remote.store.head(artifact_prefix(digest) + MANIFEST)
    assert before is not None and after is not None and after.modified > before.modified


def test_a_pinned_reference_is_pushed_under_its_tag(local: Registry, remote: Registry, other: Digest) -> None:
    pushed = push(local, remote, Ref.parse(f"mine:v1@{other}"))
    entry = remote.live(pushed.ref)
    assert (pushed.digest, entry.tag, entry.digest, entry.card) == (other, "v1", other, Card())


def test_a_damaged_object_is_not_sent(local: Registry, remote: Registry, digest: Digest) -> None:
    key = artifact_prefix(digest) + "files/config.json"
    local.store.put(key, b"[]")
    with pytest.raises(CorruptError) as caught:
        push(local, remote, REF)
    assert caught.value.key == key
    assert remote.refs.head(REF) is None
    assert remote.store.head(key) is None


def test_who_is_slower_learns_who_won(local: Registry, remote: Registry, digest: Digest, other: Digest) -> None:
    local.publish(Ref.parse("team/mine"), other, card=Card())
    mine = REF.with_tag("race")

    class Slow(Steps):
        def create(self, key: str, data: bytes) -> bool:
            if key.startswith("refs/") and not moved:
                moved.append(second(remote).append(mine, other, card=Card(), after=None))
            return super().create(key, data)

    moved: list[object] = []
    with pytest.raises(ConflictError, match="bob@there"):
        push(local, Registry(Slow(remote.store), name="lab"), REF, tag="race")
    assert remote.resolve(mine).digest == other


@pytest.fixture
def bob(empty: Registry, local: Registry, pushed: Digest, other: Digest) -> Registry:
    """Another home that has, under the name of the pushed artifact, one of its own."""
    copy_artifact(other, root_of(local), empty)
    empty.publish(REF, other, card=Card())
    return empty


def test_a_tag_that_another_user_set_stays(
    local: Registry, remote: Registry, bob: Registry, pushed: Digest, other: Digest
) -> None:
    with pytest.raises(ConflictError) as caught:
        push(bob, second(remote), REF)
    assert str(REF) in caught.value.message
    for words in (pushed.short, other.short, "ada@here"):
        assert words in caught.value.message
    theirs = {"theirs": replace(REF, digest=pushed), "remote": "lab", "options": {"force": True}}
    assert caught.value.facts == theirs
    assert [entry.digest for entry in remote.history(REF)] == [pushed]
    # Asking again, or having looked, is no reason to move it.
    with pytest.raises(ConflictError):
        push(bob, second(remote), REF)
    moved = push(bob, second(remote), REF, force=True)
    assert (moved.was, moved.was_by) == (pushed, "ada@here")
    assert moved.was_at == remote.history(REF)[0].at
    with pytest.raises(ConflictError, match="bob@there"):
        push(local, remote, REF)
    assert [entry.digest for entry in remote.history(REF)] == [pushed, other]


def test_what_was_pulled_may_be_moved(
    local: Registry, remote: Registry, empty: Registry, pushed: Digest, other: Digest
) -> None:
    pull(empty, second(remote), REF)
    copy_artifact(other, root_of(local), empty)
    empty.publish(REF, other, card=Card())
    moved = push(empty, second(remote), REF)
    assert (moved.was, moved.was_by) == (pushed, "ada@here")
    assert push(empty, second(remote), REF).was is None


@pytest.mark.parametrize("is_other", [False, True])
def test_a_readme_that_was_written_on_the_remote_stays_until_a_newer_one_is_pushed(
    local: Registry, remote: Registry, pushed: Digest, other: Digest, is_other: bool
) -> None:
    def readme_after(readme: str) -> str:
        card = replace(CARD, readme=readme)
        local.publish(REF, other if is_other else pushed, card=card)
        push(local, remote, REF)
        return remote.live(REF).card.readme

    annotate(remote, REF, {"readme": "from the page"})
    assert readme_after("") == "from the page"
    assert readme_after("mine") == "mine"
    annotate(remote, REF, {"readme": "from the page again"})
    assert readme_after("mine") == "from the page again"
    assert readme_after("mine, too") == "mine, too"


def test_a_tag_that_was_moved_back_is_not_moved_again_unasked(
    local: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    first = local.live(REF)
    local.publish(REF, other, card=Card(), after=first)
    push(local, remote, REF)
    second(remote).publish(REF, pushed, card=Card())
    with pytest.raises(ConflictError, match="bob@there"):
        push(local, remote, REF)


class Breaks(FileStore):
    """The local store of a process that ends before it has remembered what it pushed."""

    writes = 0

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("tracked/"):
            self.writes += 1
            if self.writes > 1:
                raise KeyboardInterrupt
        super().put(key, data)


def test_a_push_that_broke_off_is_not_another_users(
    local: Registry, remote: Registry, pushed: Digest, other: Digest
) -> None:
    local.publish(REF, other, card=Card())
    local.store = Breaks(root_of(local))
    with pytest.raises(KeyboardInterrupt):
        push(local, remote, REF)
    assert remote.live(REF).digest == other
    local.store = FileStore(root_of(local))
    local.publish(REF, pushed, card=Card())
    assert push(local, remote, REF).was == other


class ReadOnly(FileStore):
    def put(self, key: str, data: bytes) -> None:
        raise NotAllowedError(f"{key} is read-only")


def test_a_home_that_is_read_only_pushes_and_remembers_nothing(
    local: Registry, remote: Registry, digest: Digest, other: Digest
) -> None:
    local.store = ReadOnly(root_of(local))
    assert push(local, remote, REF).digest == digest
    local.store = FileStore(root_of(local))
    local.publish(REF, other, card=Card())
    with pytest.raises(ConflictError):
        push(local, remote, REF)


def test_a_damaged_record_knows_nothing(local: Registry, remote: Registry, pushed: Digest, other: Digest) -> None:
    push(local, remote, REF, tag="v1")
    local.publish(REF, other, card=Card(), origin=remote.uuid)
    records = sorted((root_of(local) / "tracked").rglob("*.json"))
    contents = [record.read_bytes() for record in records]
    # Each under the other's name, then cut short.
    for changed in ([*reversed(contents)], [content[:-9] for content in contents]):
        for record, content in zip(records, changed, strict=True):
            record.write_bytes(content)
        with pytest.raises(ConflictError):
            push(local, remote, REF)
