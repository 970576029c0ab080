"""Keeping an index of many tags up to date by the journal of the store, where listing every tag takes too long.

::

    position    the generation of the journal up to which the index took in what moved, which it keeps itself
    start       the latest whole generation, where it may go on the next time
    changes     tags that moved in the generations since its position; of a generation that is gone, all tags
    catch up    read the latest entry of those that the index does not know, and of what they point to the manifest
    advance     begin another generation when there are many changes
    follow      the position is ``start`` now

Of a small registry nothing of this happens: its tags are listed at each search, and compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from maskreg.catalog import Catalog
from maskreg.errors import DataError, NotAllowedError
from maskreg.ref import Ref
from maskreg.registry.index.manifests import readable_manifests
from maskreg.store.base import Store
from maskreg.store.entry import RefEntry
from maskreg.store.journal import LONG, lagging
from maskreg.store.reflog import RefLog

_BATCH = 1_000


def follow(catalog: Catalog, log: RefLog, store: Store) -> bool:
    """Take into the index what moved since it was last followed; whether anything did.

    Args:
        catalog: the index.
        log: the log that it is an index of.
        store: where that and the artifacts are.
    """
    position = catalog.followed()
    start = log.journal.start()
    changes = None if position is None else log.journal.since(position)
    changed = False
    for batch in _batches(log.each_number() if changes is None else changes.items()):
        known = catalog.numbers(batch)
        for ref in lagging(batch, known):
            with suppress(DataError):  # verify says what is wrong with it
                changed = _take_in(catalog, store, log.head(ref)) or changed
    if start != position:
        catalog.follow(start)
    if changes is not None and len(changes) >= LONG:
        known = catalog.numbers(changes)
        with suppress(NotAllowedError):  # whoever may not write leaves it to who may
            log.journal.advance(lambda ref, n: known.get(ref, 0) >= n or log.has(ref, n))
    return changed


def _take_in(catalog: Catalog, store: Store, head: RefEntry | None) -> bool:
    if head is None:
        return False
    if head.digest is not None and catalog.get(head.digest) is None:
        for digest, manifest in readable_manifests(store, [head.digest], []):
            catalog.put_artifact(digest, manifest)
    catalog.put_ref(head)
    return True


def _batches(numbers: Iterable[tuple[Ref, int]]) -> Iterator[dict[Ref, int]]:
    rest = iter(numbers)
    while batch := dict(islice(rest, _BATCH)):
        yield batch
