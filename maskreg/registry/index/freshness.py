"""Whether a catalog is as far as the ref log, tag by tag, from one listing of keys.

::

    number of a tag's latest entry    in the log   in the catalog
    the same                               4             4          nothing to do
    the catalog is behind                  4             3, none    a writer died, or could not reach it: index entry 4
    the log is behind                  3, none           4          entry 4 was lost, or an older copy put back: damage

The catalog is an index, so it follows the log. But that it knows an entry which the log has no more is how the loss
of the latest entry of a tag, or of all of them, shows: what is left of the log looks sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maskreg.catalog import Searchable
from maskreg.errors import CorruptError, DataError
from maskreg.ref import Ref
from maskreg.store.entry import entry_key
from maskreg.store.reflog import RefEntry


def behind(log: Mapping[Ref, int], catalog: Mapping[Ref, int]) -> list[Ref]:
    """Tags of which the log has entries that the catalog does not know, in the order of their names."""
    return sorted((ref for ref, n in log.items() if n > catalog.get(ref, 0)), key=str)


def lost(
    log: Mapping[Ref, int],
    known: Mapping[Ref, int],
    memory: str = "is in the catalog",
    seen_on: str | None = None,
) -> dict[Ref, CorruptError]:
    """Tags of which an entry is known that the log has no more, and the damage.

    Args:
        log: number of the latest entry of each tag in the store.
        known: the same in the catalog, or in what this machine remembers.
        memory: how the entry is known, for the message.
        seen_on: name of the remote where this machine has seen the entries; None for entries of the catalog.
    """
    return {
        ref: CorruptError(
            entry_key(ref, n),
            f"entry {n} of {ref} {memory}, and is missing from the store"
            + (f", whose latest is entry {log[ref]}" if log.get(ref) else ""),
            hint="restore it from a copy; or accept the loss" if seen_on is None else "",
            ref=ref,
            **({"indexed": True} if seen_on is None else {"seen": True, "remote": seen_on}),
        )
        for ref, n in sorted(known.items(), key=lambda item: str(item[0]))
        if n > log.get(ref, 0)
    }


def catch_up(catalog: Searchable, latest: Callable[[Ref], RefEntry | None], tags: list[Ref]) -> bool:
    """Index the latest entries of these tags; whether any was. Those that cannot be read are left as they are.

    Args:
        catalog: the index.
        latest: reads the latest entry of a tag; None when there is none.
        tags: of which the catalog is behind.
    """
    changed = False
    for ref in tags:
        try:
            head = latest(ref)
        except DataError:
            continue
        if head is not None:
            catalog.put_ref(head)
            changed = True
    return changed
