"""The journal: which tags moved lately, so that a reader need not list all of them to find out.

The log of a registry with a million tags takes ten thousand requests to list. So a writer notes
first which tag it is about to move, in the latest *generation* of the journal::

    put     changes/<g>/<project>/<name>/<tag>/<n>.json    entry n of the tag is about to be there
    list    generations/                                   still g?  otherwise once more, in the new one
    create  refs/<project>/<name>/<tag>/<n>.json           the entry

A reader that has taken in the log up to generation g lists the changes of g and of what came after it, and reads the
latest entries of these tags alone. A client that finds a generation long begins another::

    put     generations/<g + 1>.json         writers go there from now on
    list    changes of the generations before it, whose entry is not there (its writer died, or is about to write it)
    put     changes/<g + 1>/...              each of these again
    put     generations/<g + 1>.whole.json   a reader may begin here

Each side writes its flag before it reads the other's. A writer that found g to be the latest has written its change
before generation g + 1 began, so the listing after that has it: either its entry is there, or it is carried over.
So what a whole generation and those after it lack has its entry in the log by the time that the generation was whole.

A record of a generation never says anything but that it is there, so two who begin the same one do each other no harm.

The journal is a hint, the log is the truth. A change that is lost only makes readers late: to resolve, pull and verify
a tag, and to collect garbage, its log is read. A writer past the journal is found by the next full listing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from maskreg.digest import sealed
from maskreg.errors import BadRefError
from maskreg.ref import Ref
from maskreg.store.base import Store
from maskreg.store.entry import RefEntry

GENERATIONS = "generations/"
"""Prefix of the records of generations."""

CHANGES = "changes/"
"""Prefix of all changes."""

LONG = 1_000
"""Changes after which a generation is long: as many as one request lists."""

KEPT = 16
"""Whole generations that are kept for readers that are behind."""

_GENERATION = re.compile(re.escape(GENERATIONS) + r"([0-9]{20})(\.whole)?\.json")
_CHANGE = re.compile(re.escape(CHANGES) + r"[0-9]{20}/([^/]+)/([^/]+)/([^/]+)/([0-9]{20})\.json")
_RECORD = sealed({"schema": "maskreg.journal/1"})


class Journal:
    """The journal of a registry, in the store of its log.

    Args:
        store: where it is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest = 0

    def note(self, entry: RefEntry) -> None:
        """Write down that an entry is about to be created."""
        generation = self._latest or self.latest()
        if not generation:
            # Nothing was ever noted, so there is nothing to carry over.
            self._store.put(_key(1), _RECORD)
            self._store.put(_key(1, whole=True), _RECORD)
            generation = 1
        while True:
            self._put(generation, entry.ref, entry.n)
            latest = self.latest()
            if latest <= generation:
                return
            generation = latest

    def latest(self) -> int:
        """Number of the latest generation; 0 when none was ever begun."""
        self._latest = max(self._known(), default=0)
        return self._latest

    def start(self) -> int:
        """Where a reader may begin who takes in the whole log after this call."""
        _, whole = self._generations()
        return max(whole, default=0)

    def since(self, generation: int) -> dict[Ref, int] | None:
        """Number of the highest entry that was noted of each tag, in this generation and those after it.

        Args:
            generation: where the reader began, as :meth:`start` or :meth:`advance` told; 0 for all there ever was.

        Returns:
            The numbers, whose entries may still be missing; None when the generation is not kept any more.
        """
        first = max(generation, 1)
        numbers: dict[Ref, int] = {}
        for each in sorted(g for g in self._known() if g >= first):
            for ref, n in self._changes(each):
                numbers[ref] = max(n, numbers.get(ref, 0))
        # Who forgets a generation deletes its record first: if all are there, what was listed before is all there was.
        kept = self._known()
        is_kept = kept.issuperset(range(first, max(kept, default=generation) + 1))
        return numbers if is_kept else None

    def advance(self, is_there: Callable[[Ref, int], bool]) -> int:
        """Begin another generation, or finish one that was begun, and forget the oldest.

        Args:
            is_there: whether an entry of a tag is in the log, by its number.

        Returns:
            The latest whole generation.
        """
        begun, whole = self._generations()
        before = max(whole, default=0)
        generation = max(begun, default=0)
        if generation <= before:
            generation = before + 1
            self._store.put(_key(generation), _RECORD)
        earlier = {before, *(g for g in begun if before < g < generation)}
        for each in sorted(earlier):
            for ref, n in self._changes(each):
                if not is_there(ref, n):
                    self._put(generation, ref, n)
        self._store.put(_key(generation, whole=True), _RECORD)
        self._forget(sorted(begun | whole), sorted({*whole, generation}))
        return generation

    def _forget(self, known: list[int], whole: list[int]) -> None:
        if len(whole) <= KEPT:
            return
        for each in (g for g in known if g < whole[-KEPT]):
            self._store.delete([_key(each, whole=True), _key(each)])
            self._store.delete(info.key for info in list(self._store.list(_folder(each))))

    def _known(self) -> set[int]:
        begun, whole = self._generations()
        return begun | whole

    def _generations(self) -> tuple[set[int], set[int]]:
        begun: set[int] = set()
        whole: set[int] = set()
        for info in self._store.list(GENERATIONS):
            if match := _GENERATION.fullmatch(info.key):
                (whole if match[2] else begun).add(int(match[1]))
        return begun, whole

    def _changes(self, generation: int) -> Iterator[tuple[Ref, int]]:
        for info in self._store.list(_folder(generation)):
            if match := _CHANGE.fullmatch(info.key):
                try:
                    yield Ref.parse(f"{match[1]}/{match[2]}:{match[3]}"), int(match[4])
                except BadRefError:
                    continue  # no client can append to such a tag

    def _put(self, generation: int, ref: Ref, n: int) -> None:
        self._store.put(f"{_folder(generation)}{ref.path}/{n:020d}.json", _RECORD)


def lagging(changes: Mapping[Ref, int], known: Mapping[Ref, int]) -> list[Ref]:
    """Tags of which a later entry was noted than is known, in the order of their names."""
    return sorted((ref for ref, n in changes.items() if n > known.get(ref, 0)), key=str)


def _folder(generation: int) -> str:
    return f"{CHANGES}{generation:020d}/"


def _key(generation: int, *, whole: bool = False) -> str:
    return f"{GENERATIONS}{generation:020d}{'.whole' if whole else ''}.json"
