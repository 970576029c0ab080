"""What this machine keeps of keys: pins, the latest key document of each project that it has seen, and private keys.

Pins are in the local registry's store, beside what was seen of tags (:mod:`maskreg.registry.witness`)::

    trusted/<uuid>/<project>/<20-digit n>.json      the document, byte for byte
    trusted/<uuid>/<project>/fresh.json             the newest renewal of it, byte for byte

Documents are created, never replaced, and the highest number counts, so the memory never moves back. Only
:meth:`Pins.replace` does that, when the user says which key to trust from now on.

Private keys are files of their owner alone, outside of everything that a store reads or lists::

    <home>/.private/<64 hex digits of the public key>.pem      PKCS #8, mode 0600, in a folder of mode 0700

``.private`` can be no part of a store's key (:mod:`maskreg.store.keys`), so no server that serves the registry in this
folder, and nothing that copies it object by object, can pass a private key on.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from maskreg.disk import replacing
from maskreg.errors import (
    CannotCreateError,
    CorruptError,
    DataError,
    FormatError,
    NotAllowedError,
    NotFoundError,
    OutputExistsError,
    RefusedError,
    UnavailableError,
)
from maskreg.limits import LIMITS
from maskreg.registry.trust.document import KeyDocument, document_key
from maskreg.signature import PrivateKey, PublicKey
from maskreg.store.base import Store
from maskreg.store.chain import removal
from maskreg.store.keys import PRIVATE

TRUSTED = "trusted/"
"""Prefix of the pins in a local registry."""

_FRESH = "fresh.json"
_RECORD = re.compile(r"([0-9]{20})\.json")
_UNWRITABLE = (CannotCreateError, NotAllowedError, UnavailableError)


class Pins:
    """What this machine has seen of the keys of one registry.

    Args:
        store: of the local registry.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, uuid: str, project: str) -> KeyDocument | None:
        """The latest document of a project that was seen; None when none was."""
        numbers = self._numbers(uuid, project)
        if not numbers:
            return None
        key = f"{_prefix(uuid, project)}{numbers[-1]:020d}.json"
        try:
            data = self._store.get(key, max_bytes=LIMITS.ref_bytes)
            return KeyDocument.parse(document_key(project, numbers[-1]), data)
        except NotFoundError:
            # A process that saw a later one has just deleted it.
            return self.get(uuid, project)
        except DataError as error:
            fault = error.message.partition(": ")[2] or error.message
            hint = f"forget which key was trusted: {removal(self._store.url, key)}"
            raise CorruptError(key, f"{fault}; this is the key that was trusted for {project}", hint=hint) from error

    def projects(self, uuid: str) -> list[str]:
        """Projects of a registry of which a key was seen."""
        prefix = f"{TRUSTED}{uuid}/"
        return sorted({info.key.removeprefix(prefix).split("/")[0] for info in self._store.list(prefix)})

    def removal(self, uuid: str, project: str) -> str:
        """A shell command that forgets which key was trusted for a project."""
        return removal(self._store.url, *(info.key for info in self._store.list(_prefix(uuid, project))))

    def put(self, document: KeyDocument) -> bool:
        """Remember a document; False where nothing can be written."""
        prefix = _prefix(document.registry, document.project)
        numbers = self._numbers(document.registry, document.project)
        if numbers and numbers[-1] >= document.n:
            return True
        try:
            self._store.create(f"{prefix}{document.n:020d}.json", document.to_bytes())
        except _UNWRITABLE:
            return False
        with suppress(*_UNWRITABLE):
            self._store.delete([f"{prefix}{n:020d}.json" for n in numbers])
        return True

    def renewal(self, uuid: str, project: str) -> bytes | None:
        """The newest renewal that was seen, as it was stored; None when none was."""
        try:
            return self._store.get(f"{_prefix(uuid, project)}{_FRESH}", max_bytes=LIMITS.ref_bytes)
        except NotFoundError:
            return None

    def put_renewal(self, uuid: str, project: str, data: bytes) -> None:
        """Remember a renewal, where something can be written."""
        with suppress(*_UNWRITABLE):
            self._store.put(f"{_prefix(uuid, project)}{_FRESH}", data)

    def replace(self, document: KeyDocument) -> None:
        """Remember this document in place of the one before."""
        prefix = _prefix(document.registry, document.project)
        self._store.delete([info.key for info in list(self._store.list(prefix))])
        self._store.create(f"{prefix}{document.n:020d}.json", document.to_bytes())

    def _numbers(self, uuid: str, project: str) -> list[int]:
        prefix = _prefix(uuid, project)
        matches = (_RECORD.fullmatch(info.key.removeprefix(prefix)) for info in self._store.list(prefix))
        return sorted(int(match[1]) for match in matches if match)


def _prefix(uuid: str, project: str) -> str:
    return f"{TRUSTED}{uuid}/{project}/"


_MAX_BYTES = 64 << 10
_SERVICE = "service"


class PrivateKeys:
    """The private keys in one home.

    Args:
        home: directory of the local registry.
    """

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
            raise RefusedError(f"{path}: {error.strerror}", hint=f"ls -l {path}") from error
        if mode & 0o077:
            raise RefusedError(f"{path}: others may read this private key", hint=f"chmod 600 {path}")
        if private.key != key:
            raise FormatError(f"{path}: the private key of {private.key.short}, and not of {key.short}")
        return private

    def add(self, private: PrivateKey) -> Path:
        """Keep a private key; returns its file."""
        path = self.path(private.key)
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except PermissionError as error:
            raise RefusedError(f"{self._folder}: {error.strerror}") from error
        except OSError as error:
            raise CannotCreateError(f"{self._folder}: {error.strerror}") from error
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
        except OutputExistsError:
            # Another process of the service was first.
            path.unlink()
    try:
        key = PublicKey(name.read_text("ascii"))
    except ValueError as error:
        raise FormatError(f"{name}: not the name of a key") from error
    private = keys.find(key)
    if private is None:
        raise RefusedError(f"{name} names a private key that is not there", hint=f"ls -l {name.parent}")
    return private


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key from a file."""
    with path.open("rb") as file:
        return PrivateKey.from_pem(file.read(_MAX_BYTES), str(path))


def write_private_key(private: PrivateKey, path: Path) -> None:
    """Write a private key to a file that its owner alone can read."""
    with replacing(path, mode=0o600) as file:
        file.write(private.to_pem())
