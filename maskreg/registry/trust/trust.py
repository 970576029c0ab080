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

Writing::

    the project has a key                    sign with its private key, or NotAllowedError
    it has none, and ``signer`` is set       a service: make its key the project's, then sign
    it has none                              write without a signature
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from maskreg.errors import CorruptError, DataError, NotAllowedError, UntrustedError
from maskreg.ref import Ref
from maskreg.registry.trust.document import KeyDocument, document_key, heads_of
from maskreg.registry.trust.fresh import Statement, accept, check_not_behind, check_not_expired, latest
from maskreg.registry.trust.keylog import KeyLog
from maskreg.registry.trust.pins import Pins
from maskreg.registry.trust.privatekeys import PrivateKeys
from maskreg.signature import PublicKey, Signer
from maskreg.store.base import Store
from maskreg.store.entry import RefEntry
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

    def __init__(
        self,
        store: Store,
        uuid: Callable[[], str],
        name: str,
        *,
        create: Callable[[str, bytes], bool] | None = None,
    ) -> None:
        """Name the registry; nothing is read yet.

        Args:
            store: where it is.
            uuid: reads its identity.
            name: what people call it: ``local``, or the remote's name.
            create: writes an object unless there is one; the store's own by default.
        """
        self.log = KeyLog(store, create=create)
        self.pins: Pins | None = None
        self.configured: Mapping[str, PublicKey] = {}
        self.private: PrivateKeys | None = None
        self.signer: Signer | None = None
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

        Raises:
            UntrustedError: the key that is pinned or configured does not lead to the latest one.
            CorruptError: a document, or the pin, is damaged or missing.
        """
        # Another thread may forget all of them at any time.
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
        # A listing may lack the latest; what was seen must be there all the same.
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
        """Refuse the latest entry of a tag when its project is signed, and no trusted key vouches for the entry.

        Raises:
            UntrustedError: none does, or the keys themselves are not trusted.
            CorruptError: a key document, or the pin, is damaged.
        """
        fault = self._fault(entry)
        if fault and entry.ref.project in self._documents:
            # Its key may be newer than what this process has read.
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
        """The same as :meth:`check` for whoever goes on with other tags: what is raised is about the entry.

        Raises:
            UntrustedError: no trusted key vouches for it, or nobody can tell.
        """
        try:
            self.check(entry)
        except DataError as error:
            raise UntrustedError(entry.key, error.message, hint=error.hint, **error.facts) from error

    def check_latest(self, ref: Ref, head: RefEntry | None, *, expired_ok: bool = False) -> None:
        """Refuse what was read of a tag when no trusted key vouches for it, or it may be an old state.

        Args:
            ref: the tag.
            head: its latest entry; None when there is none.
            expired_ok: do not ask how old the newest statement of freshness is.

        Raises:
            UntrustedError: none does; or the tag is behind what the key said of it; or it said that too long ago.
            CorruptError: a key document, a statement or the pin is damaged.
        """
        if head is not None:
            self.check(head)
        if not (documents := self.documents(ref.project)):
            return
        current = documents[-1]
        if current.fresh_s == 0:
            # The key's own list counts all the same, and an entry that is there has been held against it.
            if head is None:
                check_not_behind(head, ref, Statement.of(current), self.log, self._name)
            return
        statement = latest(current, self.log, self.pins, self.clock())
        if not expired_ok:
            check_not_expired(current, statement, self.clock(), f"{ref.project} on {self._name}", self._remote)
        check_not_behind(head, ref, statement, self.log, self._name)

    def _fault(self, entry: RefEntry) -> str:
        documents = self.documents(entry.ref.project)
        written = f"entry {entry.n}, {_state(entry)} by {entry.by} at {entry.at:%Y-%m-%d %H:%M:%S} UTC,"
        if not documents:
            return f"{written} is signed, and the project has no key" if entry.signer else ""
        current = documents[-1]
        if entry.signer == current.key:
            if entry.registry != self._uuid():
                return f"{written} was signed for another registry, {entry.registry}"
            if not entry.is_signed_by(current.key):
                return f"{written} is not what {current.key.short} signed: it was changed, or its signature was"
            return ""
        if self.log.heads(current).get(entry.ref.path) == (entry.n, entry.id):
            return ""
        if entry.signer is None:
            return f"{written} is not signed, and {current.key} signs {entry.ref.project}"
        since = f"{current.key} signs {entry.ref.project} since {current.at:%Y-%m-%d %H:%M:%S} UTC"
        is_older = any(document.key == entry.signer for document in documents)
        return f"{written} is signed with {'the replaced key ' if is_older else ''}{entry.signer}, and {since}"

    # Signing

    def sign(self, entry: RefEntry) -> RefEntry:
        """An entry that is about to be written, signed when its project has a key.

        Raises:
            NotAllowedError: it has one, and this machine cannot sign with it.
            UntrustedError: the keys themselves are not trusted.
        """
        project = entry.ref.project
        # Another process may have made or replaced the key since.
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
        """Refuse work whose result this machine could not sign; nothing is written.

        Raises:
            NotAllowedError: the project has a key, and this machine cannot sign with it.
            UntrustedError: the keys themselves are not trusted.
        """
        if self.documents(project):
            self.signer_of(project)

    def signer_of(self, project: str) -> Signer:
        """Who signs with the current key of a project, which has one.

        Raises:
            NotAllowedError: its private key is not here.
        """
        key = self.documents(project)[-1].key
        signer = self.find(key)
        if signer is None:
            raise NotAllowedError(
                f"{project} on {self._name} is signed with {key}, and its private key is not on this machine",
                signer_of=project,
                remote=self._remote,
            )
        return signer

    def find(self, key: PublicKey) -> Signer | None:
        """Who can sign with a key here; None when nobody can."""
        if self.signer is not None and self.signer.key == key:
            return self.signer
        return self.private.find(key) if self.private is not None else None

    def extend(
        self,
        project: str,
        signer: Signer,
        heads: Iterable[RefEntry],
        *,
        by: str,
        fresh_s: int = 0,
        lost: bool = False,
    ) -> KeyDocument:
        """Make a key the current one of a project, and pin it.

        Args:
            project: whose tags it signs from now on.
            signer: has the key.
            heads: the latest entry of each tag, for which the key vouches.
            by: who does it.
            fresh_s: how long a statement of freshness is good for, in seconds; 0 where none is needed.
            lost: the key before cannot hand over, because nobody has it any more.

        Raises:
            NotAllowedError: the key before has to hand over, and this machine cannot sign with it.
            ConflictError: somebody else has just done the same.
        """
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

    def refresh(self, project: str, heads: Iterable[RefEntry]) -> Statement:
        """State how the tags of a project stand now.

        Args:
            project: which has a key.
            heads: the latest entry of each tag, checked.

        Raises:
            NotAllowedError: its private key is not here.
        """
        current = self.documents(project)[-1]
        listed = self.log.put_heads(current.registry, project, heads_of(heads))
        statement = Statement(current.registry, project, current.n, listed, self.clock(), {})
        statement = statement.signed(self.signer_of(project))
        self.accept_statement(project, statement.to_bytes())
        return statement

    def accept_statement(self, project: str, data: bytes) -> bool:
        """Store a statement that somebody with the key has signed; False when there is a newer one.

        Raises:
            CorruptError: it is not signed by the project's key, or names a list that is missing.
        """
        return accept(data, self.documents(project), self.log, self.pins, self.clock())


def _state(entry: RefEntry) -> str:
    return entry.digest.short if entry.digest else "a removal"
