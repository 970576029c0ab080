"""Reading entries of the ref log by their keys, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from maskreg.errors import CorruptError, DataError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.store.base import Store
from maskreg.store.chain import removal
from maskreg.store.entry import RefEntry

_READERS = 16
_BATCH = 1_024


class Entries:
    """The entries in a store.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, key: str) -> RefEntry:
        """One entry.

        Raises:
            NotFoundError: there is none.
            DataError: it is damaged, or not one that this version reads; the hint says how to repair it.
        """
        try:
            return RefEntry.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except DataError as error:
            # An entry of a later version has a hint already, and must not be removed.
            error.hint = error.hint or self._repair(key)
            raise

    def read_or_error(self, key: str) -> RefEntry | DataError:
        """One entry that was listed, or what is wrong with it."""
        try:
            return self.read(key)
        except DataError as error:
            return error
        except NotFoundError:
            return CorruptError(key, "it was listed, and is not there", hint="run the same command again in a moment")

    def read_all(self, keys: Iterable[str], damaged: list[CorruptError] | None) -> Iterator[RefEntry]:
        """Entries by their keys, in order; a few are in memory at a time.

        Args:
            keys: of entries that were listed.
            damaged: errors of those that cannot be read are appended to it; without it the first error is raised.
        """
        for key, result in self._results(keys):
            if isinstance(result, RefEntry):
                yield result
            elif damaged is None:
                raise result
            else:
                damaged.append(CorruptError(key, result.message.removeprefix(f"{key}: "), hint=result.hint))

    def _results(self, keys: Iterable[str]) -> Iterator[tuple[str, RefEntry | DataError]]:
        rest = iter(keys)
        first = list(islice(rest, 2))
        if len(first) < 2:
            yield from ((key, self.read_or_error(key)) for key in first)
            return
        with ThreadPoolExecutor(_READERS) as pool:
            batch = [*first, *islice(rest, _BATCH)]
            # In batches, so that a caller who stops early does not wait for all of them.
            while batch:
                # Some to each thread at a time: handing over a key costs more than parsing its entry.
                size = -(-len(batch) // (4 * _READERS))
                parts = [batch[start : start + size] for start in range(0, len(batch), size)]
                yield from zip(batch, chain.from_iterable(pool.map(self._read_some, parts)), strict=True)
                batch = list(islice(rest, _BATCH))

    def _read_some(self, keys: list[str]) -> list[RefEntry | DataError]:
        return [self.read_or_error(key) for key in keys]

    def _repair(self, key: str) -> str:
        return f"restore it from a copy, or return to the entry before it: {removal(self._store.url, key)}"
