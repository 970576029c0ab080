"""One entry of the ref log: its content, its canonical bytes, and the checks when it is read.

Entries form a chain. The *payload* of an entry is its canonical bytes without the seal; the seal is the sha256 of the
payload, and also the entry's id. Each entry holds the id of the one before it::

    1.json  {n: 1, previous: null,  digest: A, ..., seal: id1}      id1 = sha256 of the rest
    2.json  {n: 2, previous: id1,   digest: B, ..., seal: id2}

So a reader that remembers id2 has fixed everything up to entry 2: entry 1 cannot be edited, not even with a fresh seal,
without entry 2 showing it.

Where the project has a key (:mod:`maskreg.registry.trust`), an entry also names its registry and is signed
(:mod:`maskreg.signature`). The signature is part of the payload: one create-only write stores both, and ``previous``
fixes who signed the entry before. The signature itself is over the rest of the payload, ``previous`` included, so a
signed entry vouches for everything before it.

**Back references**: beside each artifact's digest, which entries of the ref log name it.

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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from maskreg.digest import Digest, parse_sealed, payload, sealed
from maskreg.document import parse_object
from maskreg.errors import BadRefError, CorruptError, DataError, FormatError
from maskreg.limits import LIMITS
from maskreg.ref import Card, Ref
from maskreg.signature import SIGNATURES, PrivateKey, PublicKey, is_signed_by, parse_signatures, signed
from maskreg.store.base import ObjectInfo, Store

SCHEMA = "maskreg.ref-entry/1"
REFS = "refs/"
_MAX_TEXT_CHARS = 1_024


@dataclass(frozen=True)
class RefEntry:
    """One change of a tag, with the fields of ``docs/refs.md``, section 1.

    Attributes:
        digest: what the tag points to; None when it was deleted.
        write_id: random, so that a writer recognizes its own entry after a lost answer.
        origin: uuid of the registry that it was pulled from; empty when made locally.
        previous: id of the entry before this one; None for number 1, and only then.
        removed: what a deleted tag pointed to until then; None while the tag is set.
        registry: uuid of the registry, in an entry that is signed; empty in another.
        signer: public key of the signer; None without a signature. :meth:`is_signed_by` says whether that is so.
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
    previous: Digest | None = None
    removed: Digest | None = None
    immutable: bool = False
    registry: str = ""
    signer: PublicKey | None = None
    signature: str = ""
    _stored: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def ref(self) -> Ref:
        """The tag, not pinned."""
        return Ref(self.project, self.name, self.tag)

    @property
    def key(self) -> str:
        """The store's key of the entry."""
        return entry_key(self.ref, self.n)

    @property
    def last_digest(self) -> Digest | None:
        """What the tag points to, or pointed to until it was deleted."""
        return self.digest or self.removed

    @cached_property
    def id(self) -> Digest:
        """The sha256 of the payload; it names the entry, and everything before it."""
        return Digest.of(self.payload())

    def is_equivalent(self, entry: RefEntry) -> bool:
        """Whether both leave the tag in the same state; writer and time do not count."""
        mine = (self.digest, self.deleted, self.card, self.immutable)
        return mine == (entry.digest, entry.deleted, entry.card, entry.immutable)

    def signed(self, signer: PrivateKey, registry: str) -> RefEntry:
        """The entry as ``signer`` signs it for the registry of that uuid."""
        entry = replace(self, registry=registry, signer=None, signature="")
        row = signed(entry._row() | {"registry": registry}, signer)
        return replace(entry, signer=signer.key, signature=row[SIGNATURES][signer.key])  # type: ignore[index]

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether it carries a valid signature by a key; the registry that it is for is another question."""
        return is_signed_by(self._row(), key)

    def payload(self) -> bytes:
        """Canonical bytes of all fields but the seal: what the id is over.

        Of an entry that was read these can hold fields of a later version.
        """
        return payload(self._row())

    def to_bytes(self) -> bytes:
        """Canonical bytes, sealed with the digest of the payload; of an entry that was read, as it is stored."""
        return self._stored or sealed(self._row())

    def _row(self) -> dict[str, object]:
        if self._stored:
            return parse_object(self._stored, self.key, max_bytes=LIMITS.ref_bytes)
        row: dict[str, object] = {
            "schema": SCHEMA,
            "n": self.n,
            "project": self.project,
            "name": self.name,
            "tag": self.tag,
            "previous": self.previous,
            "digest": self.digest,
            "deleted": self.deleted,
            "removed": self.removed,
            "immutable": self.immutable,
            "card": self.card.to_json(),
            "by": self.by,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "write_id": self.write_id,
            "origin": self.origin,
        }
        if self.signer is not None:
            row |= {"registry": self.registry, SIGNATURES: {self.signer: self.signature}}
        return row

    @classmethod
    def parse(cls, key: str, data: bytes) -> RefEntry:
        """Parse and check a stored entry; unknown fields are ignored, but its id covers them."""
        row = parse_sealed(data, key, schema=SCHEMA, max_bytes=LIMITS.ref_bytes)
        signatures = parse_signatures(row, key)
        try:
            names = ("project", "name", "tag", "by", "write_id", "origin", *(["registry"] if signatures else []))
            texts: dict[str, Any] = {name: _text(row, name) for name in names}
            ref, n = Ref(texts["project"], texts["name"], texts["tag"]), row.get("n")
            if type(n) is not int or entry_key(ref, n) != key or not 1 <= n <= LIMITS.ref_entries:
                raise CorruptError(key, f"the entry inside is number {n!r} of {ref.path}")
            if Ref.parse(f"{ref.project}/{ref.name}:{ref.tag}") != ref:
                raise ValueError(f"{ref.path} is not the path of a tag")
            links: dict[str, Any] = {name: _digest(row, name) for name in ("digest", "previous", "removed")}
            entry = cls(
                **texts,
                **links,
                n=n,
                deleted=links["digest"] is None,
                card=Card.from_json(row.get("card")),
                at=_time(_text(row, "at")),
                immutable=row.get("immutable"),  # type: ignore[arg-type]  # checked below
            )
        except CorruptError:
            raise
        except (ValueError, OverflowError) as error:
            raise FormatError(f"{key}: {error}") from error
        if row.get("deleted") is not entry.deleted or entry.deleted is not (entry.removed is not None):
            raise FormatError(f"{key}: an entry has either a digest or the mark of a deletion and what was removed")
        if (entry.previous is None) is not (n == 1):
            raise FormatError(f"{key}: every entry but the first names the one before it")
        if type(entry.immutable) is not bool:
            raise FormatError(f"{key}: immutable is neither true nor false")
        if len(signatures) > 1:
            raise FormatError(f"{key}: an entry has one signature")
        for signer, signature in signatures.items():
            entry = replace(entry, signer=signer, signature=signature)
        object.__setattr__(entry, "_stored", data)
        return entry


def entry_key(ref: Ref, n: int) -> str:
    """The store's key of entry ``n`` of a tag."""
    return numbered(f"{REFS}{ref.path}", n)


def numbered(folder: str, n: int) -> str:
    """The key of entry ``n`` in a tag's folder."""
    return f"{folder}/{n:020d}.json"


def ref_of(key: str) -> Ref:
    """The tag in whose folder an object lies."""
    project, name, tag, *_ = key.removeprefix(REFS).split("/", 3)
    return Ref(project, name, tag)


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    # Printed verbatim, so no control characters.
    if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARS or not value.isprintable():
        raise ValueError(f"{name} is not printable text of up to {_MAX_TEXT_CHARS} characters")
    return value


def _digest(row: dict[str, Any], name: str) -> Digest | None:
    value = row.get(name)
    return None if value is None else Digest(str(value))


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return at.astimezone(UTC)


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
    """Hash of a tag: tags are longer than keys can be."""
    return hashlib.sha256(ref.path.encode()).hexdigest()[:32]


def back_reference_key(digest: Digest, ref: Ref, n: int) -> str:
    """Key of the back reference that says that entry ``n`` of a tag names an artifact."""
    return f"{NAMES}{digest.hex}/{n:020d}-{tag_hash(ref)}.json"


def put_back_reference(store: Store, entry: RefEntry) -> None:
    """Write the back reference of an entry that is about to be created; a deletion has none."""
    if entry.digest is not None:
        store.put(back_reference_key(entry.digest, entry.ref, entry.n), _document(entry.ref, entry.n))


def _document(ref: Ref, n: int) -> bytes:
    return sealed({"schema": _SCHEMA, "project": ref.project, "name": ref.name, "tag": ref.tag, "n": n})
