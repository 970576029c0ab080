"""What this machine has seen of the tags of remotes, so that a log that goes back, forks or is rewritten is refused.

A writer to a store can delete the newest entry of a tag, or seal another history, and everything in the store
fits together again. Only a reader who was there before can tell, so it remembers, in the local registry's store::

    seen/registries/<sha256 of the location>.json      which registry (uuid) was at this URL
    seen/<uuid>/<project>/<name>/<tag>/<n>.json        the latest entry that was seen, byte for byte

A tag is compared whenever its latest entry is looked up, ``n`` being the remembered number::

    latest < n, or no entry     entry n read directly is still the remembered one?
                                  yes   the listing is behind: list again, then UnavailableError
                                  no    the log went back: RolledBackError
    latest = n                  another id: the entry was rewritten
    latest > n                  entry n has another id, or one of n..latest does not follow: another history
    otherwise                   remember the latest

For example, Bob pulls ``v3`` at entry 5. A writer deletes entry 5, so that the remote ends at entry 4 again. Bob's next
pull finds 4 < 5, reads entry 5, which is gone, and refuses with who set it, when, and both digests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.document import canonical
from maskreg.errors import CorruptError, DataError, NotFoundError, RolledBackError
from maskreg.ref import Ref
from maskreg.registry.records import RECORD, UNWRITABLE, Records
from maskreg.settings import Remote
from maskreg.store.base import Store
from maskreg.store.chain import looks, not_listed, removal
from maskreg.store.entry import entry_key
from maskreg.store.reflog import RefEntry, RefLog

SEEN = "seen/"
"""Prefix of the memory in a local registry."""

_SCHEMA = "maskreg.seen-registry/1"
_RECORD_BYTES = 64 << 10
_log = logging.getLogger("maskreg")


class Witness:
    """The memory of one remote.

    Attributes:
        note: called with remarks for people, one sentence each.
    """

    def __init__(self, store: Store, remote: Remote, url: str, note: Callable[[str], None] = _log.info) -> None:
        """Name the memory; nothing is read or written yet."""
        self.note = note
        self._records = Records(store)
        self._name = remote.name
        self._location = {"url": url, "endpoint": remote.options.endpoint}
        self._writes = True
        self._checked = ""

    def keep_in(self, store: Store) -> None:
        """Remember in this store from now on; it has what was remembered so far."""
        self._records = Records(store)

    # Which registry is there

    def check_registry(self, uuid: str, *, remember: bool = True) -> None:
        """Refuse another registry than the one that was at this location before; remember the first."""
        if uuid and uuid == self._checked:
            return
        known = self._registry()
        if known is None:
            if uuid and remember:
                row = {
                    "schema": _SCHEMA,
                    **self._location,
                    "uuid": uuid,
                    "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
                }
                with self._if_writable():
                    self._records.store.create(self._registry_key, sealed(row))
            return
        if known["uuid"] != uuid:
            now = f"registry {uuid}" if uuid else "no registry"
            raise RolledBackError(
                "maskreg.json",
                f"{self._name} ({self._location['url']}) is another registry than before: it was "
                f"{known['uuid']} when this machine first used it at {known['at']}, and now there is {now}",
                hint="ask its owner",
                remote=self._name,
            )
        self._checked = uuid

    def registry_before(self) -> str:
        """Identity of the registry that was at this location; empty when none was."""
        return (self._registry() or {}).get("uuid", "")

    # Its tags

    def compare(
        self, log: RefLog, uuid: str, ref: Ref, head: RefEntry | None
    ) -> tuple[RefEntry | None, list[RefEntry]]:
        """Refuse a log that does not continue what was seen of it; remembers nothing.

        Args:
            log: of the remote.
            uuid: the remote's identity.
            ref: the tag.
            head: its latest entry, as just read; None when there is none.

        Returns:
            What was seen before, None when nothing was; and it and everything since, up to the latest entry. When
            nothing was seen that is the latest entry alone, and nothing when there is no such tag.
        """
        known = self.remembered(uuid, ref)
        if known is None:
            return None, [head] if head else []
        for turn in looks():
            if turn:
                head = log.head(ref)
            if head is not None and head.n >= known.n:
                return known, self._since(log, ref, known, head)
            direct = log.peek(ref, known.n)
            if direct is None or direct.id != known.id:
                raise self._refusal(ref, known, head, direct)
        raise not_listed(self._location["url"], entry_key(ref, known.n))

    def remember(self, uuid: str, entry: RefEntry) -> None:
        """Remember an entry that was compared, or that this machine wrote."""
        folder = _folder(uuid, entry.ref)
        earlier = self._records.numbers(folder)
        if earlier and earlier[-1] >= entry.n:
            return
        created = False
        with self._if_writable():
            self._records.create(folder, entry.n, entry.to_bytes())
            created = True
        if created:
            known = self.remembered(uuid, entry.ref)
            if known is not None and known.n == entry.n and known.id != entry.id:
                raise self._refusal(entry.ref, known, entry, entry)
            self._records.drop(folder, earlier)

    def remembered(self, uuid: str, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag that was seen; None when none was."""
        if (latest := self._records.latest(_folder(uuid, ref))) is None:
            return None
        n, key, data = latest
        try:
            return RefEntry.parse(entry_key(ref, n), data)
        except DataError as error:
            raise self._damaged(key, error) from error

    def find_damage(self, log: RefLog, uuid: str, ref: Ref | None = None) -> list[CorruptError]:
        """Everything of a tag, or of all that were seen, that does not continue what was seen; remembers nothing."""
        damaged: list[CorruptError] = []
        try:
            self.check_registry(uuid, remember=False)
            for tag in self.tags(uuid):
                if ref not in (None, tag):
                    continue
                try:
                    self.compare(log, uuid, tag, log.head(tag))
                except CorruptError as error:
                    damaged.append(error)
                except DataError as error:
                    key, _, fault = error.message.partition(": ")
                    damaged.append(CorruptError(key, fault, hint=error.hint, **error.facts))
        except RolledBackError as error:
            damaged.append(error)
        return damaged

    def tags(self, uuid: str) -> list[Ref]:
        """Every tag of the registry that was seen."""
        return sorted(self.numbers(uuid), key=lambda ref: ref.path)

    def numbers(self, uuid: str) -> dict[Ref, int]:
        """Number of the latest entry that was seen, of every tag of the registry; none of one without an identity."""
        numbers: dict[Ref, int] = {}
        if not uuid:
            return numbers
        prefix = f"{SEEN}{uuid}/"
        for info in self._records.store.list(prefix):
            path, _, name = info.key.removeprefix(prefix).rpartition("/")
            if (match := RECORD.fullmatch(name)) and path.count("/") == 2:
                ref = Ref(*path.split("/"))  # type: ignore[arg-type]
                numbers[ref] = max(int(match[1]), numbers.get(ref, 0))
        return numbers

    def forget_registry(self) -> None:
        """Forget which registry is at this location: what is there next is taken as it is."""
        self._checked = ""
        self._records.store.delete([self._registry_key])

    def forget_tag(self, uuid: str, ref: Ref) -> None:
        """Forget what was seen of a tag: what is there next is taken as it is."""
        self._records.store.delete([info.key for info in self._records.store.list(f"{_folder(uuid, ref)}/")])

    def _since(self, log: RefLog, ref: Ref, known: RefEntry, head: RefEntry) -> list[RefEntry]:
        direct = head if head.n == known.n else log.peek(ref, known.n)
        if direct is None or direct.id != known.id:
            raise self._refusal(ref, known, head, direct)
        if head.n == known.n:
            return [head]
        try:
            return log.entries(ref, known.n, head.n)
        except DataError as error:
            raise RolledBackError(
                head.key,
                f"{ref} on {self._name} does not continue what this machine has seen, {_described(known)}: "
                f"{error.message}",
                hint=f"ask {known.by}",
                ref=ref,
                remote=self._name,
            ) from error

    def _refusal(self, ref: Ref, known: RefEntry, head: RefEntry | None, direct: RefEntry | None) -> RolledBackError:
        latest = f"ends at {_described(head)}" if head else "has no such tag"
        if direct is None:
            fault, now = "went back", f"now it {latest}"
        else:
            fault, now = "was rewritten", f"now that is {_described(direct)}"
            if head is not None and head.id != direct.id:
                now += f", and it {latest}"
        seen = f"this machine has seen {_described(known)}; {now}"
        message = f"{ref} on {self._name} {fault}: {seen}"
        return RolledBackError(known.key, message, hint=f"ask {known.by}", ref=ref, remote=self._name)

    # Records

    @property
    def _registry_key(self) -> str:
        return f"{SEEN}registries/{Digest.of(canonical(self._location)).hex}.json"

    def _registry(self) -> dict[str, str] | None:
        key = self._registry_key
        try:
            data = self._records.store.get(key, max_bytes=_RECORD_BYTES)
        except NotFoundError:
            return None
        try:
            return parse_sealed(data, key, schema=_SCHEMA, max_bytes=_RECORD_BYTES)
        except DataError as error:
            raise self._damaged(key, error) from error

    @contextmanager
    def _if_writable(self) -> Iterator[None]:
        try:
            yield
        except UNWRITABLE as error:
            if self._writes:
                self._writes = False
                self.note(f"what was seen of {self._name} could not be remembered: {error.message}")

    def _damaged(self, key: str, error: DataError) -> CorruptError:
        hint = f"forget what was seen of it: {removal(self._records.store.url, key)}"
        return CorruptError(key, f"{error.fault}; this is what was seen of {self._name}", hint=hint)


def _folder(uuid: str, ref: Ref) -> str:
    return f"{SEEN}{uuid}/{ref.path}"


def _described(entry: RefEntry) -> str:
    state = entry.digest.short if entry.digest else f"the removal of {entry.last_digest and entry.last_digest.short}"
    return f"entry {entry.n}, {state} by {entry.by} at {entry.at:%Y-%m-%d %H:%M:%S} UTC"
