"""A signed project: what who has no key cannot do, though they can write to the store or stand before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.errors import ConflictError, CorruptError, DataError, NotAllowedError, RolledBackError, UntrustedError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.signing import create_key, rotate_key, signed_tags, trust_key, vouch
from maskreg.registry.trust.document import KEYS, document_key
from maskreg.registry.trust.pins import TRUSTED
from maskreg.seal import SEAL, sealed
from maskreg.signature import signed
from maskreg.store import MemoryStore, Store
from maskreg.store.entry import entry_key
from tests.registry.meddling import MAX, REF, A, B, C, move, row_of
from tests.registry.signing import EVES, KEY, NEXT, copy, forge, reader, set_to, sign_project, writer

OTHER = Ref.parse("team/qwen3-8b-rlvr:v3")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.listing._PAUSE_S", 0)


@pytest.fixture
def store() -> MemoryStore:
    """A project with a key and two signed entries of a tag."""
    store = MemoryStore()
    ada = writer(store, KEY)
    set_to(ada, A)
    sign_project(store)
    set_to(ada, B)
    set_to(ada, C)
    return store


# The base


def test_who_has_the_key_writes_and_everybody_reads(store: MemoryStore) -> None:
    notes: list[str] = []
    bob = reader(store, MemoryStore(), notes)
    head = bob.head(REF)
    assert head is not None and (head.n, head.digest, head.signer, head.registry) == (3, C, KEY.key, bob.uuid)
    assert [entry.signer for entry in bob.history(REF)] == [None, KEY.key, KEY.key]
    assert bob.audit() == []
    assert notes == [f"team on lab is signed; from now on this machine trusts its key {KEY.key}"]
    assert set_to(writer(store, KEY), None).signer == KEY.key
    assert reader(store, MemoryStore()).head(REF).deleted  # type: ignore[union-attr]


def test_the_key_vouches_for_the_tags_that_it_found() -> None:
    store = MemoryStore()
    first, second = move(store, A), move(store, B, OTHER)
    sign_project(store)
    bob = reader(store, MemoryStore())
    assert (bob.head(REF), bob.head(OTHER)) == (first, second)
    forge(store, 1, digest=C)
    with pytest.raises(UntrustedError, match=f"is not signed, and {KEY.key} signs team"):
        reader(store, MemoryStore()).head(REF)
    assert bob.head(OTHER) == second
    store.delete([entry_key(REF, 1)])
    with pytest.raises(UntrustedError, match=f"is gone: {KEY.key.short} vouches for entry 1 of it"):
        reader(store, MemoryStore()).head(REF)


def test_other_projects_need_no_key(store: MemoryStore) -> None:
    ref = Ref.parse("paper/mask")
    entry = move(store, A, ref)
    assert entry.signer is None
    assert reader(store, MemoryStore()).head(ref) == entry


def test_our_own_clients_write_nothing_without_the_key(store: MemoryStore) -> None:
    for registry in (writer(store, None), writer(store, EVES), reader(store, MemoryStore())):
        with pytest.raises(NotAllowedError, match=f"team on lab is signed with {KEY.key}") as caught:
            set_to(registry, A)
        assert caught.value.hint == (
            "maskreg key import FILE; where the key is: maskreg key export team FILE --remote lab"
        )
    assert Registry(store).refs.head(REF).n == 3  # type: ignore[union-attr]


# What a writer without the right does. ``eve`` can write anything to the store, and has a key of her own.


def unsigned(store: Store) -> None:
    eve = Registry(store, by="eve@evil")
    eve.refs._sign = None
    eve.refs.append(REF, after=eve.refs.head(REF), digest=A, card=Card(), by="eve@evil")


def signed_by_another_key(store: Store) -> None:
    unsigned(store)
    forge(store, 4, EVES, registry=Registry(store).uuid)


def stripped(store: Store) -> None:
    forge(store, 3, signatures={})


def signed_by_nobody_with_our_name(store: Store) -> None:
    unsigned(store)
    forge(store, 4, registry=Registry(store).uuid, signatures=row_of(store, 3)["signatures"])


def redirected(store: Store) -> None:
    forge(store, 3, digest=A)


def described(store: Store) -> None:
    forge(store, 3, card=Card(family="evil").to_json())


def renamed_writer(store: Store) -> None:
    forge(store, 3, by="bob@there")


def made_movable(store: Store) -> None:
    forge(store, 3, write_id="again")


def extended(store: Store) -> None:
    forge(store, 3, note="of a later version")


def both(store: Store) -> None:
    row = signed(row_of(store, 3), EVES)
    store.put(entry_key(REF, 3), sealed(row))


ATTACKS: list[tuple[Callable[[Store], None], str]] = [
    (unsigned, f"entry 4, {A.short} by eve@evil at .* is not signed, and {KEY.key} signs team"),
    (signed_by_another_key, f"is signed with {EVES.key}, and {KEY.key} signs team since"),
    (stripped, "is not signed"),
    (signed_by_nobody_with_our_name, f"is not what {KEY.key.short} signed"),
    (redirected, f"is not what {KEY.key.short} signed"),
    (described, f"is not what {KEY.key.short} signed"),
    (renamed_writer, f"is not what {KEY.key.short} signed"),
    (made_movable, f"is not what {KEY.key.short} signed"),
    (extended, f"is not what {KEY.key.short} signed"),
]


@pytest.mark.parametrize(("attack", "said"), ATTACKS)
def test_a_writer_without_the_right_is_refused(store: MemoryStore, attack: Callable[[Store], None], said: str) -> None:
    attack(store)
    # Also by somebody who never looked before, and whom only the signature can tell.
    bob = reader(store, MemoryStore())
    for read in (bob.head, bob.live, bob.resolve, bob.history):
        with pytest.raises(UntrustedError, match=said) as caught:
            read(REF)
    assert caught.value.message.startswith(f"{REF} on lab: ")
    assert f"maskreg key sign {REF} --remote lab" in caught.value.hint
    assert caught.value.message in {error.message for error in bob.audit()}
    assert caught.value.message in {error.message for error in bob.audit(REF)}
    with pytest.raises(UntrustedError, match=said):
        set_to(writer(store, KEY), B)


def test_two_signatures_are_none(store: MemoryStore) -> None:
    both(store)
    with pytest.raises(DataError, match="an entry has one signature"):
        reader(store, MemoryStore()).head(REF)


def test_what_was_refused_is_not_remembered(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    unsigned(store)
    with pytest.raises(UntrustedError):
        reader(store, memory).head(REF)
    # Its owner takes the forged entry away, and nobody calls that a rollback.
    store.delete([entry_key(REF, 4)])
    assert reader(store, memory).head(REF).n == 3  # type: ignore[union-attr]


def test_who_has_the_key_can_sign_what_somebody_else_wrote(store: MemoryStore) -> None:
    unsigned(store)
    with pytest.raises(NotAllowedError, match="its private key is not on this machine"):
        vouch(reader(store, MemoryStore()), REF)
    assert vouch(writer(store, KEY), REF).n == 5
    head = reader(store, MemoryStore()).head(REF)
    assert head is not None and (head.n, head.digest, head.signer) == (5, A, KEY.key)
    # What is right needs no other entry.
    assert vouch(writer(store, KEY), REF) == head


# Mix-and-match: what was signed, elsewhere


def test_an_entry_of_another_tag_is_refused(store: MemoryStore) -> None:
    set_to(writer(store, KEY), A, OTHER)
    row = {**row_of(store, 1), "signatures": {KEY.key: "0" * 128}}
    other = store.get(entry_key(OTHER, 1), max_bytes=MAX)
    for n in (1, 2, 3):
        store.delete([entry_key(REF, n)])
    store.put(entry_key(REF, 1), other)
    with pytest.raises(CorruptError, match="the entry inside is number 1 of team/qwen3-8b-rlvr/v3"):
        reader(store, MemoryStore()).head(REF)
    # With the names of this tag it is not what was signed.
    store.put(entry_key(REF, 1), other)
    forge_other = {**row, "name": REF.name, "digest": A, "registry": Registry(store).uuid}
    store.put(entry_key(REF, 1), sealed(forge_other))
    with pytest.raises(UntrustedError, match=f"is not what {KEY.key.short} signed"):
        reader(store, MemoryStore()).head(REF)


def test_an_entry_of_another_registry_is_refused() -> None:
    lab, nas = MemoryStore(), MemoryStore()
    for store, digest in ((lab, A), (nas, B)):
        sign_project(store)
        set_to(writer(store, KEY), digest)
    assert reader(nas, MemoryStore()).head(REF).digest == B  # type: ignore[union-attr]
    copy(lab, nas, "refs/")
    with pytest.raises(UntrustedError, match=f"was signed for another registry, {Registry(lab).uuid}"):
        reader(nas, MemoryStore()).head(REF)
    copy(lab, nas, KEYS)
    with pytest.raises(UntrustedError, match="has a key document of another registry"):
        reader(nas, MemoryStore()).head(REF)


# Rollback


def test_a_tag_that_goes_back_is_refused(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    store.delete([entry_key(REF, 3)])
    # Entry 2 is signed, too; only who was there can tell.
    assert reader(store, MemoryStore()).head(REF).n == 2  # type: ignore[union-attr]
    with pytest.raises(RolledBackError, match="went back: this machine has seen entry 3"):
        reader(store, memory).head(REF)


def test_a_tag_that_goes_back_before_its_key_is_refused_by_everybody(store: MemoryStore) -> None:
    rotate_key(writer(store, KEY), "team", NEXT)
    store.delete([entry_key(REF, 3)])
    with pytest.raises(UntrustedError, match=f"is signed with the replaced key {KEY.key}, and {NEXT.key} signs team"):
        reader(store, MemoryStore()).head(REF)


# Keys


def eves_key(store: Store) -> None:
    store.delete([info.key for info in list(store.list(KEYS))])
    create_key(writer(store, EVES, by="eve@evil"), "team", EVES)


def eves_next_key(store: Store) -> None:
    create_key(writer(store, EVES, by="eve@evil"), "team", EVES, lost=True)


def no_key(store: Store) -> None:
    store.delete([info.key for info in list(store.list(KEYS))])


@pytest.mark.parametrize("attack", [eves_key, eves_next_key])
def test_another_key_is_refused_by_whoever_pinned_one(store: MemoryStore, attack: Callable[[Store], None]) -> None:
    for n in (2, 3):
        store.delete([entry_key(REF, n)])
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": KEY.key}
    attack(store)
    for bob in (reader(store, memory), configured):
        with pytest.raises(UntrustedError, match=f"has the key {EVES.key}, and {KEY.key}, which") as caught:
            bob.head(REF)
        trust = f"maskreg key trust team {EVES.key} --remote lab"
        assert caught.value.hint == f"ask the owner of team; if that is its key: {trust}"
        assert [error.message for error in bob.audit(REF)] == [caught.value.message]


def test_a_key_that_nobody_handed_over_to_is_taken_on_purpose_only(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    create_key(writer(store, NEXT), "team", NEXT, lost=True)
    ada = writer(store, NEXT)
    ada.trust.configured = {"team": NEXT.key}
    set_to(ada, A)
    for known in (memory, MemoryStore()):
        with pytest.raises(UntrustedError, match="did not hand over to it"):
            reader(store, known).head(REF)
        bob = reader(store, known)
        with pytest.raises(UntrustedError, match=f"has the key {NEXT.key} .* and not {EVES.key}"):
            trust_key(bob, "team", EVES.key)
        trust_key(bob, "team", NEXT.key)
        assert reader(store, known).head(REF).digest == A  # type: ignore[union-attr]


def test_keys_that_are_gone_are_missed(store: MemoryStore) -> None:
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": KEY.key}
    no_key(store)
    with pytest.raises(UntrustedError, match=f"lost key document 1; this machine trusts {KEY.key}"):
        reader(store, memory).head(REF)
    with pytest.raises(UntrustedError, match=f"has no key, and {KEY.key} is configured"):
        configured.head(REF)
    # Without a memory, that there are signatures is what tells.
    with pytest.raises(UntrustedError, match="is signed, and the project has no key"):
        reader(store, MemoryStore()).head(REF)


def test_a_replaced_key_signs_nothing_any_more(store: MemoryStore) -> None:
    memory, notes = MemoryStore(), list[str]()
    bob = reader(store, memory, notes)
    bob.head(REF)
    document = rotate_key(writer(store, KEY), "team", NEXT)
    assert (document.n, document.key) == (2, NEXT.key)
    # A process that has read the keys before finds out.
    assert bob.head(REF).digest == C  # type: ignore[union-attr]
    set_to(writer(store, NEXT), A)
    assert bob.head(REF).signer == NEXT.key  # type: ignore[union-attr]
    assert notes[1:] == [f"the key of team on lab is {NEXT.key} now; {KEY.key.short} signed that"]
    with pytest.raises(NotAllowedError, match=f"signed with {NEXT.key}"):
        set_to(writer(store, KEY), B)
    unsigned(store)
    forge(store, 5, KEY, registry=bob.uuid)
    for known in (memory, MemoryStore()):
        with pytest.raises(UntrustedError, match=f"is signed with the replaced key {KEY.key}, and {NEXT.key} signs"):
            reader(store, known).head(REF)


def test_a_key_document_that_went_back_is_refused(store: MemoryStore) -> None:
    rotate_key(writer(store, KEY), "team", NEXT)
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": NEXT.key}
    store.delete([document_key("team", 2)])
    with pytest.raises(UntrustedError, match=f"lost key document 2; this machine trusts {NEXT.key}, key 2"):
        reader(store, memory).head(REF)
    with pytest.raises(UntrustedError, match=f"has the key {KEY.key}, and {NEXT.key}, which is configured"):
        configured.head(REF)


def test_a_key_that_somebody_else_has_cannot_be_made_ones_own(store: MemoryStore) -> None:
    # Eve begins a chain of her own that ends in the key that Bob configured, and vouches for what she likes.
    no_key(store)
    forge(store, 3, signatures={}, digest=A)
    create_key(writer(store, EVES), "team", EVES)
    document = Registry(store).trust.log.read("team", 1)
    assert document is not None
    row = {"previous": document.id, "n": 2, "key": KEY.key}
    stolen = signed({**_key_row(store), **row, "signatures": {}}, EVES)
    store.put(document_key("team", 2), sealed(stolen))
    bob = reader(store, MemoryStore())
    bob.trust.configured = {"team": KEY.key}
    with pytest.raises(CorruptError, match=f"it is not signed by the key that it names, {KEY.key.short}"):
        bob.head(REF)


def _key_row(store: Store) -> dict[str, object]:
    import json

    return dict(json.loads(store.get(document_key("team", 1), max_bytes=MAX)))


def test_two_who_make_a_key_at_once_do_not_both_win() -> None:
    store = MemoryStore()
    move(store, A)
    ada, bob = writer(store, KEY), writer(store, NEXT)
    ada.trust.documents("team"), bob.trust.documents("team")
    ada.trust.extend("team", KEY, [], by="ada")
    with pytest.raises(ConflictError, match=f"ada gave it {KEY.key.short}"):
        bob.trust.extend("team", NEXT, [], by="bob")


def test_a_forged_tag_is_not_vouched_for_by_the_next_key(store: MemoryStore) -> None:
    unsigned(store)
    with pytest.raises(UntrustedError, match=r"entry 4, .* is not signed"):
        rotate_key(writer(store, KEY), "team", NEXT)
    assert Registry(store).trust.log.numbers() == {"team": 1}


def test_the_pin_is_kept_and_its_damage_told(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    rotate_key(writer(store, KEY), "team", NEXT)
    reader(store, memory).head(REF)
    prefix = f"{TRUSTED}{Registry(store).uuid}/team/"
    assert [info.key for info in memory.list(prefix)] == [f"{prefix}{2:020d}.json"]
    memory.put(f"{prefix}{2:020d}.json", b"{}")
    with pytest.raises(CorruptError, match="this is the key that was trusted for team") as caught:
        reader(store, memory).head(REF)
    assert "forget which key was trusted" in caught.value.hint


# A service


def test_a_service_signs_every_project_from_its_first_entry() -> None:
    store = MemoryStore()
    server = Registry(store, name="lab", by="server")
    server.trust.signer = KEY
    assert set_to(server, A).signer == KEY.key
    bob = reader(store, MemoryStore())
    assert bob.head(REF).signer == KEY.key  # type: ignore[union-attr]
    assert [tag.state for tag in signed_tags(bob)] == ["signed"]
    with pytest.raises(NotAllowedError):
        set_to(bob, B)


# Property: any bit of a signed log


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bit_of_a_signed_log_counts(data: st.DataObject) -> None:
    store = _LOG
    keys = sorted(info.key for prefix in ("refs/", KEYS) for info in store.list(prefix))
    key = data.draw(st.sampled_from(keys))
    raw = store.get(key, max_bytes=MAX)
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    flipped = bytearray(raw)
    flipped[bit // 8] ^= 1 << bit % 8
    copied = MemoryStore()
    copy(store, copied)
    copied.put(key, bytes(flipped))
    bob = reader(copied, MemoryStore())
    assert bob.audit() != []
    with pytest.raises(DataError):
        bob.history(REF)
        bob.history(OTHER)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bit_that_was_sealed_again_counts(data: st.DataObject) -> None:
    # As somebody does it who knows the format, at the latest entry, which nothing else fixes.
    store = _LOG
    row = row_of(store, 3)
    field = data.draw(st.sampled_from(sorted(set(row) - {SEAL, "schema", "signatures", "project", "name", "tag", "n"})))
    value = row[field]
    changed: object = not value if isinstance(value, bool) else f"{value}0" if isinstance(value, str) else {"meta": {}}
    copied = MemoryStore()
    copy(store, copied)
    forge(copied, 3, **{field: changed})
    with pytest.raises(DataError):
        reader(copied, MemoryStore()).head(REF)


def _log() -> MemoryStore:
    store = MemoryStore()
    ada = writer(store, KEY)
    set_to(ada, A)
    set_to(ada, A, OTHER)
    sign_project(store)
    set_to(ada, B)
    set_to(ada, C)
    return store


_LOG = _log()
