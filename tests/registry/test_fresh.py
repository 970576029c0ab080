"""A project whose state is dated: no old one can be shown for ever, not even to a reader who never looked before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from maskreg.errors import CorruptError, NotAllowedError, UntrustedError, UsageError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.keys import Pins, fresh_key
from maskreg.registry.signing import create_key, refresh, refresh_due, rotate_key
from maskreg.signature import PrivateKey
from maskreg.store import Store
from maskreg.store.entry import entry_key
from tests.registry.meddling import EVES, KEY, MAX, NEXT, REF, A, B, C, copy, reader, set_to, snapshot, writer
from tests.store.memory import MemoryStore

OTHER = Ref.parse("team/qwen3-8b-rlvr:v3")
WEEK = 7 * 86_400


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, days: float) -> None:
        self.now += timedelta(days=days)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time: Time) -> MemoryStore:
    """A project of which readers want a statement that is younger than a week."""
    store = MemoryStore()
    ada = at(time, writer(store, KEY))
    set_to(ada, A)
    create_key(ada, "team", KEY, fresh_s=WEEK)
    set_to(ada, B)
    set_to(ada, A, OTHER)
    return store


def at(time: Time, registry: Registry) -> Registry:
    registry.trust.clock = time
    return registry


def test_an_old_state_is_refused_when_its_date_is_too_old(store: MemoryStore, time: Time) -> None:
    frozen, memory = snapshot(store), MemoryStore()
    ada = at(time, writer(store, KEY))
    assert at(time, reader(frozen, memory)).head(REF).digest == B  # type: ignore[union-attr]
    time.forward(6)
    set_to(ada, C)
    refresh(ada, "team")
    assert at(time, reader(frozen, memory)).head(REF).digest == B  # type: ignore[union-attr]
    time.forward(2)
    assert at(time, reader(store, MemoryStore())).head(REF).digest == C  # type: ignore[union-attr]
    # Frozen since March 1: for who has seen it before, and for who has not.
    for known in (memory, MemoryStore()):
        bob = at(time, reader(frozen, known))
        with pytest.raises(UntrustedError, match=r"2026-03-01 .* 2026-03-08") as caught:
            bob.head(REF)
        assert caught.value.facts == {"expired": "team", "remote": "lab"}
        assert caught.value.message in {error.message for error in bob.find_damage()}
    with pytest.raises(UntrustedError, check=lambda error: "expired" in error.facts):
        at(time, reader(frozen, MemoryStore())).head(Ref.parse("team/never:v1"))


def test_a_tag_behind_the_statement_is_refused_by_who_never_looked_before(store: MemoryStore, time: Time) -> None:
    refresh(at(time, writer(store, KEY)), "team")
    store.delete([entry_key(REF, 2)])
    bob = at(time, reader(store, MemoryStore()))
    with pytest.raises(UntrustedError, check=lambda error: error.key == entry_key(REF, 2)):
        bob.head(REF)
    store.delete([entry_key(REF, 1)])
    with pytest.raises(UntrustedError, check=lambda error: error.key == entry_key(REF, 2)):
        bob.head(REF)
    # A renewal of the statement does not sign that away.
    ada = at(time, writer(store, KEY))
    set_to(ada, C, OTHER)
    assert entry_key(REF, 2) in [error.key for error in ada.find_damage()]


def test_new_tags_do_not_pass_with_old_ones(store: MemoryStore, time: Time) -> None:
    before = snapshot(store)
    ada = at(time, writer(store, KEY))
    set_to(ada, C)
    set_to(ada, C, OTHER)
    refresh(ada, "team")
    copy(before, store, f"refs/{REF.path}/")
    bob = at(time, reader(store, MemoryStore()))
    assert bob.head(OTHER).digest == C  # type: ignore[union-attr]
    with pytest.raises(UntrustedError, check=lambda error: error.key == entry_key(REF, 3)):
        bob.head(REF)


def test_the_newest_statement_is_remembered(store: MemoryStore, time: Time) -> None:
    ada, memory = at(time, writer(store, KEY)), MemoryStore()
    refresh(ada, "team")
    old = store.get(fresh_key("team"), max_bytes=MAX)
    time.forward(1)
    set_to(ada, C)
    refresh(ada, "team")
    at(time, reader(store, memory)).head(REF)
    # An older one in its place takes nothing back: what it lists of the tag was seen otherwise.
    store.put(fresh_key("team"), old)
    store.delete([entry_key(REF, 3)])
    with pytest.raises(UntrustedError, check=lambda error: error.key == entry_key(REF, 3)):
        at(time, reader_of_keys(store, memory)).head(REF)


def reader_of_keys(store: Store, memory: Store) -> Registry:
    """A user who remembers keys and statements, and no tags."""
    alone = Registry(store, name="lab")
    alone.trust.pins = Pins(memory)
    return alone


def put_statement(store: Store, signer: PrivateKey, time: Time) -> None:
    """Write a statement of today that lists nothing, as an attacker does."""
    trust = Registry(store).trust
    document = trust.documents("team")[-1]
    heads = trust.log.put_heads(document.registry, "team", {})
    renewal = document.renewed(heads, "eve@there", time.now, signer)
    store.put(fresh_key("team"), renewal.to_bytes())


def test_a_statement_by_another_key_is_refused(store: MemoryStore, time: Time) -> None:
    time.forward(8)
    put_statement(store, EVES, time)
    with pytest.raises(CorruptError, match=fresh_key("team")):
        at(time, reader(store, MemoryStore())).head(REF)
    with pytest.raises(NotAllowedError, match=KEY.key):
        refresh(at(time, writer(store, EVES)), "team")


def test_a_replaced_key_dates_nothing_any_more(store: MemoryStore, time: Time) -> None:
    ada = at(time, writer(store, KEY))
    time.forward(6)
    rotate_key(ada, "team", NEXT)
    # The new key document has a date and a list, too.
    time.forward(6)
    assert at(time, reader(store, MemoryStore())).head(REF).digest == B  # type: ignore[union-attr]
    time.forward(6)
    put_statement(store, KEY, time)
    with pytest.raises(CorruptError, match=fresh_key("team")):
        at(time, reader(store, MemoryStore())).head(REF)


def test_a_service_renews_what_it_signs(time: Time) -> None:
    store = MemoryStore()
    server = at(time, Registry(store, name="lab", by="server"))
    server.trust.signer, server.trust.fresh_s = KEY, WEEK
    set_to(server, A)
    assert refresh_due(server) == ()
    time.forward(4)
    assert refresh_due(server) == ("team",)
    assert refresh_due(server) == ()
    time.forward(6)
    assert at(time, reader(store, MemoryStore())).head(REF).digest == A  # type: ignore[union-attr]
    # An interruption is made up for: who has the key is not shut out by its own statement.
    time.forward(60)
    assert refresh_due(server) == ("team",)
    assert set_to(server, B).digest == B


def test_lists_that_nothing_names_any_more_are_deleted(store: MemoryStore, time: Time) -> None:
    ada = at(time, writer(store, KEY))
    for digest in (C, A, B, C):
        set_to(ada, digest)
        time.forward(1)
        refresh(ada, "team")
    # The lists of the key document, of this statement, and of the one before, which a reader might have just read.
    assert len(list(store.list("keys/team/heads/"))) == 3
    assert at(time, reader(store, MemoryStore())).find_damage() == []


def test_a_statement_of_the_future_is_refused_until_a_right_clock_replaces_it(store: MemoryStore, time: Time) -> None:
    """Else it would stay hidden for ten years that the state is not renewed any more."""
    ada, memory = at(time, writer(store, KEY)), MemoryStore()
    at(time, reader(store, memory)).head(REF)
    time.forward(3650)
    assert refresh_due(ada) == ("team",)
    time.forward(-3650)
    for known in (memory, MemoryStore()):
        with pytest.raises(UntrustedError, match=r"2036-02-27 .* 2026-03-01"):
            at(time, reader(store, known)).head(REF)
    time.forward(0.1)
    assert refresh_due(ada) == ("team",)
    assert refresh_due(ada) == ()
    for known in (memory, MemoryStore()):
        assert at(time, reader(store, known)).head(REF).digest == B  # type: ignore[union-attr]
    # And it expires as any other does.
    frozen = snapshot(store)
    time.forward(8)
    with pytest.raises(UntrustedError, match="2026-03-09", check=lambda error: "expired" in error.facts):
        at(time, reader(frozen, memory)).head(REF)


def test_a_statement_of_the_future_is_not_accepted(store: MemoryStore, time: Time) -> None:
    elsewhere = snapshot(store)
    time.forward(1)
    refresh(at(time, writer(elsewhere, KEY)), "team")
    data = elsewhere.get(fresh_key("team"), max_bytes=MAX)
    time.forward(-1)
    with pytest.raises(UsageError, match=r"2026-03-02 .* 2026-03-01"):
        at(time, writer(store, KEY)).trust.accept_renewal("team", data)
    assert store.head(fresh_key("team")) is None
