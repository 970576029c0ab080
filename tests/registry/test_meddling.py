"""Any change of a log that its reader has seen is noticed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from maskreg.digest import Digest, sealed
from maskreg.errors import DataError
from maskreg.store import Store
from maskreg.store.entry import RefEntry, entry_key
from tests.registry.meddling import MAX, REF, A, B, C, D, Reader, edit, move, rewrite, row_of, snapshot
from tests.store.memory import MemoryStore

FIELDS: dict[str, st.SearchStrategy[object]] = {
    "digest": st.sampled_from([str(A), str(D), None]),
    "removed": st.sampled_from([str(A), str(D), None]),
    "deleted": st.booleans(),
    "by": st.sampled_from(["eve@evil", "ada@here"]),
    "at": st.just("2020-01-01T00:00:00.000000Z"),
    "card": st.just({"family": "forged"}),
    "immutable": st.booleans(),
    "origin": st.just("elsewhere"),
    "write_id": st.just("0"),
    "previous": st.sampled_from([str(A), None]),
    "n": st.integers(0, 9),
    "tag": st.just("v4"),
    "later": st.just("unknown"),
}


class Meddling(RuleBasedStateMachine):
    """Writers move a tag, a reader looks now and then, and an attacker changes what is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.memory = MemoryStore(), MemoryStore()
        self.entries: list[RefEntry] = []
        self.seen: RefEntry | None = None

    @rule(digest=st.sampled_from([A, B, C, None]))
    def move(self, digest: Digest | None) -> None:
        if digest is None and (not self.entries or self.entries[-1].deleted):
            return
        entry = move(self.store, digest)
        self.entries += [entry] if not self.entries or entry != self.entries[-1] else []

    @rule()
    def look(self) -> None:
        self.seen = Reader(self.store, self.memory).head(REF)
        assert self.seen == (self.entries[-1] if self.entries else None)

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert Reader(self.store, self.memory).find_damage() == []

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        count = len(self.entries)
        numbers = data.draw(st.sets(st.integers(1, count), min_size=1))
        self.meddle(lambda store: store.delete([entry_key(REF, n) for n in numbers]))

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), name=st.sampled_from(sorted(FIELDS)), chained=st.booleans())
    def edit(self, data: st.DataObject, name: str, chained: bool) -> None:
        n = data.draw(st.integers(1, len(self.entries)))
        value = data.draw(FIELDS[name])
        if chained:
            self.meddle(lambda store: rewrite(store, n, len(self.entries), **{name: value}))
        else:
            self.meddle(lambda store: edit(store, n, **{name: value}))

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), renumbered=st.booleans())
    def put_an_old_one(self, data: st.DataObject, renumbered: bool) -> None:
        numbers = st.integers(1, len(self.entries))
        old, n = data.draw(numbers), data.draw(st.integers(1, len(self.entries) + 2))
        row = row_of(self.store, old)
        self.meddle(lambda store: store.put(entry_key(REF, n), sealed({**row, "n": n} if renumbered else row)))

    @precondition(lambda self: len(self.entries) > 1)
    @rule(data=st.data(), chained=st.booleans())
    def leave_out(self, data: st.DataObject, chained: bool) -> None:
        """Delete an entry and move all later ones down by one."""
        left_out = data.draw(st.integers(1, len(self.entries)))

        def shift(store: Store) -> None:
            rows = [row_of(store, n) for n in range(1, len(self.entries) + 1) if n != left_out]
            store.delete([entry_key(REF, len(self.entries))])
            previous = None
            for n, row in enumerate(rows, 1):
                row = {**row, "n": n, "previous": previous if chained else row["previous"]}
                store.put(entry_key(REF, n), sealed(row))
                previous = row_of(store, n)["seal"]

        self.meddle(shift)

    @precondition(lambda self: self.entries)
    @rule(name=st.sampled_from(["0.json", "x", "9" * 20 + ".json", "0" * 20 + ".json", "1/2.json"]))
    def add_a_stray(self, name: str) -> None:
        self.meddle(lambda store: store.put(f"refs/{REF.path}/{name}", b"?"))

    def meddle(self, change: Callable[[Store], None]) -> None:
        """Change a copy of the store, and check that a copy of the reader notices what touches what it has seen."""
        store, memory = snapshot(self.store), snapshot(self.memory)
        change(store)
        touched = any(
            stored(store, entry.key) != entry.to_bytes() for entry in self.entries[: self.seen.n if self.seen else 0]
        )
        damaged = Reader(store, memory).find_damage()
        try:
            head = Reader(store, memory).head(REF)
        except DataError:
            assert damaged
            return
        assert damaged or not touched
        if self.seen is not None:
            assert head is not None
            assert stored(store, self.seen.key) == self.seen.to_bytes()


def stored(store: MemoryStore, key: str) -> bytes | None:
    return store.get(key, max_bytes=MAX) if store.head(key) else None


TestMeddling = Meddling.TestCase
TestMeddling.settings = effort(max_examples=60, stateful_step_count=20, deadline=None)
