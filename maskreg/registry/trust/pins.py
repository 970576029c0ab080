"""Pins: the latest key document of each project of a registry that this machine has seen.

They are in the local registry's store, beside what was seen of tags (:mod:`maskreg.registry.witness`)::

    trusted/<uuid>/<project>/<20-digit n>.json      the document, byte for byte
    trusted/<uuid>/<project>/fresh.json             the newest statement of freshness (:mod:`.fresh`), byte for byte

Documents are created, never replaced, and the highest number counts, so the memory never moves back. Only
:meth:`Pins.replace` does that, for somebody who says which key to trust from now on.
"""

from __future__ import annotations

import re
from contextlib import suppress

from maskreg.errors import CannotCreateError, CorruptError, DataError, NotAllowedError, NotFoundError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.registry.trust.document import KeyDocument, document_key
from maskreg.store.base import Store
from maskreg.store.chain import removal

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
        """The latest document of a project that was seen; None when none was.

        Raises:
            CorruptError: the record is damaged.
        """
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

    def statement(self, uuid: str, project: str) -> bytes | None:
        """The newest statement of freshness that was seen, as it was stored; None when none was."""
        try:
            return self._store.get(f"{_prefix(uuid, project)}{_FRESH}", max_bytes=LIMITS.ref_bytes)
        except NotFoundError:
            return None

    def put_statement(self, uuid: str, project: str, data: bytes) -> None:
        """Remember a statement of freshness, where something can be written."""
        with suppress(*_UNWRITABLE):
            self._store.put(f"{_prefix(uuid, project)}{_FRESH}", data)

    def replace(self, document: KeyDocument) -> None:
        """Remember this document in the place of whatever was remembered.

        Raises:
            CannotCreateError, NotAllowedError: the local store cannot be written.
        """
        prefix = _prefix(document.registry, document.project)
        self._store.delete([info.key for info in list(self._store.list(prefix))])
        self._store.create(f"{prefix}{document.n:020d}.json", document.to_bytes())

    def _numbers(self, uuid: str, project: str) -> list[int]:
        prefix = _prefix(uuid, project)
        matches = (_RECORD.fullmatch(info.key.removeprefix(prefix)) for info in self._store.list(prefix))
        return sorted(int(match[1]) for match in matches if match)


def _prefix(uuid: str, project: str) -> str:
    return f"{TRUSTED}{uuid}/{project}/"
