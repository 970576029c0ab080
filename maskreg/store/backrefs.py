"""Back references: beside each artifact's digest, which entries of the ref log name it.

Garbage collection knows by a listing of the log what has a name. A listing that lacks a tag (a cache, a proxy, a lost
page) would make its artifact garbage. So a writer leaves a trace under the artifact's digest first::

    put     names/sha256/<hex>/<20-digit n>-<hash of the tag>.json     entry n of the tag names the artifact
    create  refs/<project>/<name>/<tag>/<20-digit n>.json              the entry

Garbage collection checks each back reference of an artifact before it deletes it::

    the listing of the log shows entry n of that tag     it was read, and the tag has moved on since: fine
    it does not, and reading entry n finds it            the listing is wrong
    it does not, and reading entry n finds nothing       the writer died in between, or is about to write it: fine

They are deleted together with the artifact. A missing one is no damage of the tag: it only takes away this check.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.errors import BadRefError, CorruptError, DataError
from maskreg.ref import Ref
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.entry import RefEntry

NAMES = "names/sha256/"
"""Prefix of all back references."""

_SCHEMA = "maskreg.back-reference/1"
_KEY = re.compile(re.escape(NAMES) + r"([0-9a-f]{64})/([0-9]{20})-([0-9a-f]{32})\.json")
_MAX_BYTES = 16 << 10


@dataclass(frozen=True)
class BackReference:
    """One back reference, as its key tells it.

    Attributes:
        info: the stored object.
        digest: the artifact.
        n: number of the entry that names it.
        tag: hash of the entry's tag; see :func:`tag_hash`.
    """

    info: ObjectInfo
    digest: Digest
    n: int
    tag: str

    @classmethod
    def of(cls, info: ObjectInfo) -> BackReference | None:
        """Parse a key; None when it is none of a back reference."""
        match = _KEY.fullmatch(info.key)
        return cls(info, Digest(f"sha256:{match[1]}"), int(match[2]), match[3]) if match else None

    def read(self, store: Store) -> Ref:
        """The tag, from the object."""
        return self.parse(store.get(self.info.key, max_bytes=_MAX_BYTES))

    def parse(self, data: bytes) -> Ref:
        """The tag, from the object's bytes."""
        key = self.info.key
        hint = "it guards its artifact against a wrong listing; gc keeps the artifact until the object is removed"
        try:
            row = parse_sealed(data, key, schema=_SCHEMA, max_bytes=_MAX_BYTES)
            ref = Ref.parse(f"{row.get('project')}/{row.get('name')}:{row.get('tag')}")
        except (DataError, BadRefError) as error:
            raise CorruptError(key, "not a back reference", hint=hint) from error
        if _document(ref, self.n) != data or tag_hash(ref) != self.tag:
            raise CorruptError(key, "its bytes do not match its key and seal", hint=hint)
        return ref


def tag_hash(ref: Ref) -> str:
    """Hash of a tag: tags are longer than keys may be."""
    return hashlib.sha256(ref.path.encode()).hexdigest()[:32]


def back_reference_key(digest: Digest, ref: Ref, n: int) -> str:
    """Key of the back reference that says that entry ``n`` of a tag names an artifact."""
    return f"{NAMES}{digest.hex}/{n:020d}-{tag_hash(ref)}.json"


def put_back_reference(store: Store, entry: RefEntry) -> None:
    """Write the back reference of an entry that is about to be created; a deletion has none."""
    if entry.digest is not None:
        store.put(back_reference_key(entry.digest, entry.ref, entry.n), _document(entry.ref, entry.n))


class Named(NamedTuple):
    """The latest entry of a tag, as far as it names an artifact."""

    digest: Digest
    ref: Ref
    n: int


def without_back_reference(store: Store, named: Iterable[Named]) -> Iterator[Named]:
    """Those that have no back reference: gc cannot check their artifacts twice."""
    listing = (info.key for info in store.list(NAMES))
    present = next(listing, None)
    for _, group in groupby(named, lambda each: each.digest):
        keys = {back_reference_key(*each): each for each in group}
        for key in sorted(keys):
            while present is not None and present < key:
                present = next(listing, None)
            if present != key and store.head(key) is None:
                yield keys[key]


def _document(ref: Ref, n: int) -> bytes:
    return sealed({"schema": _SCHEMA, "project": ref.project, "name": ref.name, "tag": ref.tag, "n": n})
