"""A key document: which key signs the tags of a project from now on, and how they stood when it began.

The documents of a project form a chain, as the entries of a tag do. Each is signed by its own key, which shows that
its owner has that key, and by the one before it, which hands over::

    keys/team/1.json    {n: 1, key: K1, previous: null, heads: H1, signatures: {K1}}
    keys/team/2.json    {n: 2, key: K2, previous: id1,  heads: H2, signatures: {K1, K2}}     K1 is replaced

``heads`` is the digest of a list of the latest entry of every tag. So the new key vouches for the tags as they stand,
none has to be written again, and one create-only write replaces the key for all of them at once. Nothing else that the
old key signs, before or later, counts: a thief of that key gains nothing any more.

A *renewal* is the latest document again, with the tags as they stand later, signed by its key alone. It is the one
object here that is replaced::

    keys/team/fresh.json    {n: 2, key: K2, previous: id1, heads: H3, at: later, signatures: {K2}}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from maskreg.digest import Digest, parse_sealed, payload, sealed
from maskreg.document import canonical, parse_object
from maskreg.errors import ConflictError, CorruptError, FormatError, NotFoundError
from maskreg.extras import upgrade_command
from maskreg.limits import LIMITS
from maskreg.signature import SIGNATURES, PublicKey, Signer, is_signed_by, parse_signatures, signed
from maskreg.store.base import Store
from maskreg.store.entry import RefEntry

KEYS = "keys/"
"""Prefix of all key documents."""

MAX_SKEW = timedelta(hours=1)
"""How far the clock of a signer or writer may be from the clock of a reader."""

_FRESH = "/fresh.json"
_KEY = re.compile(re.escape(KEYS) + r"([^/]+)/([0-9]{20})\.json")

_SCHEMA = "maskreg.project-key/1"
_RENEWAL_SCHEMA = "maskreg.freshness/1"
_HEADS_SCHEMA = "maskreg.heads/1"

Heads = Mapping[str, tuple[int, str]]
"""Number and id of the latest entry of each tag, by ``project/name/tag``."""


@dataclass(frozen=True)
class KeyDocument:
    """One key of a project.

    Attributes:
        registry: uuid of the registry.
        project: whose tags it signs.
        n: number of this document, from 1 on.
        key: the public key.
        previous: id of the document before this one; None for number 1, and only then.
        heads: digest of the list of the project's latest entries, for which the key vouches.
        fresh_s: how long the document, or its latest renewal, is good for, in seconds; 0 for ever.
        by: who wrote the document.
        at: when, by the writer's clock (aware, UTC).
        signatures: by public key; :meth:`is_signed_by` says whether they are valid.
        renews: it is a renewal.
    """

    registry: str
    project: str
    n: int
    key: PublicKey
    previous: Digest | None
    heads: Digest
    fresh_s: int
    by: str
    at: datetime
    signatures: Mapping[PublicKey, str]
    renews: bool = False

    @cached_property
    def id(self) -> Digest:
        """The sha256 of the payload; it names the document, and all before it."""
        return Digest.of(payload(self._row()))

    def signed(self, *signers: Signer) -> KeyDocument:
        """The document with their signatures."""
        row: Any = signed(self._row(), *signers)
        return replace(self, signatures=row[SIGNATURES])

    def renewed(self, heads: Digest, by: str, at: datetime, signer: Signer) -> KeyDocument:
        """A renewal of it."""
        return replace(self, heads=heads, by=by, at=at, signatures={}, renews=True).signed(signer)

    def is_renewal_of(self, document: KeyDocument) -> bool:
        """Whether it is a renewal of a document."""
        same = replace(self, heads=document.heads, by=document.by, at=document.at, signatures={}, renews=False)
        return self.renews and same == replace(document, signatures={})

    @property
    def expires(self) -> datetime:
        """Until when it is good for, where ``fresh_s`` is not 0."""
        return self.at + timedelta(seconds=self.fresh_s)

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether it carries a valid signature by a key."""
        return is_signed_by(self._row(), key)

    def follows(self, before: KeyDocument) -> bool:
        """Whether it is the one after ``before``, and the key before hands over to it."""
        return self.previous == before.id and self.is_signed_by(before.key)

    def to_bytes(self) -> bytes:
        """Canonical bytes, sealed."""
        return sealed(self._row())

    def _row(self) -> dict[str, object]:
        return {
            "schema": _RENEWAL_SCHEMA if self.renews else _SCHEMA,
            "registry": self.registry,
            "project": self.project,
            "n": self.n,
            "key": self.key,
            "previous": self.previous,
            "heads": self.heads,
            "fresh_s": self.fresh_s,
            "by": self.by,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            SIGNATURES: dict(self.signatures),
        }

    @classmethod
    def parse(cls, key: str, data: bytes) -> KeyDocument:
        """Parse a stored document; whether the key before hands over to it is for the caller to check."""
        renews = key.endswith(_FRESH)
        schema = _RENEWAL_SCHEMA if renews else _SCHEMA
        row = parse_sealed(data, key, schema=schema, max_bytes=LIMITS.ref_bytes)
        try:
            document = cls(
                *(str(row["registry"]), str(row["project"]), row["n"], PublicKey(row["key"])),
                previous=None if row["previous"] is None else Digest(row["previous"]),
                heads=Digest(row["heads"]),
                fresh_s=row["fresh_s"],
                by=str(row["by"]),
                at=datetime.fromisoformat(row["at"]).astimezone(UTC),
                signatures=parse_signatures(row, key),
                renews=renews,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{key}: not a key document ({error})") from error
        numbers = type(document.n) is int and type(document.fresh_s) is int and document.fresh_s >= 0
        # Also what this version would write in another way, or does not know.
        if not numbers or not document.by.isprintable() or document.to_bytes() != data:
            raise FormatError(f"{key}: not a key document of this version", hint=upgrade_command())
        if key != (fresh_key(document.project) if renews else document_key(document.project, document.n)):
            raise CorruptError(key, f"the document inside is number {document.n} of {document.project}")
        if (document.previous is None) is not (document.n == 1):
            raise FormatError(f"{key}: every document but the first names the one before it")
        if not document.is_signed_by(document.key):
            raise CorruptError(key, f"it is not signed by the key that it names, {document.key.short}")
        return document


def document_key(project: str, n: int) -> str:
    """The store's key of document ``n`` of a project."""
    return f"{KEYS}{project}/{n:020d}.json"


def heads_prefix(project: str) -> str:
    """The prefix of a project's lists of latest entries."""
    return f"{KEYS}{project}/heads/"


def heads_key(project: str, digest: Digest) -> str:
    """The store's key of a list of latest entries."""
    return f"{heads_prefix(project)}{digest.hex}.json"


def fresh_key(project: str) -> str:
    """The store's key of the latest renewal in a project."""
    return f"{KEYS}{project}{_FRESH}"


def heads_of(entries: Iterable[RefEntry]) -> Heads:
    """The list of these entries."""
    return {entry.ref.path: (entry.n, entry.id) for entry in entries}


def heads_bytes(registry: str, project: str, heads: Heads) -> bytes:
    """A list of latest entries as it is stored; its digest names it."""
    rows = {path: list(head) for path, head in heads.items()}
    return canonical({"schema": _HEADS_SCHEMA, "registry": registry, "project": project, "heads": rows})


def parse_heads(key: str, data: bytes, digest: Digest) -> Heads:
    """Parse a list of latest entries."""
    if Digest.of(data) != digest:
        raise CorruptError(key, f"its digest is not {digest.short}, as the signed document says")
    row = parse_object(data, key, max_bytes=LIMITS.heads_bytes, max_values=LIMITS.heads_values)
    try:
        if row["schema"] != _HEADS_SCHEMA:
            raise ValueError(f"schema {row['schema']!r}")
        return {str(path): (int(n), str(Digest(entry))) for path, (n, entry) in row["heads"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{key}: not a list of latest entries ({error})") from error


class KeyLog:
    """The key documents of a registry.

    Args:
        store: where they are.
        create: writes an object unless there is one; the store's own by default.
    """

    def __init__(self, store: Store, *, create: Callable[[str, bytes], bool] | None = None) -> None:
        self._store = store
        self._create = create or store.create

    def numbers(self) -> dict[str, int]:
        """Number of the latest document of each project that has one; lists keys and reads no document."""
        numbers: dict[str, int] = {}
        for info in self._store.list(KEYS):
            if match := _KEY.fullmatch(info.key):
                numbers[match[1]] = max(int(match[2]), numbers.get(match[1], 0))
        return numbers

    def read(self, project: str, n: int) -> KeyDocument | None:
        """Document ``n`` of a project, read directly; None when there is none."""
        key = document_key(project, n)
        try:
            return KeyDocument.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except NotFoundError:
            return None

    def create(self, document: KeyDocument) -> None:
        """Write the next document of a project."""
        self._create(document_key(document.project, document.n), document.to_bytes())
        # The answer may be lost, or another writer have been first: what is stored counts.
        stored = self.read(document.project, document.n)
        if stored is None or stored.id != document.id:
            winner = f"{stored.by} gave it {stored.key.short}" if stored else "it is not there"
            raise ConflictError(f"key {document.n} of {document.project} was not written: {winner}")

    def heads(self, document: KeyDocument) -> Heads:
        """The latest entries that a document vouches for."""
        return self.read_heads(document.project, document.heads)

    def read_heads(self, project: str, digest: Digest) -> Heads:
        """A list of latest entries; what is raised is as for :meth:`heads`."""
        key = heads_key(project, digest)
        try:
            data = self._store.get(key, max_bytes=LIMITS.heads_bytes)
        except NotFoundError as error:
            raise CorruptError(key, "this list is missing, and a signed document names it") from error
        return parse_heads(key, data, digest)

    def put_heads(self, registry: str, project: str, heads: Heads) -> Digest:
        """Write a list of latest entries; returns its digest."""
        data = heads_bytes(registry, project, heads)
        digest = Digest.of(data)
        self._store.create(heads_key(project, digest), data)
        return digest

    def drop_heads(self, project: str, *, keep: Collection[Digest]) -> None:
        """Delete the lists of latest entries that nothing names any more."""
        kept = {heads_key(project, digest) for digest in keep}
        self._store.delete([info.key for info in list(self._store.list(heads_prefix(project))) if info.key not in kept])

    def renewal(self, project: str) -> bytes | None:
        """The latest renewal in a project, as it is stored; None when there is none."""
        try:
            return self._store.get(fresh_key(project), max_bytes=LIMITS.ref_bytes)
        except NotFoundError:
            return None

    def put_renewal(self, project: str, data: bytes) -> None:
        """Write a renewal in the place of the one before."""
        self._store.put(fresh_key(project), data)
