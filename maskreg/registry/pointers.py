"""Which tags ever pointed to an artifact, by its back references, the entries that they speak of, and the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.store.backrefs import NAMES, BackReference


def ever_named(registry: Registry, digest: Digest) -> Iterator[Ref]:
    """Tags of which some entry names an artifact, whether they do now or not; a tag may come several times.

    A back reference alone proves nothing: it is written before its entry, which may never follow. What is damaged
    proves nothing either. Where back references are missing, as in a store that was restored without them, the catalog
    knows the tags that point to it now.
    """
    for info in registry.store.list(f"{NAMES}{digest.hex}/"):
        back = BackReference.of(info)
        if back is None:
            continue
        with suppress(DataError, NotFoundError):
            ref = back.read(registry.store)
            entry = registry.refs.peek(ref, back.n)
            if entry is not None and entry.digest == digest:
                yield ref
    yield from (row.ref for row in registry.page(Query(digest=digest)))
