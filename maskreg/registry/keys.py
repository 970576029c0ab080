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

**What this machine keeps** of keys: pins, the latest key document of each project that it has seen, and private keys.

Pins are in the local registry's store, beside what was seen of tags (:mod:`maskreg.registry.witness`)::

    trusted/<uuid>/<project>/<20-digit n>.json      the document, byte for byte
    trusted/<uuid>/<project>/fresh.json             the newest renewal of it, byte for byte

Documents are created, never replaced, and the highest number counts, so the memory never moves back. Only
:meth:`Pins.replace` does that, when the user says which key to trust from now on.

Private keys are files of their owner alone, outside of everything that a store reads or lists::

    <home>/.private/<64 hex digits of the public key>.pem      PKCS #8, mode 0600, in a folder of mode 0700

``.private`` can be no part of a store's key (:mod:`maskreg.store.base`), so no server that serves the registry in this
folder, and nothing that copies it object by object, can pass a private key on.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from maskreg import errors
from maskreg.digest import Digest, parse_sealed, payload, sealed
from maskreg.disk import replacing
from maskreg.document import canonical, parse_object
from maskreg.extras import upgrade_command
from maskreg.limits import LIMITS
from maskreg.registry.records import UNWRITABLE, Records
from maskreg.signature import SIGNATURES, PrivateKey, PublicKey, is_signed_by, parse_signatures, signed
from maskreg.store.base import PRIVATE, Store
from maskreg.store.chain import removal
from maskreg.store.entry import RefEntry

KEYS = "keys/"
"""Prefix of all key documents."""

MAX_SKEW = timedelta(hours=1)
"""How far the clock of a signer or writer can be from the clock of a reader."""

_FRESH = "/fresh.json"
_KEY = re.compile(re.escape(KEYS) + r"([^/]+)/([0-9]{20})\.json")

_SCHEMA = "maskreg.project-key/1"
_RENEWAL_SCHEMA = "maskreg.freshness/1"
_HEADS_SCHEMA = "maskreg.heads/1"

Heads = Mapping[str, tuple[int, str]]
"""Number and id of the latest entry of each tag, by ``project/name/tag``."""


@dataclass(frozen=True)
class KeyDocument:
    """One key of a project, with the fields of ``docs/refs.md``, section 6; or a renewal where it ``renews``.

    It vouches for the list of latest entries whose digest is ``heads``, and is good for ``fresh_s`` seconds; 0 is for
    ever. Whether its signatures are valid :meth:`is_signed_by` says.
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

    def signed(self, *signers: PrivateKey) -> KeyDocument:
        """The document with their signatures."""
        row: Any = signed(self._row(), *signers)
        return replace(self, signatures=row[SIGNATURES])

    def renewed(self, heads: Digest, by: str, at: datetime, signer: PrivateKey) -> KeyDocument:
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
            raise errors.FormatError(f"{key}: not a key document ({error})") from error
        numbers = type(document.n) is int and type(document.fresh_s) is int and document.fresh_s >= 0
        # Also what this version would write in another way, or does not know.
        if not numbers or not document.by.isprintable() or document.to_bytes() != data:
            raise errors.FormatError(f"{key}: not a key document of this version", hint=upgrade_command())
        if key != (fresh_key(document.project) if renews else document_key(document.project, document.n)):
            raise errors.CorruptError(key, f"the document inside is number {document.n} of {document.project}")
        if (document.previous is None) is not (document.n == 1):
            raise errors.FormatError(f"{key}: every document but the first names the one before it")
        if not document.is_signed_by(document.key):
            raise errors.CorruptError(key, f"it is not signed by the key that it names, {document.key.short}")
        return document


def document_key(project: str, n: int) -> str:
    """The store's key of document ``n`` of a project."""
    return f"{KEYS}{project}/{n:020d}.json"


def heads_key(project: str, digest: Digest) -> str:
    """The store's key of a list of latest entries."""
    return f"{KEYS}{project}/heads/{digest.hex}.json"


def fresh_key(project: str) -> str:
    """The store's key of the latest renewal in a project."""
    return f"{KEYS}{project}{_FRESH}"


def heads_of(entries: Iterable[RefEntry]) -> Heads:
    """The list of these entries."""
    return {entry.ref.path: (entry.n, entry.id) for entry in entries}


def parse_heads(key: str, data: bytes, digest: Digest) -> Heads:
    """Parse a list of latest entries."""
    if Digest.of(data) != digest:
        raise errors.CorruptError(key, f"its digest is not {digest.short}, as the signed document says")
    row = parse_object(data, key, max_bytes=LIMITS.heads_bytes, max_values=LIMITS.heads_values)
    try:
        if row["schema"] != _HEADS_SCHEMA:
            raise ValueError(f"schema {row['schema']!r}")
        return {str(path): (int(n), str(Digest(entry))) for path, (n, entry) in row["heads"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.FormatError(f"{key}: not a list of latest entries ({error})") from error


class KeyLog:
    """The key documents in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        data = _stored(self._store, key)
        return None if data is None else KeyDocument.parse(key, data)

    def create(self, document: KeyDocument) -> None:
        """Write the next document of a project."""
        self._store.create(document_key(document.project, document.n), document.to_bytes())
        # The answer might be lost, or another writer might have been first: what is stored counts.
        stored = self.read(document.project, document.n)
        if stored is None or stored.id != document.id:
            winner = f"{stored.by} gave it {stored.key.short}" if stored else "it is not there"
            raise errors.ConflictError(f"key {document.n} of {document.project} was not written: {winner}")

    def read_heads(self, project: str, digest: Digest) -> Heads:
        """A list of latest entries."""
        key = heads_key(project, digest)
        try:
            data = self._store.get(key, max_bytes=LIMITS.heads_bytes)
        except errors.NotFoundError as error:
            raise errors.CorruptError(key, "this list is missing, and a signed document names it") from error
        return parse_heads(key, data, digest)

    def put_heads(self, registry: str, project: str, heads: Heads) -> Digest:
        """Write a list of latest entries; returns its digest."""
        rows = {path: list(head) for path, head in heads.items()}
        data = canonical({"schema": _HEADS_SCHEMA, "registry": registry, "project": project, "heads": rows})
        digest = Digest.of(data)
        self._store.create(heads_key(project, digest), data)
        return digest

    def drop_heads(self, project: str, *, keep: Collection[Digest]) -> None:
        """Delete the lists of latest entries that nothing names any more."""
        listed = {info.key for info in self._store.list(f"{KEYS}{project}/heads/")}
        self._store.delete(sorted(listed - {heads_key(project, digest) for digest in keep}))

    def renewal(self, project: str) -> bytes | None:
        """The latest renewal in a project, as it is stored; None when there is none."""
        return _stored(self._store, fresh_key(project))

    def put_renewal(self, project: str, data: bytes) -> None:
        """Write a renewal in the place of the one before."""
        self._store.put(fresh_key(project), data)


TRUSTED = "trusted/"
"""Prefix of the pins in a local registry."""


class Pins:
    """What this machine has seen of the keys of one registry."""

    def __init__(self, store: Store) -> None:
        self._store, self._records = store, Records(store)

    def get(self, uuid: str, project: str) -> KeyDocument | None:
        """The latest document of a project that was seen; None when none was."""
        if (latest := self._records.latest(_folder(uuid, project))) is None:
            return None
        n, key, data = latest
        try:
            return KeyDocument.parse(document_key(project, n), data)
        except errors.DataError as error:
            fault = error.message.partition(": ")[2] or error.message
            hint = f"forget which key was trusted: {removal(self._store.url, key)}"
            raise errors.CorruptError(
                key, f"{fault}; this is the key that was trusted for {project}", hint=hint
            ) from error

    def projects(self, uuid: str) -> list[str]:
        """Projects of a registry of which a key was seen."""
        prefix = f"{TRUSTED}{uuid}/"
        return sorted({info.key.removeprefix(prefix).split("/")[0] for info in self._store.list(prefix)})

    def removal(self, uuid: str, project: str) -> str:
        """A shell command that forgets which key was trusted for a project."""
        return removal(self._store.url, *(info.key for info in self._store.list(f"{_folder(uuid, project)}/")))

    def put(self, document: KeyDocument) -> bool:
        """Remember a document; False where nothing can be written."""
        folder = _folder(document.registry, document.project)
        earlier = self._records.numbers(folder)
        if not earlier or earlier[-1] < document.n:
            try:
                self._records.create(folder, document.n, document.to_bytes())
            except UNWRITABLE:
                return False
            self._records.drop(folder, earlier)
        return True

    def renewal(self, uuid: str, project: str) -> bytes | None:
        """The newest renewal that was seen, as it was stored; None when none was."""
        return _stored(self._store, f"{_folder(uuid, project)}{_FRESH}")

    def put_renewal(self, uuid: str, project: str, data: bytes) -> None:
        """Remember a renewal, where something can be written."""
        with suppress(*UNWRITABLE):
            self._store.put(f"{_folder(uuid, project)}{_FRESH}", data)

    def replace(self, document: KeyDocument) -> None:
        """Remember this document in place of the one before."""
        folder = _folder(document.registry, document.project)
        self._store.delete([info.key for info in list(self._store.list(f"{folder}/"))])
        self._records.create(folder, document.n, document.to_bytes())


def _stored(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key, max_bytes=LIMITS.ref_bytes)
    except errors.NotFoundError:
        return None


def _folder(uuid: str, project: str) -> str:
    return f"{TRUSTED}{uuid}/{project}"


_MAX_BYTES = 64 << 10
_SERVICE = "service"


class PrivateKeys:
    """The private keys in one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / PRIVATE

    def path(self, key: PublicKey) -> Path:
        """The file of a private key, which need not exist."""
        return self._folder / f"{key.hex}.pem"

    def find(self, key: PublicKey) -> PrivateKey | None:
        """The private key to a public one; None when it is not here."""
        path = self.path(key)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            private = read_private_key(path)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise errors.RefusedError(f"{path}: {error.strerror}", hint=f"ls -l {shlex.quote(str(path))}") from error
        if mode & 0o077:
            raise errors.RefusedError(
                f"{path}: others can read this private key", hint=f"chmod 600 {shlex.quote(str(path))}"
            )
        if private.key != key:
            raise errors.FormatError(f"{path}: the private key of {private.key.short}, and not of {key.short}")
        return private

    def add(self, private: PrivateKey) -> Path:
        """Keep a private key; returns its file."""
        path = self.path(private.key)
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except PermissionError as error:
            raise errors.RefusedError(f"{self._folder}: {error.strerror}") from error
        except OSError as error:
            raise errors.CannotCreateError(f"{self._folder}: {error.strerror}") from error
        write_private_key(private, path)
        return path

    def __iter__(self) -> Iterator[PublicKey]:
        for path in sorted(self._folder.glob("*.pem")):
            try:
                yield PublicKey(f"ed25519:{path.stem}")
            except ValueError:
                continue


def service_key(home: Path) -> PrivateKey:
    """The key of the service of a home, made when there is none: what signs for people who have tokens and no key.

    It is a private key among the others, so commands that are run in this home sign with it, too.
    """
    keys, name = PrivateKeys(home), home / PRIVATE / _SERVICE
    if not name.exists():
        fresh = PrivateKey.generate()
        path = keys.add(fresh)
        try:
            with replacing(name, mode=0o600, force=False) as file:
                file.write(fresh.key.encode())
        except errors.OutputExistsError:
            # Another process of the service was first.
            path.unlink()
    try:
        key = PublicKey(name.read_text("ascii"))
    except ValueError as error:
        raise errors.FormatError(f"{name}: not the name of a key") from error
    private = keys.find(key)
    if private is None:
        raise errors.RefusedError(f"{name} names a private key that is not there", hint=f"ls -l {name.parent}")
    return private


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key from a file."""
    with path.open("rb") as file:
        return PrivateKey.from_pem(file.read(_MAX_BYTES), str(path))


def write_private_key(private: PrivateKey, path: Path, *, force: bool = True) -> None:
    """Write a private key to a file that its owner alone can read."""
    with replacing(path, mode=0o600, force=force) as file:
        file.write(private.to_pem())
