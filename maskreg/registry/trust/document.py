"""A key document: which key signs the tags of a project from now on, and how they stood when it began.

The documents of a project form a chain, as the entries of a tag do. Each is signed by its own key, which shows that
somebody has that key, and by the one before it, which hands over::

    keys/team/1.json    {n: 1, key: K1, previous: null, heads: H1, signatures: {K1}}
    keys/team/2.json    {n: 2, key: K2, previous: id1,  heads: H2, signatures: {K1, K2}}     K1 is replaced

``heads`` is the digest of a list of the latest entry of every tag. So the new key vouches for the tags as they stand,
none has to be written again, and one create-only write replaces the key for all of them at once. Whatever else the
old key signs, before or later, counts for nothing: who has stolen it gains nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from maskreg.digest import Digest, parse_sealed, payload, sealed
from maskreg.document import canonical, parse_object
from maskreg.errors import CorruptError, FormatError
from maskreg.extras import upgrade_command
from maskreg.limits import LIMITS
from maskreg.signature import SIGNATURES, PublicKey, Signer, is_signed_by, parse_signatures, signed
from maskreg.store.entry import RefEntry

KEYS = "keys/"
"""Prefix of all key documents."""

_SCHEMA = "maskreg.project-key/1"
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
        fresh_s: how long a statement of freshness is good for, in seconds; 0 where none is needed.
        by: who wrote the document.
        at: when, by the writer's clock (aware, UTC).
        signatures: by public key; :meth:`is_signed_by` says whether they are valid.
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

    @cached_property
    def id(self) -> Digest:
        """The sha256 of the payload; it names the document, and all before it."""
        return Digest.of(payload(self._row()))

    def signed(self, *signers: Signer) -> KeyDocument:
        """The document with their signatures."""
        row: Any = signed(self._row(), *signers)
        return replace(self, signatures=row[SIGNATURES])

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
            "schema": _SCHEMA,
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
        """Parse a stored document; whether the key before hands over to it is for the caller to check.

        Raises:
            CorruptError: its bytes do not match its seal, it belongs to another key of the store, or its own key has
                not signed it.
            FormatError, LimitError: not a key document of this version.
            ConfigError: the package ``cryptography`` is not installed.
        """
        row = parse_sealed(data, key, schema=_SCHEMA, max_bytes=LIMITS.ref_bytes)
        try:
            document = cls(
                *(str(row["registry"]), str(row["project"]), row["n"], PublicKey(row["key"])),
                previous=None if row["previous"] is None else Digest(row["previous"]),
                heads=Digest(row["heads"]),
                fresh_s=row["fresh_s"],
                by=str(row["by"]),
                at=datetime.fromisoformat(row["at"]).astimezone(UTC),
                signatures=parse_signatures(row, key),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{key}: not a key document ({error})") from error
        numbers = type(document.n) is int and type(document.fresh_s) is int and document.fresh_s >= 0
        # Also what this version would write in another way, or does not know.
        if not numbers or not document.by.isprintable() or document.to_bytes() != data:
            raise FormatError(f"{key}: not a key document of this version", hint=upgrade_command())
        if key != document_key(document.project, document.n):
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
    """The store's key of a project's statement of freshness."""
    return f"{KEYS}{project}/fresh.json"


def heads_of(entries: Iterable[RefEntry]) -> Heads:
    """The list of these entries."""
    return {entry.ref.path: (entry.n, entry.id) for entry in entries}


def heads_bytes(registry: str, project: str, heads: Heads) -> bytes:
    """A list of latest entries as it is stored; its digest names it."""
    rows = {path: list(head) for path, head in heads.items()}
    return canonical({"schema": _HEADS_SCHEMA, "registry": registry, "project": project, "heads": rows})


def parse_heads(key: str, data: bytes, digest: Digest) -> Heads:
    """Parse a list of latest entries.

    Raises:
        CorruptError: it has another digest.
        FormatError, LimitError: not such a list.
    """
    if Digest.of(data) != digest:
        raise CorruptError(key, f"its digest is not {digest.short}, as the signed document says")
    row = parse_object(data, key, max_bytes=LIMITS.heads_bytes, max_values=LIMITS.heads_values)
    try:
        if row["schema"] != _HEADS_SCHEMA:
            raise ValueError(f"schema {row['schema']!r}")
        return {str(path): (int(n), str(Digest(entry))) for path, (n, entry) in row["heads"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{key}: not a list of latest entries ({error})") from error
