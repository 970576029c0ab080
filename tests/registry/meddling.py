"""A remote as a user with a memory sees it, and changes of its log that fit the format."""

from __future__ import annotations

from maskreg.digest import Digest, sealed
from maskreg.document import parse_object
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.witness import Witness
from maskreg.settings import Remote
from maskreg.store import Store
from maskreg.store.entry import RefEntry, entry_key

REF = Ref.parse("team/qwen3-8b-opd:v3")
A, B, C, D = (Digest.of(text) for text in (b"a", b"b", b"c", b"d"))
MAX = 1 << 20


class Reader(Registry):
    """A remote as a user with a memory sees it."""

    def __init__(self, store: Store, memory: Store, notes: list[str] | None = None) -> None:
        said = [] if notes is None else notes
        witness = Witness(memory, Remote("lab", store.url), store.url, said.append)
        super().__init__(store, name="lab", by="bob@there", witness=witness)


def owner(store: Store) -> Registry:
    return Registry(store, name="lab", by="ada@here")


def move(store: Store, digest: Digest | None, ref: Ref = REF) -> RefEntry:
    registry = owner(store)
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
