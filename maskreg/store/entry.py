"""One entry of the ref log: its content, its canonical bytes, and the checks when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from maskreg.digest import Digest
from maskreg.document import canonical, parse_object
from maskreg.errors import CorruptError, FormatError
from maskreg.limits import LIMITS
from maskreg.ref import Card, Ref

SCHEMA = "maskreg.ref-entry/1"
REFS = "refs/"
SEAL = "seal"
"""Key of the sha256 over the canonical bytes of all other keys."""
_MAX_TEXT_CHARS = 1_024


@dataclass(frozen=True)
class RefEntry:
    """One change of a tag.

    Attributes:
        project: namespace of the ref.
        name: the artifact's name.
        tag: the tag.
        n: number of this entry, from 1 on.
        digest: what the tag points to; None when it was deleted.
        deleted: whether the tag was deleted; the digest is then None, and only then.
        card: what people say about the artifact.
        by: who wrote the entry.
        at: when, by the writer's clock (aware, UTC).
        write_id: random, so that a writer recognizes its own entry after a lost answer.
        origin: uuid of the registry that it was pulled from; empty when made locally.
    """

    project: str
    name: str
    tag: str
    n: int
    digest: Digest | None
    deleted: bool
    card: Card
    by: str
    at: datetime
    write_id: str
    origin: str = ""

    @property
    def ref(self) -> Ref:
        """The tag, not pinned."""
        return Ref(self.project, self.name, self.tag)

    @property
    def key(self) -> str:
        """The store's key of the entry."""
        return entry_key(self.ref, self.n)

    def is_equivalent(self, entry: RefEntry) -> bool:
        """Whether both leave the tag in the same state; writer and time do not count."""
        return (self.digest, self.deleted, self.card) == (entry.digest, entry.deleted, entry.card)

    def to_bytes(self) -> bytes:
        """Canonical bytes, sealed with the digest of all other fields."""
        row = {
            "schema": SCHEMA,
            "n": self.n,
            "project": self.project,
            "name": self.name,
            "tag": self.tag,
            "digest": self.digest,
            "deleted": self.deleted,
            "card": self.card.to_json(),
            "by": self.by,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "write_id": self.write_id,
            "origin": self.origin,
        }
        return sealed(row)

    @classmethod
    def parse(cls, key: str, data: bytes) -> RefEntry:
        """Parse and check a stored entry; unknown fields are ignored.

        Raises:
            CorruptError: its bytes do not match its seal, or it belongs to another key.
            FormatError, LimitError: not an entry, or one of an unknown version.
        """
        row = parse_object(data, key, max_bytes=LIMITS.ref_bytes)
        if sealed(row) != data:
            raise CorruptError(key, "its bytes do not match its seal")
        if row.get("schema") != SCHEMA:
            raise FormatError(f"{key}: unknown schema {row.get('schema')!r}", hint="pip install --upgrade maskreg")
        project, name, tag = _text(key, row, "project"), _text(key, row, "name"), _text(key, row, "tag")
        n = row.get("n")
        if type(n) is not int or entry_key(Ref(project, name, tag), n) != key:
            raise CorruptError(key, f"the entry inside is number {n!r} of {project}/{name}:{tag}")
        digest = _digest(key, row)
        if row.get("deleted") is not (digest is None):
            raise FormatError(f"{key}: an entry has either a digest or the mark of a deletion")
        return cls(
            *(project, name, tag, n, digest, digest is None, _card(key, row)),
            by=_text(key, row, "by"),
            at=_time(key, row),
            write_id=_text(key, row, "write_id"),
            origin=_text(key, row, "origin"),
        )


def entry_key(ref: Ref, n: int) -> str:
    """The store's key of entry ``n`` of a tag."""
    return f"{REFS}{ref.path}/{n:020d}.json"


def ref_of(key: str) -> Ref:
    """The tag of an entry's key."""
    project, name, tag, _ = key.removeprefix(REFS).split("/")
    return Ref(project, name, tag)


def sealed(row: Mapping[str, object], name: str = SEAL) -> bytes:
    """Canonical bytes of a document with the digest of its content, so that damage shows without a manifest.

    Args:
        row: the document; a seal in it is replaced.
        name: the key of the seal.
    """
    bare = {key: value for key, value in row.items() if key != name}
    return canonical({**bare, name: Digest.of(canonical(bare))})


def _text(key: str, row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    # Printed verbatim, so no control characters.
    if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARS or not value.isprintable():
        raise FormatError(f"{key}: {name} is not printable text of up to {_MAX_TEXT_CHARS} characters")
    return value


def _digest(key: str, row: dict[str, Any]) -> Digest | None:
    value = row.get("digest")
    if value is None:
        return None
    try:
        return Digest(str(value))
    except ValueError as error:
        raise FormatError(f"{key}: {error}") from error


def _card(key: str, row: dict[str, Any]) -> Card:
    try:
        card = Card.from_json(row.get("card"))
        # JSON can hold lone surrogates, which no terminal and no file accepts.
        canonical(card.to_json())
    except ValueError as error:
        raise FormatError(f"{key}: {error}") from error
    return card


def _time(key: str, row: dict[str, Any]) -> datetime:
    text = _text(key, row, "at")
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("no time zone")
        return at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{key}: {text!r} is not a time") from error
