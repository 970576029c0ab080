"""Which keys this machine trusts, whether an entry is signed by one, and signing what it writes itself.

Reading, for each latest entry of a tag::

    no key document, nothing pinned          the project is not signed: nothing to check
    documents 1..m                           each signed by its own key, and by the one before it
      a pin (trusted/, or the settings)      must be one of them, else another key was put in its place
      no pin                                 document m is pinned now: trust on first use
    the entry is signed by key m             it says what it said when it was signed, in this registry
    it is not, and document m lists it       it is older than key m, and stands as key m found it
    anything else                            UntrustedError: no signature, a wrong one, another key, an older key

The latest entry speaks for those before it, because each holds the id of the one before. So entries from before there
was a key need no signature, and one that was let in by mistake is taken in by signing on top of it.

A pin tells that a log went back behind what this machine has seen. It cannot tell that the log stopped there: a copy of
the store can show the state of March in June, every signature valid. Only a date can. Where the project's key document
says ``fresh_s``, a reader takes the newest of that document, its renewal and the renewal that this machine remembers,
and refuses everything when that is older than ``fresh_s``, and each tag that is behind its list. So:

    freeze            ends when the renewal is too old
    rollback          shows to a reader who never looked before, too
    mix-and-match     of new tags and old ones shows: the list is of all tags at one time

Writing::

    the project has a key                    sign with its private key, or NotAllowedError
    it has none, and ``signer`` is set       a service: make its key the project's, then sign
    it has none                              write without a signature
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, NotAllowedError, UntrustedError, UsageError
from maskreg.ref import Ref
from maskreg.registry.keys import MAX_SKEW, KeyDocument, KeyLog, Pins, PrivateKeys, document_key, fresh_key, heads_of
from maskreg.signature import PrivateKey, PublicKey
from maskreg.store.base import Store
from maskreg.store.entry import REFS, RefEntry, entry_key, ref_of
from maskreg.store.reflog import RefLog

_log = logging.getLogger("maskreg")


class Trust:
    """The keys of one registry's projects, as this machine sees them.

    Attributes:
        log: the key documents in the store.
        pins: what this machine has seen of them; None where nothing is remembered.
        configured: public key by project, where the settings name one.
        private: the private keys of this machine; None where there are none.
        signer: signs every project, and becomes the key of those that have none; what a service sets.
        fresh_s: how long a statement of freshness is good for in projects that ``signer`` begins, in seconds.
        clock: the time (aware, UTC).
        note: called with remarks for people, one sentence each.
    """

    def __init__(self, store: Store, uuid: Callable[[], str], name: str) -> None:
        """Name the registry (``local``, or the remote's name); nothing is read yet."""
        self.log = KeyLog(store)
        self.pins: Pins | None = None
        self.configured: Mapping[str, PublicKey] = {}
        self.private: PrivateKeys | None = None
        self.signer: PrivateKey | None = None
        self.fresh_s = 0
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.note: Callable[[str], None] = _log.info
        self._refs = RefLog(store)
        self._uuid = uuid
        self._name = name
        self._numbers: Mapping[str, int] | None = None
        self._documents: dict[str, tuple[KeyDocument, ...]] = {}

    # Which keys

    def documents(self, project: str) -> tuple[KeyDocument, ...]:
        """The key documents of a project that are trusted, the oldest first; empty when it is not signed.

        The last one holds the key that signs now. They are read once, and pinned.
        """
        # Another thread can forget all of them at any time.
        if (documents := self._documents.get(project)) is None:
            self._documents[project] = documents = self._load(project)
        return documents

    def projects(self) -> list[str]:
        """Every project that has a key document, or has to."""
        return sorted({*self._latest(), *self.configured})

    def forget(self) -> None:
        """Read the documents again when they are needed next."""
        self._numbers = None
        self._documents.clear()

    def _latest(self) -> Mapping[str, int]:
        if (numbers := self._numbers) is None:
            self._numbers = numbers = self.log.numbers()
        return numbers

    def _load(self, project: str) -> tuple[KeyDocument, ...]:
        uuid = self._uuid()
        known = self.pins.get(uuid, project) if self.pins is not None and uuid else None
        documents = [self._read(project, n, known) for n in range(1, self._latest().get(project, 0) + 1)]
        # A listing can lack the latest; what was seen must still be there.
        documents += [self._read(project, n, known) for n in range(len(documents) + 1, known.n + 1 if known else 1)]
        if not documents:
            if configured := self.configured.get(project):
                raise self._error(project, 1, f"has no key, and {configured} is configured as its key")
            return ()
        trusted = self._unbroken(documents)
        self._check_pins(documents, trusted, known)
        if self.pins is not None and (known is None or known.n < trusted[-1].n) and self.pins.put(trusted[-1]):
            key = trusted[-1].key
            if known is None and project not in self.configured:
                self.note(f"{project} on {self._name} is signed; from now on this machine trusts its key {key}")
            elif known is not None and known.key != key:
                self.note(f"the key of {project} on {self._name} is {key} now; {known.key.short} signed that")
        return trusted

    def _read(self, project: str, n: int, known: KeyDocument | None) -> KeyDocument:
        document = self.log.read(project, n)
        if document is None:
            if known is not None:
                fault = f"lost key document {n}; this machine trusts {known.key}, key {known.n}"
                hint = f"ask the owner of {project}; if that is its key"
                raise self._error(project, n, fault, hint=hint, new_key="KEY")
            raise CorruptError(document_key(project, n), "this key document is missing, and a later one is there")
        if document.registry != self._uuid():
            raise self._error(project, n, f"has a key document of another registry, {document.registry}")
        return document

    def _unbroken(self, documents: list[KeyDocument]) -> tuple[KeyDocument, ...]:
        # From the last document that the one before it does not lead to.
        first = len(documents) - 1
        while first > 0 and documents[first].follows(documents[first - 1]):
            first -= 1
        return tuple(documents[first:])

    def _check_pins(
        self, documents: list[KeyDocument], trusted: tuple[KeyDocument, ...], known: KeyDocument | None
    ) -> None:
        last = trusted[-1]
        configured = self.configured.get(last.project)
        pinned: KeyDocument | None = None
        if known is not None:
            pinned = next((document for document in trusted if document.id == known.id), None)
            if pinned is None:
                raise self._replaced(last, known.key, f"which this machine has trusted since {known.at:%Y-%m-%d}")
        if configured is not None and all(document.key != configured for document in trusted):
            error = self._replaced(last, configured, "which is configured as its key")
            error.facts = {"setting": f"remotes.{self._name}.project_keys", "new_value": f"{last.project}={last.key}"}
            raise error
        if known is None and configured is None and trusted[0].n > 1:
            before = documents[trusted[0].n - 2]
            raise self._replaced(trusted[0], before.key, f"the key before it (key {before.n})")

    def _replaced(self, document: KeyDocument, trusted: PublicKey, who: str) -> UntrustedError:
        return self._error(
            document.project,
            document.n,
            f"has the key {document.key}, and {trusted}, {who}, did not hand over to it",
            # Only its owner can tell a new key from a stolen registry.
            hint=f"ask the owner of {document.project}; if that is its key",
            new_key=document.key,
        )

    @property
    def _remote(self) -> str:
        return "" if self._name == "local" else self._name

    def _error(self, project: str, n: int, fault: str, **facts: Any) -> UntrustedError:
        key, message = document_key(project, n), f"{project} on {self._name} {fault}"
        return UntrustedError(key, message, project=project, remote=self._remote, **facts)

    # Checking

    def check(self, entry: RefEntry) -> None:
        """Refuse the latest entry of a tag when its project is signed, and no trusted key vouches for the entry."""
        fault = self._fault(entry)
        if fault and entry.ref.project in self._documents:
            # Its key can be newer than what this process has read.
            self.forget()
            fault = self._fault(entry)
        if fault:
            raise UntrustedError(
                entry.key,
                f"{entry.ref} on {self._name}: {fault}",
                hint="if it is right, the holder of the key can sign it",
                unsigned=entry.ref,
                remote=self._remote,
            )

    def check_shown(self, entry: RefEntry) -> None:
        """The same as :meth:`check` for a caller that goes on with other tags: what is raised is about the entry."""
        try:
            self.check(entry)
        except DataError as error:
            raise UntrustedError(entry.key, error.message, hint=error.hint, **error.facts) from error

    def check_latest(self, ref: Ref, head: RefEntry | None, *, expired_ok: bool = False) -> None:
        """Refuse what was read of a tag when no trusted key vouches for it, or it might be an old state."""
        if head is not None:
            self.check(head)
        if not (documents := self.documents(ref.project)):
            return
        current = documents[-1]
        if current.fresh_s:
            current = self.renewed(current)
            if not expired_ok:
                self._check_not_expired(current)
        elif head is not None:
            return  # it has been held against the key's own list
        bound = self.log.read_heads(ref.project, current.heads).get(ref.path)
        if bound is None or (head is not None and (head.n > bound[0] or (head.n, head.id) == bound)):
            return
        state = f"ends at entry {head.n}" if head is not None else "is gone"
        raise UntrustedError(
            entry_key(ref, bound[0]),
            f"{ref} on {self._name} {state}, and had entry {bound[0]}, {Digest(bound[1]).short}, when the key of "
            f"{ref.project} was last used to say so, at {_time(current.at)}",
            hint="restore its log from a copy",
        )

    def renewed(self, current: KeyDocument) -> KeyDocument:
        """The newest renewal of a project's current key document, which is remembered, or the document itself.

        A renewal of the future, by a signer whose clock was wrong, would be the newest one until then, and hide that no
        more are made. It is not remembered, and given only where the log shows it or there is no other.
        """
        newest, now = current, self.clock()
        remembered = self.pins.renewal(current.registry, current.project) if self.pins is not None else None
        shown = self.log.renewal(current.project)
        for data in filter(None, [remembered, shown]):
            renewal = self._renewal(data, current)
            if renewal is None:
                continue
            if renewal.at - now > MAX_SKEW:
                if data == shown:
                    return renewal
            elif newest.at - now > MAX_SKEW or renewal.at >= newest.at:
                newest = renewal
                if self.pins is not None and data != remembered:
                    self.pins.put_renewal(current.registry, current.project, data)
        return newest

    def _renewal(self, data: bytes, current: KeyDocument) -> KeyDocument | None:
        """Parse a renewal; None when it is of a document before the current one."""
        renewal = KeyDocument.parse(fresh_key(current.project), data)
        if renewal.n < current.n:
            return None
        if not renewal.is_renewal_of(current):
            key = fresh_key(current.project)
            raise CorruptError(key, f"{current.key.short}, the key of {current.project}, did not sign it")
        return renewal

    def _check_not_expired(self, newest: KeyDocument) -> None:
        now, where = self.clock(), f"{newest.project} on {self._name}"
        if newest.at - now > MAX_SKEW:
            raise UntrustedError(
                fresh_key(newest.project),
                f"{where}: {_ahead(newest, now)}",
                hint="set the clock of this machine; where it is right, the clock of the signer",
            )
        if now > newest.expires:
            raise UntrustedError(
                fresh_key(newest.project),
                f"{where}: the newest statement of freshness is of {_time(newest.at)}, and expired at "
                f"{_time(newest.expires)}: an old state is shown, or it was not renewed, or the clock of this machine "
                f"is wrong, which says {_time(now)}",
                hint="the holder of the key can renew it",
                expired=newest.project,
                remote=self._remote,
            )

    def _fault(self, entry: RefEntry) -> str:
        documents = self.documents(entry.ref.project)
        state = entry.digest.short if entry.digest else "a removal"
        written = f"entry {entry.n}, {state} by {entry.by} at {entry.at:%Y-%m-%d %H:%M:%S} UTC,"
        if not documents:
            return f"{written} is signed, and the project has no key" if entry.signer else ""
        current = documents[-1]
        if entry.signer == current.key:
            if entry.registry != self._uuid():
                return f"{written} was signed for another registry, {entry.registry}"
            if not entry.is_signed_by(current.key):
                return f"{written} is not what {current.key.short} signed: it was changed, or its signature was"
            return ""
        if self.log.read_heads(current.project, current.heads).get(entry.ref.path) == (entry.n, entry.id):
            return ""
        if entry.signer is None:
            return f"{written} is not signed, and {current.key} signs {entry.ref.project}"
        since = f"{current.key} signs {entry.ref.project} since {current.at:%Y-%m-%d %H:%M:%S} UTC"
        is_older = any(document.key == entry.signer for document in documents)
        return f"{written} is signed with {'the replaced key ' if is_older else ''}{entry.signer}, and {since}"

    # Signing

    def sign(self, entry: RefEntry) -> RefEntry:
        """An entry that is about to be written, signed when its project has a key."""
        project = entry.ref.project
        # Another process might have made or replaced the key since.
        self.forget()
        if not self.documents(project):
            if self.signer is None:
                return entry
            heads = self._refs.heads(project=project)
            self.extend(project, self.signer, heads, by=entry.by, fresh_s=self.fresh_s)
        return entry.signed(self.signer_of(project), self._uuid())

    def sign_if_able(self, entry: RefEntry) -> RefEntry:
        """An entry for a service, which signs what this machine cannot; what is raised is as for :meth:`sign`."""
        try:
            return self.sign(entry)
        except NotAllowedError:
            return entry

    def check_signs(self, project: str) -> None:
        """Refuse work whose result this machine could not sign; nothing is written."""
        if self.documents(project):
            self.signer_of(project)

    def signer_of(self, project: str) -> PrivateKey:
        """Who signs with the current key of a project, which has one."""
        key = self.documents(project)[-1].key
        signer = self.find(key)
        if signer is None:
            raise NotAllowedError(
                f"{project} on {self._name} is signed with {key}, and its private key is not on this machine",
                signer_of=project,
                remote=self._remote,
            )
        return signer

    def find(self, key: PublicKey) -> PrivateKey | None:
        """What signs with a key here; None without its private key."""
        if self.signer is not None and self.signer.key == key:
            return self.signer
        return self.private.find(key) if self.private is not None else None

    def extend(
        self,
        project: str,
        signer: PrivateKey,
        heads: Iterable[RefEntry],
        *,
        by: str,
        fresh_s: int = 0,
        lost: bool = False,
    ) -> KeyDocument:
        """Make a key the current one of a project, and pin it."""
        uuid, documents = self._uuid(), self.documents(project)
        before = documents[-1] if documents else None
        signers = [signer] if before is None or lost else [self.signer_of(project), signer]
        document = KeyDocument(
            *(uuid, project, before.n + 1 if before else 1, signer.key),
            previous=before.id if before else None,
            heads=self.log.put_heads(uuid, project, heads_of(heads)),
            fresh_s=fresh_s,
            by=by,
            at=self.clock(),
            signatures={},
        ).signed(*signers)
        self.log.create(document)
        if self.pins is not None:
            self.pins.replace(document)
        self.forget()
        return document

    def refresh(self, project: str, heads: Iterable[RefEntry], *, by: str) -> KeyDocument:
        """Renew the key document of a project."""
        current = self.documents(project)[-1]
        listed = self.log.put_heads(current.registry, project, heads_of(heads))
        renewal = current.renewed(listed, by, self.clock(), self.signer_of(project))
        self.accept_renewal(project, renewal.to_bytes())
        return renewal

    def accept_renewal(self, project: str, data: bytes) -> bool:
        """Store a renewal, and delete the lists that nothing names any more; False when there is a newer one."""
        documents, now = self.documents(project), self.clock()
        renewal = self._renewal(data, documents[-1]) if documents else None
        if renewal is None:
            raise CorruptError(fresh_key(project), "the project's key did not sign it")
        if renewal.at - now > MAX_SKEW:
            raise UsageError(
                f"{fresh_key(project)}: {_ahead(renewal, now)}", hint="set the clock of the machine that is wrong"
            )
        before = self.renewed(documents[-1])
        if renewal.at < before.at and before.at - now <= MAX_SKEW:
            return False
        self.log.read_heads(project, renewal.heads)
        self.log.put_renewal(project, data)
        if self.pins is not None:
            self.pins.put_renewal(renewal.registry, project, data)
        # A reader might just have read the renewal before. A service deletes lists itself.
        with suppress(NotAllowedError):
            self.log.drop_heads(project, keep={renewal.heads, before.heads, *(each.heads for each in documents)})
        return True


def find_unvouched(trust: Trust, refs: RefLog, ref: Ref | None = None) -> Iterator[CorruptError]:
    """Everything of a tag, or of all, for which no trusted key vouches, and keys that are not trusted."""
    for project in [ref.project] if ref else trust.projects():
        try:
            yield from _project(trust, refs, project, ref)
        except CorruptError as error:
            yield error
        except DataError as error:
            yield CorruptError(document_key(project, 1), error.message, hint=error.hint, **error.facts)


def _project(trust: Trust, refs: RefLog, project: str, ref: Ref | None) -> Iterator[CorruptError]:
    if not (documents := trust.documents(project)):
        return
    unread: list[CorruptError] = []
    heads = {entry.ref: entry for entry in refs.heads(unread, project=project)}
    listed = trust.log.read_heads(project, trust.renewed(documents[-1]).heads)
    tags = {*heads, *(ref_of(f"{REFS}{path}/") for path in listed)} - {ref_of(error.key) for error in unread}
    for tag in sorted(tags if ref is None else tags & {replace(ref, digest=None)}):
        try:
            trust.check_latest(tag, heads.get(tag))
        except CorruptError as error:
            yield error


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _ahead(renewal: KeyDocument, now: datetime) -> str:
    return f"the statement of freshness is of {_time(renewal.at)}, and the clock of this machine says {_time(now)}"
