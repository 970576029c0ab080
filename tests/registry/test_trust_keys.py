"""The keys of a project: made, replaced, pinned, and what an attacker puts in their place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.digest import sealed
from maskreg.document import parse_object
from maskreg.errors import ConflictError, CorruptError, FormatError, NotAllowedError, UntrustedError, UsageError
from maskreg.registry import Registry
from maskreg.registry.keys import KEYS, TRUSTED, PrivateKeys, document_key, service_key
from maskreg.registry.signing import create_key, rotate_key, trust_key
from maskreg.signature import signed
from maskreg.store import FileStore, Store
from maskreg.store.entry import entry_key
from tests.registry.meddling import MAX, REF, A, B, C, move
from tests.registry.signing import EVES, KEY, NEXT, forge, reader, set_to, signed_store, unsigned, writer
from tests.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.chain._PAUSE_S", 0)


@pytest.fixture
def store() -> MemoryStore:
    return signed_store()


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
        with pytest.raises(UntrustedError, match=f"has the key {EVES.key}, and {KEY.key}, which") as caught:
            bob.head(REF)
        trust = f"maskreg key trust team {EVES.key} --remote lab"
        if bob is configured:
            trust = f"maskreg config set remotes.lab.project_keys team={EVES.key}"
        assert next_step(caught.value) == f"ask the owner of team; if that is its key: {trust}"
        assert [error.message for error in bob.audit(REF)] == [caught.value.message]


def test_a_key_without_a_handover_is_taken_on_purpose_only(store: MemoryStore) -> None:
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
    with pytest.raises(CorruptError, match=f"it is not signed by the key that it names, {KEY.key.short}"):
        bob.head(REF)


def _key_row(store: Store) -> dict[str, object]:
    return parse_object(store.get(document_key("team", 1), max_bytes=MAX), "key", max_bytes=MAX)


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
    with pytest.raises(UsageError, match="is not of the store"):
        store.get(f".private/{key.key.hex}.pem", max_bytes=MAX)
    PrivateKeys(home).path(key.key).unlink()
    with pytest.raises(NotAllowedError, match="names a private key that is not there"):
        service_key(home)
    (home / ".private" / "service").write_text("?")
    with pytest.raises(FormatError, match="not the name of a key"):
        service_key(home)


def test_many_threads_read_while_the_key_is_replaced(store: MemoryStore) -> None:
    bob = reader(store, MemoryStore())
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(bob.head, REF) for _ in range(200)]
        rotate_key(writer(store, KEY), "team", NEXT)
        reads += [pool.submit(bob.head, REF) for _ in range(200)]
        assert {read.result().digest for read in reads} == {C}  # type: ignore[union-attr]
