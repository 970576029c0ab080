"""A signed project: its keys, and what a writer to its store who has none cannot do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maskreg_cli.next_step import next_step

from maskreg import errors
from maskreg.digest import SEAL, sealed
from maskreg.document import parse_object
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.keys import KEYS, TRUSTED, PrivateKeys, document_key, service_key
from maskreg.registry.signing import create_key, rotate_key, signed_tags, trust_key, vouch
from maskreg.registry.tags import accept_registry, accept_tag
from maskreg.signature import PrivateKey, signed
from maskreg.store import FileStore, Store
from maskreg.store.entry import entry_key
from tests.registry.meddling import (
    EVES,
    KEY,
    MAX,
    NEXT,
    REF,
    A,
    B,
    C,
    copy,
    forge,
    move,
    reader,
    row_of,
    set_to,
    sign_project,
    signed_store,
    snapshot,
    unsigned,
    writer,
)
from tests.store.memory import MemoryStore

OTHER = Ref.parse("team/qwen3-8b-rlvr:v3")


@pytest.fixture
def store() -> MemoryStore:
    return signed_store()


# The base


def test_who_has_the_key_writes_and_all_read(store: MemoryStore) -> None:
    notes: list[str] = []
    bob = reader(store, MemoryStore(), notes)
    head = bob.head(REF)
    assert head is not None and (head.n, head.digest, head.signer, head.registry) == (3, C, KEY.key, bob.uuid)
    assert [entry.signer for entry in bob.history(REF)] == [None, KEY.key, KEY.key]
    assert bob.find_damage() == []
    assert len(notes) == 1 and KEY.key in notes[0]
    assert set_to(writer(store, KEY), None).signer == KEY.key
    assert reader(store, MemoryStore()).head(REF).deleted  # type: ignore[union-attr]


def test_the_key_vouches_for_the_tags_that_it_found() -> None:
    store = MemoryStore()
    first, second = move(store, A), move(store, B, OTHER)
    sign_project(store)
    bob = reader(store, MemoryStore())
    assert (bob.head(REF), bob.head(OTHER)) == (first, second)
    forge(store, 1, digest=C)
    with pytest.raises(errors.UntrustedError, match=KEY.key):
        reader(store, MemoryStore()).head(REF)
    assert bob.head(OTHER) == second
    store.delete([entry_key(REF, 1)])
    with pytest.raises(errors.UntrustedError) as caught:
        reader(store, MemoryStore()).head(REF)
    assert caught.value.key == entry_key(REF, 1)


def test_our_own_clients_write_nothing_without_the_key(store: MemoryStore) -> None:
    for registry in (writer(store, None), writer(store, EVES), reader(store, MemoryStore())):
        with pytest.raises(errors.NotAllowedError, match=KEY.key) as caught:
            set_to(registry, A)
        assert caught.value.facts == {"signer_of": "team", "remote": "lab"}
    assert Registry(store).refs.head(REF).n == 3  # type: ignore[union-attr]


# What a writer without the right does. ``eve`` can write anything to the store, and has a key of her own.


def signed_by_another_key(store: Store) -> None:
    unsigned(store)
    forge(store, 4, EVES, registry=Registry(store).uuid)


def stripped(store: Store) -> None:
    forge(store, 3, signatures={})


def unsigned_with_our_name(store: Store) -> None:
    unsigned(store)
    forge(store, 4, registry=Registry(store).uuid, signatures=row_of(store, 3)["signatures"])


def redirected(store: Store) -> None:
    forge(store, 3, digest=A)


ATTACKS: list[tuple[Callable[[Store], None], str]] = [
    (unsigned, f"{A.short}.* eve@evil .*{KEY.key}"),
    (signed_by_another_key, f"{EVES.key}.*{KEY.key}"),
    (stripped, KEY.key),
    (unsigned_with_our_name, f"{KEY.key.short} "),
    (redirected, f"{KEY.key.short} "),
]


@pytest.mark.parametrize(("attack", "said"), ATTACKS)
def test_a_writer_without_the_right_is_refused(store: MemoryStore, attack: Callable[[Store], None], said: str) -> None:
    attack(store)
    # Also by a reader who never looked before, and whom only the signature can tell.
    bob = reader(store, MemoryStore())
    for read in (bob.head, bob.live, bob.resolve, bob.history):
        with pytest.raises(errors.UntrustedError, match=said) as caught:
            read(REF)
    assert caught.value.facts == {"unsigned": REF, "remote": "lab"}
    assert caught.value.message in {error.message for error in bob.find_damage()}
    assert caught.value.message in {error.message for error in bob.find_damage(REF)}
    with pytest.raises(errors.UntrustedError, match=said):
        set_to(writer(store, KEY), B)


def test_what_was_refused_is_not_remembered(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    unsigned(store)
    with pytest.raises(errors.UntrustedError):
        reader(store, memory).head(REF)
    # Its owner takes the forged entry away, and that is no rollback.
    store.delete([entry_key(REF, 4)])
    assert reader(store, memory).head(REF).n == 3  # type: ignore[union-attr]


def test_who_has_the_key_can_sign_what_another_user_wrote(store: MemoryStore) -> None:
    unsigned(store)
    with pytest.raises(errors.NotAllowedError, match=KEY.key):
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
    with pytest.raises(errors.CorruptError, match=f"{entry_key(REF, 1)}.* {OTHER.path}"):
        reader(store, MemoryStore()).head(REF)
    # With the names of this tag it is not what was signed.
    forge_other = {**row, "name": REF.name, "digest": A, "registry": Registry(store).uuid}
    store.put(entry_key(REF, 1), sealed(forge_other))
    with pytest.raises(errors.UntrustedError, match=f"{KEY.key.short} "):
        reader(store, MemoryStore()).head(REF)


def test_an_entry_of_another_registry_is_refused() -> None:
    lab, nas = MemoryStore(), MemoryStore()
    for store, digest in ((lab, A), (nas, B)):
        sign_project(store)
        set_to(writer(store, KEY), digest)
    assert reader(nas, MemoryStore()).head(REF).digest == B  # type: ignore[union-attr]
    copy(lab, nas, "refs/")
    with pytest.raises(errors.UntrustedError, match=Registry(lab).uuid) as caught:
        reader(nas, MemoryStore()).head(REF)
    assert caught.value.key == entry_key(REF, 1)
    copy(lab, nas, KEYS)
    with pytest.raises(errors.UntrustedError, match=Registry(lab).uuid) as caught:
        reader(nas, MemoryStore()).head(REF)
    assert caught.value.key == document_key("team", 1)


# Rollback


def test_what_is_unsigned_cannot_be_accepted_and_what_was_seen_stays(store: MemoryStore) -> None:
    memory = MemoryStore()
    bob = reader(store, memory)
    bob.head(REF)
    for n in (2, 3):
        store.delete([entry_key(REF, n)])
    rotate_key(writer(store, KEY), "team", NEXT)
    forge(store, 1, by="eve@evil")
    for _ in range(2):
        with pytest.raises(errors.UntrustedError, match=f"eve@evil .*{NEXT.key}"):
            accept_tag(bob, REF)
    store.delete([entry_key(REF, 1)])
    for _ in range(2):
        with pytest.raises(errors.UntrustedError):
            accept_tag(bob, REF)
    with pytest.raises(errors.RolledBackError) as caught:
        bob.head(REF)
    assert caught.value.key == entry_key(REF, 3)


# A service


def test_a_service_signs_every_project_from_its_first_entry() -> None:
    store = MemoryStore()
    server = Registry(store, name="lab", by="server")
    server.trust.signer = KEY
    assert set_to(server, A).signer == KEY.key
    bob = reader(store, MemoryStore())
    assert bob.head(REF).signer == KEY.key  # type: ignore[union-attr]
    assert [tag.state for tag in signed_tags(bob)] == ["signed"]
    with pytest.raises(errors.NotAllowedError):
        set_to(bob, B)


# Property: any bit of a signed log


_LOG = signed_store(OTHER)


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
    copied = snapshot(store)
    copied.put(key, bytes(flipped))
    bob = reader(copied, MemoryStore())
    assert bob.find_damage() != []
    with pytest.raises(errors.DataError):
        bob.history(REF)
        bob.history(OTHER)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bit_that_was_sealed_again_counts(data: st.DataObject) -> None:
    # As an attacker does who knows the format, at the latest entry, which nothing else fixes.
    store = _LOG
    row = row_of(store, 3)
    field = data.draw(st.sampled_from(sorted(set(row) - {SEAL, "schema", "signatures", "project", "name", "tag", "n"})))
    value = row[field]
    changed: object = not value if isinstance(value, bool) else f"{value}0" if isinstance(value, str) else {"meta": {}}
    copied = snapshot(store)
    forge(copied, 3, **{field: changed})
    with pytest.raises(errors.DataError):
        reader(copied, MemoryStore()).head(REF)


def test_a_registry_in_the_place_of_another_needs_the_key_that_was_trusted() -> None:
    memory, store = MemoryStore(), MemoryStore()

    def replace_by(signer: PrivateKey | None) -> None:
        for key in [info.key for info in store.list("")]:
            store.delete([key])
        owner = writer(store, signer)
        if signer is not None:
            create_key(owner, "team", signer)
        set_to(owner, A)

    replace_by(KEY)
    reader(store, memory).head(REF)
    for signer in (NEXT, None):
        replace_by(signer)
        with pytest.raises(errors.RolledBackError, match="lab"):
            accept_tag(reader(store, memory), REF)
        for _ in range(2):
            with pytest.raises(errors.UntrustedError, match="lab"):
                accept_registry(reader(store, memory))
        with pytest.raises(errors.RolledBackError, match="lab"):
            reader(store, memory).head(REF)
    # The owner began anew, and signs with the same key.
    replace_by(KEY)
    assert accept_registry(reader(store, memory))
    assert reader(store, memory).head(REF) is not None
    # With another one, whose owner was asked.
    replace_by(NEXT)
    trust_key(reader(store, memory), "team", NEXT.key)
    assert accept_registry(reader(store, memory))
    assert reader(store, memory).head(REF) is not None


def eves_key(store: Store) -> None:
    store.delete([info.key for info in list(store.list(KEYS))])
    create_key(writer(store, EVES, by="eve@evil"), "team", EVES)


def eves_next_key(store: Store) -> None:
    create_key(writer(store, EVES, by="eve@evil"), "team", EVES, lost=True)


def no_key(store: Store) -> None:
    store.delete([info.key for info in list(store.list(KEYS))])


@pytest.mark.parametrize("attack", [eves_key, eves_next_key])
def test_another_key_is_refused_by_a_reader_with_a_pin(store: MemoryStore, attack: Callable[[Store], None]) -> None:
    for n in (2, 3):
        store.delete([entry_key(REF, n)])
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": KEY.key}
    attack(store)
    for bob in (reader(store, memory), configured):
        with pytest.raises(errors.UntrustedError, match=f"{EVES.key}.*{KEY.key}") as caught:
            bob.head(REF)
        trust = f"maskreg key trust team {EVES.key} --remote lab"
        if bob is configured:
            trust = f"maskreg config set remotes.lab.project_keys team={EVES.key}"
        assert next_step(caught.value).endswith(f": {trust}")
        assert [error.message for error in bob.find_damage(REF)] == [caught.value.message]


def test_a_key_without_a_handover_is_taken_on_purpose_only(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    create_key(writer(store, NEXT), "team", NEXT, lost=True)
    ada = writer(store, NEXT)
    ada.trust.configured = {"team": NEXT.key}
    set_to(ada, A)
    for known in (memory, MemoryStore()):
        with pytest.raises(errors.UntrustedError, match=f"{NEXT.key}.*{KEY.key}"):
            reader(store, known).head(REF)
        bob = reader(store, known)
        with pytest.raises(errors.UntrustedError, match=f"{NEXT.key} .*{EVES.key}"):
            trust_key(bob, "team", EVES.key)
        trust_key(bob, "team", NEXT.key)
        assert reader(store, known).head(REF).digest == A  # type: ignore[union-attr]


def test_keys_that_are_gone_are_missed(store: MemoryStore) -> None:
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": KEY.key}
    no_key(store)
    with pytest.raises(errors.UntrustedError, match=KEY.key) as caught:
        reader(store, memory).head(REF)
    assert caught.value.facts["new_key"] == "KEY"
    with pytest.raises(errors.UntrustedError, match=KEY.key):
        configured.head(REF)
    # Without a memory, that there are signatures is what tells.
    with pytest.raises(errors.UntrustedError) as caught:
        reader(store, MemoryStore()).head(REF)
    assert caught.value.facts == {"unsigned": REF, "remote": "lab"}


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
    assert len(notes) == 2 and NEXT.key in notes[1]
    with pytest.raises(errors.NotAllowedError, match=NEXT.key):
        set_to(writer(store, KEY), B)
    unsigned(store)
    forge(store, 5, KEY, registry=bob.uuid)
    for known in (memory, MemoryStore()):
        with pytest.raises(errors.UntrustedError, match=f"{KEY.key}.*{NEXT.key}"):
            reader(store, known).head(REF)


def test_a_key_document_that_went_back_is_refused(store: MemoryStore) -> None:
    rotate_key(writer(store, KEY), "team", NEXT)
    memory, configured = MemoryStore(), reader(store, MemoryStore())
    reader(store, memory).head(REF)
    configured.trust.configured = {"team": NEXT.key}
    store.delete([document_key("team", 2)])
    with pytest.raises(errors.UntrustedError, match=NEXT.key) as caught:
        reader(store, memory).head(REF)
    assert caught.value.key == document_key("team", 2)
    with pytest.raises(errors.UntrustedError, match=f"{KEY.key}.*{NEXT.key}"):
        configured.head(REF)


def test_a_key_of_another_owner_cannot_be_made_ones_own(store: MemoryStore) -> None:
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
    with pytest.raises(errors.CorruptError, match=f"{document_key('team', 2)}.*{KEY.key.short}"):
        bob.head(REF)


def _key_row(store: Store) -> dict[str, object]:
    return parse_object(store.get(document_key("team", 1), max_bytes=MAX), "key", max_bytes=MAX)


def test_two_who_make_a_key_at_once_do_not_both_win() -> None:
    store = MemoryStore()
    move(store, A)
    ada, bob = writer(store, KEY), writer(store, NEXT)
    ada.trust.documents("team"), bob.trust.documents("team")
    ada.trust.extend("team", KEY, [], by="ada")
    with pytest.raises(errors.ConflictError, match=KEY.key.short):
        bob.trust.extend("team", NEXT, [], by="bob")


def test_a_forged_tag_is_not_vouched_for_by_the_next_key(store: MemoryStore) -> None:
    unsigned(store)
    with pytest.raises(errors.UntrustedError) as caught:
        rotate_key(writer(store, KEY), "team", NEXT)
    assert caught.value.key == entry_key(REF, 4)
    assert Registry(store).trust.log.numbers() == {"team": 1}


def test_the_pin_is_kept_and_its_damage_told(store: MemoryStore) -> None:
    memory = MemoryStore()
    reader(store, memory).head(REF)
    rotate_key(writer(store, KEY), "team", NEXT)
    reader(store, memory).head(REF)
    prefix = f"{TRUSTED}{Registry(store).uuid}/team/"
    assert [info.key for info in memory.list(prefix)] == [f"{prefix}{2:020d}.json"]
    memory.put(f"{prefix}{2:020d}.json", b"{}")
    with pytest.raises(errors.CorruptError, match=prefix) as caught:
        reader(store, memory).head(REF)
    assert prefix in caught.value.hint


def test_the_key_of_a_service_is_made_once_and_signs_for_all(tmp_path: Path) -> None:
    home = tmp_path / "srv"
    key = service_key(home)
    assert service_key(home).key == key.key
    assert list(PrivateKeys(home)) == [key.key]
    store = FileStore(home)
    server = Registry(store, name="local", by="server")
    server.trust.signer = key
    assert set_to(server, A).signer == key.key
    # No store of this folder knows of the key, so nothing that serves or copies it object by object can pass it on.
    assert [info.key for info in store.list("") if "private" in info.key] == []
    with pytest.raises(errors.UsageError, match=key.key.hex):
        store.get(f".private/{key.key.hex}.pem", max_bytes=MAX)
    PrivateKeys(home).path(key.key).unlink()
    with pytest.raises(errors.RefusedError):
        service_key(home)
    (home / ".private" / "service").write_text("?")
    with pytest.raises(errors.FormatError):
        service_key(home)
