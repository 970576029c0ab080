"""Renaming a tag, in two steps of which the second is made up for when the first was the last.

A rename is an entry in each of two logs, which no store writes together. A record says what is meant::

    write  moves/<id>.json          old, new, the artifact, and the entry of the old name
    append new -> artifact          (1)
    append old removed              (2)
    delete moves/<id>.json

The record is in the caller's local registry, also where the names are a remote's. Until then both names are
there. The next rename in that registry by the same machine finishes what a killed process left; until it does, ``list``
and ``doctor`` say so of a local one::

    killed before (1)               the new name is not at the artifact: forget the record
    killed between (1) and (2)      both names are: remove the old one, as was meant
    killed after (2)                the old name has moved on: forget the record
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import is_alive
from maskreg.errors import DataError, MaskregError, NotFoundError, UnavailableError, prefixed
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.registry import tags
from maskreg.registry.registry import Registry
from maskreg.store.base import Store
from maskreg.store.entry import RefEntry

MOVES = "moves/"
"""Prefix of the records in a local registry."""

_SCHEMA = "maskreg.move/1"

# Records of this process's own renames. A process number alone does not tell: a killed one may have had the same.
_live: set[str] = set()


@dataclass(frozen=True)
class Unfinished:
    """A rename that was interrupted between its two steps: both names point to the artifact.

    Attributes:
        old: the name that is still to be removed.
        new: the name that it has too.
        digest: the artifact.
        key: of the record.
        registry: uuid of the registry that has both names.
    """

    old: Ref
    new: Ref
    digest: Digest
    key: str
    registry: str

    @property
    def sentence(self) -> str:
        """What is the matter, for people."""
        return f"the rename of {self.old} to {self.new} was interrupted: both name {self.digest.short}"


def rename(
    registry: Registry, entry: RefEntry, new: Ref, after: RefEntry | None, *, records: Store
) -> tuple[RefEntry, RefEntry]:
    """Give the artifact of a tag a new name, with its card, and remove the old one."""
    digest = entry.digest
    assert digest is not None  # it is live
    move = Unfinished(entry.ref, new, digest, f"{MOVES}{uuid.uuid4().hex}.json", registry.uuid)
    with _recorded(records, move, entry.n):
        set_to = registry.publish(
            new, digest, card=entry.card, after=after, origin=entry.origin, immutable=entry.immutable or None
        )
        with prefixed(f"{move.sentence}: "):
            removed = tags.remove(registry, replace(entry.ref, digest=digest))
    return set_to, removed


@contextmanager
def _recorded(records: Store, move: Unfinished, n: int) -> Iterator[None]:
    names = {"old": _spelled(move.old), "new": _spelled(move.new)}
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    _live.add(move.key)
    try:
        where = {"registry": move.registry, "digest": move.digest, "n": n}
        records.put(move.key, sealed({"schema": _SCHEMA, **names, **where, **process}))
        yield
    except UnavailableError:
        # How far it came is unknown; the next run looks.
        raise
    except MaskregError:
        # The reader of the message decides.
        records.delete([move.key])
        raise
    else:
        records.delete([move.key])
    finally:
        _live.discard(move.key)


def unfinished(registry: Registry, records: Store) -> Iterator[Unfinished]:
    """Renames in a registry that a process of this machine has begun, and can no longer finish; nothing is changed."""
    for row, is_needed in _records(registry, records):
        if is_needed:
            yield row


def finish(registry: Registry, records: Store) -> tuple[Unfinished, ...]:
    """Remove the old names of interrupted renames in a registry.

    Returns:
        What was finished.
    """
    finished = []
    for row, is_needed in list(_records(registry, records)):
        if is_needed:
            tags.remove(registry, replace(row.old, digest=row.digest))
            finished.append(row)
        records.delete([row.key])
    return tuple(finished)


def _records(registry: Registry, records: Store) -> Iterator[tuple[Unfinished, bool]]:
    for info in records.list(MOVES):
        # A record that another run has just deleted, or that is damaged, says nothing.
        with suppress(NotFoundError, DataError):
            data = records.get(info.key, max_bytes=LIMITS.ref_bytes)
            row = parse_sealed(data, info.key, schema=_SCHEMA, max_bytes=LIMITS.ref_bytes)
            if info.key in _live or row["host"] != socket.gethostname() or row["registry"] != registry.uuid:
                continue
            if row["pid"] != os.getpid() and is_alive(row["pid"]):
                continue
            names = Ref.parse(row["old"]), Ref.parse(row["new"])
            move = Unfinished(*names, Digest(row["digest"]), info.key, registry.uuid)
            old, new = registry.head(move.old), registry.head(move.new)
            is_old = old is not None and old.n == row["n"] and old.digest == move.digest
            yield move, is_old and new is not None and new.digest == move.digest


def _spelled(ref: Ref) -> str:
    return f"{ref.project}/{ref.name}:{ref.tag}"
