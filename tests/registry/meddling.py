"""A remote as users with and without a key and a memory see it, and what a writer to its store can do to its log."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from maskreg.digest import Digest, sealed
from maskreg.document import parse_object
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.keys import Pins
from maskreg.registry.signing import create_key
from maskreg.registry.witness import Witness
from maskreg.settings import Remote
from maskreg.signature import PrivateKey, signed
from maskreg.store import Store
from maskreg.store.entry import RefEntry, entry_key
from maskreg.store.reflog import RefLog
from tests.registry.conftest import over
from tests.store.memory import MemoryStore

REF = Ref.parse("team/qwen3-8b-opd:v3")
A, B, C, D = (Digest.of(text) for text in (b"a", b"b", b"c", b"d"))
MAX = 1 << 20


class Reader(Registry):
    """A remote as a user with a memory sees it."""

    def __init__(self, store: Store, memory: Store, notes: list[str] | None = None) -> None:
        said = [] if notes is None else notes
        witness = Witness(memory, Remote("lab", store.url), store.url, said.append)
        super().__init__(store, name="lab", by="bob@there", witness=witness)


def move(store: Store, digest: Digest | None, ref: Ref = REF) -> RefEntry:
    registry = over(store)
    return registry.append(ref, digest, card=Card(), after=registry.head(ref))


def row_of(store: Store, n: int) -> dict[str, object]:
    return parse_object(store.get(entry_key(REF, n), max_bytes=MAX), "entry", max_bytes=MAX)


def edit(store: Store, n: int, /, **changes: object) -> None:
    store.put(entry_key(REF, n), sealed({**row_of(store, n), **changes}))


def rewrite(store: Store, first: int, last: int, /, **changes: object) -> None:
    """Change an entry and seal all that follow anew, so that the log fits together again."""
    previous = row_of(store, first)["previous"]
    for n in range(first, last + 1):
        edit(store, n, **{"previous": previous, **(changes if n == first else {})})
        previous = row_of(store, n)["seal"]


# Always the same, because test names contain them.
KEY, NEXT, EVES = (PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([n] * 32))) for n in (1, 2, 3))


def writer(store: Store, signer: PrivateKey | None, *, by: str = "ada@here") -> Registry:
    """A user who has a private key and remembers nothing."""
    registry = Registry(store, name="lab", by=by)
    registry.trust.find = lambda key: signer if signer is not None and signer.key == key else None  # type: ignore[method-assign]
    return registry


def reader(store: Store, memory: Store, notes: list[str] | None = None) -> Registry:
    """A user who has no private key and remembers what was seen."""
    registry = Reader(store, memory, notes)
    registry.trust.pins = Pins(memory)
    if notes is not None:
        registry.trust.note = notes.append
    return registry


def sign_project(store: Store, project: str = REF.project) -> None:
    create_key(writer(store, KEY), project, KEY)


def set_to(registry: Registry, digest: Digest | None, ref: Ref = REF) -> RefEntry:
    return registry.append(ref, digest, card=Card(), after=registry.head(ref))


def signed_store(*others: Ref) -> MemoryStore:
    """A project with a key, and a tag with one entry from before and two signed ones; others have the former alone."""
    store = MemoryStore()
    ada = writer(store, KEY)
    for ref in (REF, *others):
        set_to(ada, A, ref)
    sign_project(store)
    set_to(ada, B)
    set_to(ada, C)
    return store


def unsigned(store: Store) -> None:
    """A user who has no key, but can write to the store, moves the tag."""
    eve = RefLog(store)
    eve.append(REF, after=eve.head(REF), digest=A, card=Card(), by="eve@evil")


def forge(store: Store, n: int, /, *signers: PrivateKey, **changes: object) -> None:
    """Write an entry anew, sealed as it must be, and signed by ``signers`` or as it was."""
    row = {**row_of(store, n), **changes}
    if signers:
        row = signed({key: value for key, value in row.items() if key != "signatures"}, *signers)
    store.put(entry_key(REF, n), sealed(row))


def copy(source: Store, target: Store, prefix: str = "") -> None:
    """What is in one store into another, and nothing else below the prefix."""
    target.delete([info.key for info in list(target.list(prefix))])
    for info in list(source.list(prefix)):
        target.put(info.key, source.get(info.key, max_bytes=MAX))


def snapshot(store: Store) -> MemoryStore:
    """The store as it is now, at the same address."""
    copied = MemoryStore()
    copied.url = store.url
    copy(store, copied)
    return copied
