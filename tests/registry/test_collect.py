"""Garbage collection: what it takes, what it leaves alone, and what it refuses to believe."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError, UnavailableError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import GRACE, Collected, collect
from maskreg.registry.debris import LOCAL, sweep
from maskreg.registry.names import Names
from maskreg.registry.push import push
from maskreg.registry.tags import remove, restore
from maskreg.registry.verify import verify
from maskreg.registry.witness import Witness
from maskreg.settings import Remote
from maskreg.store import FileStore
from maskreg.store.entry import NAMES, REFS, back_reference_key, entry_key
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, age, over, root_of
from tests.store.memory import MemoryStore
from tests.store.wrapped import Censored, Steps

NOW = timedelta(0)
LATER = Ref.parse("later")


def test_only_what_has_no_name_and_is_old_goes(local: Registry, digest: Digest, other: Digest) -> None:
    age(local, 30, digest)
    age(local, 6.9, other)
    assert collect(local).collected == ()
    age(local, 7.1, other)
    size = sum(info.size for info in local.store.list(artifact_prefix(other)))
    count = len(list(local.store.list(artifact_prefix(other))))
    rehearsed = collect(local, dry_run=True)
    assert local.store.head(artifact_prefix(other) + MANIFEST) is not None
    report = collect(local)
    assert report.collected == rehearsed.collected
    assert rehearsed.dry_run
    assert [(g.digest, g.objects, g.bytes) for g in report.collected] == [(other, count, size)]
    assert (report.objects, report.bytes, report.spared) == (count, size, ())
    assert not list(local.store.list(artifact_prefix(other)))
    assert verify(local).ok
    assert collect(local).collected == ()


def test_a_named_artifact_stays_although_no_catalog_knows_it(local: Registry, digest: Digest) -> None:
    local.index.must_open().drop_artifact(digest)
    assert collect(local, NOW).collected == ()
    assert verify(local, REF).ok


def test_a_name_that_is_given_after_the_listing_keeps_its_artifact(
    local: Registry, digest: Digest, other: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Names.look
    monkeypatch.setattr(
        Names, "look", lambda names: look(names) or local.head(LATER) or local.publish(LATER, other, card=CARD)
    )
    assert collect(local, NOW).collected == ()
    assert verify(local, LATER).ok


def test_one_object_that_is_young_keeps_the_rest(local: Registry, other: Digest) -> None:
    age(local, 30, other)
    (root_of(local) / artifact_prefix(other) / "tensors.json").touch()
    assert collect(local).collected == ()
    # Pieces without a manifest go as a whole does.
    local.store.delete([artifact_prefix(other) + MANIFEST])
    assert collect(local).collected == ()
    age(local, 8, other)
    assert [gone.digest for gone in collect(local).collected] == [other]


def test_what_has_a_name_stays_even_without_a_manifest(local: Registry, digest: Digest) -> None:
    local.store.delete([artifact_prefix(digest) + MANIFEST])
    age(local, 30, digest)
    assert collect(local).collected == ()
    assert list(local.store.list(artifact_prefix(digest)))


def test_the_grace_period_runs_from_the_removal_by_the_stores_clock(
    local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(days=30)

    age(local, 30, digest)
    with monkeypatch.context() as patch:
        patch.setattr("maskreg.store.reflog.datetime", Wrong)
        remove(local, REF)
    assert local.history(REF)[-1].at < datetime.now(UTC) - timedelta(days=29)
    assert collect(local).collected == ()
    restore(local, REF)
    assert verify(local, REF).ok
    remove(local, REF)
    age(local, 30, digest)
    assert collect(local).collected == ()
    assert [gone.digest for gone in collect(local, NOW).collected] == [digest]
    with pytest.raises(NotFoundError):
        restore(local, REF)


def test_the_grace_period_also_runs_from_the_move(local: Registry, digest: Digest, other: Digest) -> None:
    age(local, 30, digest)
    local.publish(REF, other, card=CARD)
    assert collect(local).collected == ()
    assert [gone.digest for gone in collect(local, NOW).collected] == [digest]


def test_the_catalog_forgets_what_was_collected(local: Registry, digest: Digest) -> None:
    remove(local, REF)
    collect(local, NOW)
    assert not local.index.must_open().has(digest)
    assert local.search(Query()).results == ()
    event = local.index.must_open().events(action="gc")[0]
    assert (event.subject, event.by) == (digest, "ada@here")
    assert event.detail["objects"] > 0


def test_what_is_not_ours_stays(local: Registry) -> None:
    local.store.put("artifacts/sha256/notes/readme.txt", b"mine")
    local.store.put("elsewhere/file", b"mine")
    assert collect(local, NOW).collected == ()
    assert local.store.head("artifacts/sha256/notes/readme.txt") is not None
    assert local.store.head("elsewhere/file") is not None


def test_what_comes_back_meanwhile_is_spared(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF)
    remove(remote, REF)

    class Restores(Steps):
        def put(self, key: str, data: bytes) -> None:
            if key.startswith("doomed/"):
                remote.append(REF, digest, card=CARD, after=remote.head(REF))
            super().put(key, data)

    report = collect(Registry(Restores(remote.store), name="lab"), NOW)
    assert (report.collected, report.spared) == ((), (digest,))
    assert verify(remote, REF).ok


def damage(registry: Registry, ref: Ref) -> str:
    head = registry.head(ref)
    assert head is not None
    key = head.key
    registry.store.put(key, b"{}")
    return key


def test_a_damaged_name_spares_what_it_may_name_and_nothing_else(local: Registry, digest: Digest) -> None:
    given_up, lost = (write(root_of(local), pair(seed), parts=("mask", "delta")) for seed in (1, 2))
    other = Ref.parse("other")
    local.publish(other, given_up, card=CARD)
    remove(local, other)
    # Nothing but the entry that is damaged names ``lost``.
    local.publish(REF, lost, card=CARD)
    key = damage(local, REF)
    rehearsed = collect(local, NOW, dry_run=True)
    report = collect(local, NOW)
    assert [gone.digest for gone in report.collected] == [given_up]
    assert [error.key for error in report.damaged] == [error.key for error in rehearsed.damaged] == [key]
    for spared in (digest, lost):
        assert local.store.head(artifact_prefix(spared) + MANIFEST) is not None


def test_a_damaged_name_works_again_after_the_hints(local: Registry, digest: Digest, other: Digest) -> None:
    local.publish(REF, other, card=CARD)
    damage(local, REF)
    for fails in (
        lambda: local.resolve(REF),
        lambda: remove(local, REF),
        lambda: restore(local, REF),
        lambda: local.publish(REF, other, card=CARD),
    ):
        with pytest.raises(DataError) as caught:
            fails()
    subprocess.run(next_step(caught.value).partition(": ")[2], shell=True, check=True)
    with pytest.raises(CorruptError, check=lambda error: error.facts["indexed"] is True):
        local.resolve(REF)
    local.index.rebuild()
    assert local.resolve(REF).digest == digest
    assert local.publish(REF, other, card=CARD).n == 2


def test_a_name_with_a_missing_entry_spares_what_it_may_name(local: Registry, digest: Digest, other: Digest) -> None:
    local.publish(REF, other, card=CARD)
    local.publish(REF, digest, card=CARD)
    local.store.delete([entry_key(REF, 2)])
    report = collect(local, NOW)
    assert report.collected == ()
    assert [error.key for error in report.damaged] == [entry_key(REF, 2)]


NAMED = 20


def put_artifact(store: MemoryStore, number: int) -> Digest:
    """Something with a manifest; garbage collection reads no object of an artifact."""
    digest = Digest.of(str(number).encode())
    for key in (MANIFEST, "tensors.json"):
        store.put(artifact_prefix(digest) + key, b"1234")
    return digest


def ref(number: int) -> Ref:
    return Ref.parse(f"team/run{number}")


def move(store: MemoryStore, tag: Ref, digest: Digest | None) -> None:
    registry = over(store)
    registry.append(tag, digest, card=Card(), after=registry.head(tag))


@pytest.fixture
def team() -> MemoryStore:
    """Twenty named artifacts, and two that lost their names."""
    store = MemoryStore()
    for number in range(NAMED + 2):
        move(store, ref(number), put_artifact(store, number))
    for number in (NAMED, NAMED + 1):
        move(store, ref(number), None)
    return store


def artifacts(store: MemoryStore) -> int:
    return len({info.key.split("/")[2] for info in store.list("artifacts/")})


def assert_refused(store: MemoryStore, registry: Registry, error: type[MaskregError], match: str) -> MaskregError:
    """For a rehearsal and for the run; nothing is deleted, and nothing left behind."""
    before = list(store.list(""))
    with pytest.raises(error, match=match):
        collect(registry, NOW, dry_run=True)
    with pytest.raises(error, match=match) as caught:
        collect(registry, NOW)
    assert list(store.list("")) == before
    return caught.value


def test_no_name_at_all_is_not_believed(team: MemoryStore) -> None:
    lies = over(Censored(team, REFS, lambda key: True))
    error = assert_refused(team, lies, DataError, f" {NAMED + 2} ")
    assert error.facts["options"] == {"trust_listing": True, "dry_run": True}
    # And where it is to be believed, the back references still contradict it.
    with pytest.raises(UnavailableError, match="refs/team/run9/"):
        collect(lies, NOW, trust_listing=True)
    assert artifacts(team) == NAMED + 2


def test_pieces_go_where_nothing_has_a_name_yet() -> None:
    store = MemoryStore()
    store.put(artifact_prefix(Digest.of(b"x")) + "tensors.json", b"an interrupted first push")
    (gone,) = collect(over(store), NOW).collected
    assert not gone.complete


@pytest.mark.parametrize("number", range(4))
def test_one_empty_answer_deletes_nothing_that_has_a_name(team: MemoryStore, number: int) -> None:
    lies = Censored(team, REFS, lambda key: True, first=number, last=number + 1)
    try:
        deleted = len(collect(over(lies), NOW).collected)
    except (DataError, UnavailableError):
        deleted = 0
    assert deleted in (0, 2)
    assert artifacts(team) == NAMED + 2 - deleted
    assert not list(team.list("doomed/"))
    assert not list(team.list("gc/runs/"))
    collect(over(team), NOW)
    assert artifacts(team) == NAMED


@pytest.mark.parametrize(
    "hidden",
    [entry_key(ref(7), 1).__eq__, lambda key: key > entry_key(ref(7), 1), lambda key: key < entry_key(ref(3), 1)],
    ids=["one tag", "the last page", "the first page"],
)
def test_a_tag_that_is_never_listed_is_found_through_its_artifact(
    team: MemoryStore, hidden: Callable[[str], bool]
) -> None:
    lies = over(Censored(team, REFS, hidden))
    assert_refused(team, lies, UnavailableError, "and does not list it: its listing is stale")


def test_a_move_that_is_never_listed_is_found_through_its_artifact(team: MemoryStore) -> None:
    # The listing shows that the tag was removed, and not that it was restored.
    move(team, ref(NAMED), Digest.of(str(NAMED).encode()))
    lies = over(Censored(team, REFS, entry_key(ref(NAMED), 3).__eq__))
    assert_refused(team, lies, UnavailableError, f"holds {entry_key(ref(NAMED), 3)} and does not list it")


def test_more_than_half_of_all_artifacts_need_a_word() -> None:
    store = MemoryStore()
    for number in range(21):
        move(store, ref(number), put_artifact(store, number))
    for number in range(10):
        move(store, ref(number), None)
    assert not collect(over(store), NOW, dry_run=True).many
    move(store, ref(10), None)
    before = list(store.list(""))
    announced: list[Collected] = []
    with pytest.raises(UsageError, match=r"\b11\b.*\b21\b") as caught:
        collect(over(store), NOW, announce=announced.extend)
    assert caught.value.facts["options"] == {"delete_many": True}
    assert list(store.list("")) == before
    assert len(announced) == 11
    rehearsed = collect(over(store), NOW, dry_run=True)
    assert (len(rehearsed.collected), rehearsed.many) == (11, True)
    assert len(collect(over(store), NOW, delete_many=True).collected) == 11


def test_what_will_go_is_said_first_with_its_former_names(team: MemoryStore) -> None:
    move(team, REF, Digest.of(str(NAMED).encode()))
    move(team, REF, None)
    announced: list[Collected] = []

    def hears(artifacts: Sequence[Collected]) -> None:
        assert len({info.key.split("/")[2] for info in team.list("artifacts/")}) == NAMED + 2
        announced.extend(artifacts)

    rehearsed = collect(over(team), NOW, dry_run=True)
    report = collect(over(team), NOW, announce=hears)
    assert tuple(announced) == report.collected == rehearsed.collected
    names = {item.digest: item.names for item in announced}
    assert names[Digest.of(str(NAMED).encode())] == (str(REF), f"team/run{NAMED}")
    assert not [info for info in team.list(NAMES) if any(digest.hex in info.key for digest in names)]


def test_a_name_that_was_never_written_keeps_an_artifact_until_the_listing_is_trusted(team: MemoryStore) -> None:
    class Dies(Steps):
        def create(self, key: str, data: bytes) -> bool:
            raise UnavailableError("killed between the two writes")

    digest, tag = put_artifact(team, 99), Ref.parse("never")
    with pytest.raises(UnavailableError):
        over(Dies(team)).append(tag, digest, card=Card(), after=None)
    report = collect(over(team), NOW)
    assert digest not in {gone.digest for gone in report.collected}
    assert [error.key for error in report.damaged] == [entry_key(tag, 1)]
    assert digest in {gone.digest for gone in collect(over(team), NOW, trust_listing=True).collected}
    # Its writer might be about to go on, so the back reference waits.
    assert [info.key for info in team.list(NAMES) if digest.hex in info.key]


@pytest.mark.parametrize("data", [b"{}", b'{"project":"..","name":"x","tag":"y"}', b"\xff"])
def test_a_damaged_back_reference_keeps_its_artifact(team: MemoryStore, data: bytes) -> None:
    digest = put_artifact(team, 99)
    key = back_reference_key(digest, Ref.parse("unknown"), 1)
    team.put(key, data)
    report = collect(over(team), NOW)
    assert digest not in {gone.digest for gone in report.collected}
    assert [error.key for error in report.damaged] == [key]


def test_a_tag_that_is_written_meanwhile_is_no_wrong_listing(team: MemoryStore) -> None:
    digest = put_artifact(team, 99)

    class Names(Steps):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            if prefix == "artifacts/sha256/" and team.head(entry_key(ref(99), 1)) is None:
                move(team, ref(99), digest)
            return super().list(prefix)

    report = collect(over(Names(team)), NOW)
    assert digest not in {gone.digest for gone in report.collected}
    assert len(report.collected) == 2


def test_a_lost_entry_that_this_machine_has_seen_stops_the_collection(team: MemoryStore, tmp_path: Path) -> None:
    def reader(name: str) -> Registry:
        remote = Remote("lab", "memory://lab")
        return Registry(team, name="lab", by=name, witness=Witness(FileStore(tmp_path / name), remote, team.url))

    key, digest = entry_key(ref(0), 1), Digest.of(b"0")
    lost = team.get(key, max_bytes=1 << 20)
    assert reader("ada").live(ref(0)).digest == digest
    team.delete([key, *(info.key for info in team.list(NAMES) if digest.hex in info.key)])
    error = assert_refused(team, reader("ada"), CorruptError, "was seen by this machine")
    assert isinstance(error, CorruptError)
    assert error.key == key
    team.put(key, lost)
    collect(reader("ada"), NOW)
    assert team.head(artifact_prefix(digest) + MANIFEST) is not None


def debris(root: Path, name: str, *, days: float) -> Path:
    place = root / name
    place.mkdir(parents=True)
    (place / "piece").write_bytes(b"12345")
    then = time.time() - days * 86_400
    for path in (place / "piece", place):
        os.utime(path, (then, then))
    return place


DEAD = f"{socket.gethostname()}-{2**22 + 1}-abc"


@pytest.mark.parametrize(
    ("place", "days", "grace", "goes"),
    [
        (f"staging/{DEAD}", 8, GRACE, True),
        (f"staging/{DEAD}", 6, GRACE, False),
        (f"staging/{DEAD}", 0.1, NOW, True),
        ("staging/{alive}", 8, GRACE, False),
        (f".tmp/{DEAD}", 8, GRACE, True),
        ("incoming/{artifact}/pull", 8, GRACE, True),
        ("incoming/{artifact}/pull", 6, GRACE, False),
        (f"incoming/{{artifact}}/{DEAD}", 8, GRACE, True),
        ("analysis/" + "0" * 32, 8, GRACE, True),
        ("analysis/" + "0" * 32, 6, GRACE, False),
        # Another machine's can still be written, for a day.
        ("staging/elsewhere-1-abc", 8, GRACE, True),
        ("staging/elsewhere-1-abc", 1.1, NOW, True),
        ("staging/elsewhere-1-abc", 0.9, NOW, False),
        (".tmp/elsewhere-1-abc", 0.9, NOW, False),
        ("incoming/{artifact}/pull", 0.9, NOW, False),
    ],
)
def test_what_interrupted_work_left_goes(
    local: Registry, digest: Digest, place: str, days: float, grace: timedelta, goes: bool
) -> None:
    alive = f"{socket.gethostname()}-{os.getpid()}-abc"
    left = debris(root_of(local), place.format(artifact=digest.hex, alive=alive), days=days)
    rehearsed = collect(local, grace, dry_run=True)
    assert left.exists()
    report = collect(local, grace)
    assert left.exists() is not goes
    assert (report.debris_files, report.bytes) == (rehearsed.debris_files, rehearsed.bytes) == (goes, 5 * goes)
    assert verify(local).ok


def test_folders_that_pulls_make_and_remove_meanwhile_are_no_debris(tmp_path: Path) -> None:
    folder = tmp_path / "incoming" / "0"

    def pull() -> None:
        for _ in range(1000):
            (folder / "pull" / "data.zarr").mkdir(parents=True)
            shutil.rmtree(folder)

    with ThreadPoolExecutor(1) as pool:
        pulls = pool.submit(pull)
        while not pulls.done():
            assert sweep(tmp_path, LOCAL, NOW, dry_run=True) == (0, 0)
    pulls.result()


def test_debris_that_is_a_link_is_not_followed(local: Registry, digest: Digest, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years")
    (root_of(local) / "staging").mkdir(exist_ok=True)
    (root_of(local) / "staging" / f"{socket.gethostname()}-{2**22 + 1}-abc").symlink_to(precious)
    assert collect(local, NOW).debris_bytes == len(str(precious))
    assert (precious / "thesis.tex").exists()
