"""The ref log of a registry, held against what this machine knows of it.

Of a remote it knows what it has seen (:mod:`maskreg.registry.witness`), of the local registry what the catalog has
indexed. A log that lacks an entry which is known there went back, whatever else is in it. Of a project that is signed
it knows the key (:mod:`maskreg.registry.trust`), which has to vouch for the latest entry before anything is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from maskreg.errors import CorruptError, RolledBackError, UnavailableError
from maskreg.ref import Ref
from maskreg.registry.index.freshness import lost
from maskreg.registry.index.index import Index
from maskreg.registry.naming import Removal
from maskreg.registry.trust.audit import audit
from maskreg.registry.trust.trust import Trust
from maskreg.registry.witness import Witness
from maskreg.store.reflog import RefEntry, RefLog

_LOOKS = 2


class KnownLog:
    """A ref log, and what this machine knows of it."""

    def __init__(
        self,
        refs: RefLog,
        uuid: Callable[[], str],
        trust: Trust,
        *,
        witness: Witness | None,
        index: Index | None,
    ) -> None:
        """Name the log; nothing is read yet.

        Args:
            refs: the log.
            uuid: reads the registry's identity.
            trust: the keys of its projects.
            witness: the memory of a remote.
            index: the catalog of a local registry.
        """
        self._refs = refs
        self._uuid = uuid
        self._trust = trust
        self._witness = witness
        self._index = index

    def head(self, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag; None when there is none. That of a remote is remembered.

        Raises:
            CorruptError: the log is damaged, or an entry that the catalog knows is lost.
            RolledBackError: it does not continue what this machine has seen of it.
            UntrustedError: its project is signed, and no trusted key vouches for it.
            UnavailableError: the store does not answer, or its listing stays stale.
        """
        ref = replace(ref, digest=None)
        head = self._refs.head(ref)
        if self._index is not None:
            head = self._indexed(self._index, ref, head)
        elif self._witness is not None:
            return self._seen(self._witness, ref, head)
        self._trust.check_latest(ref, head)
        return head

    def audit(self, ref: Ref | None = None) -> list[CorruptError]:
        """Everything that is wrong with the log of a tag, or with all logs; nothing new is remembered."""
        ref = ref and replace(ref, digest=None)
        damaged = [*self._refs.audit(ref), *self.audit_known(ref)]
        return list({(error.key, error.message): error for error in damaged}.values())

    def audit_known(self, ref: Ref | None = None) -> list[CorruptError]:
        """What does not continue what this machine knows of a tag, or of all; the logs themselves are not read."""
        damaged: list[CorruptError] = []
        if self._witness is not None:
            seen = self._witness.audit(self._refs, self._uuid(), ref)
            self._advise(self._witness, [error for error in seen if isinstance(error, RolledBackError)])
            damaged += seen
        return [*damaged, *audit(self._trust, self._refs, ref)]

    def _seen(self, witness: Witness, ref: Ref, head: RefEntry | None) -> RefEntry | None:
        uuid = self._uuid()
        witness.check_registry(uuid)
        if not uuid:
            self._trust.check_latest(ref, head)
            return head
        if head is not None:
            # First, so that what nobody signed is refused as that, and not as something to accept.
            self._trust.check(head)
        try:
            known, since = witness.compare(self._refs, uuid, ref, head)
        except RolledBackError as error:
            self._advise(witness, [error])
            raise
        self._trust.check_latest(ref, since[-1] if since else None)
        if not since:
            return None
        if known is None or known.n < since[-1].n:
            witness.remember(uuid, since[-1])
        if removal := Removal.between(since):
            witness.note(removal.sentence(ref))
        return since[-1]

    def _advise(self, witness: Witness, errors: list[RolledBackError]) -> None:
        # One listing shows which tags became shorter, as those do that a backup knows less of.
        if not errors:
            return
        with suppress(UnavailableError):
            shorter = witness.shorter(self._refs.numbers(), self._uuid())
            for error in errors if shorter > 1 else ():
                error.facts["tags"] = shorter

    def _indexed(self, index: Index, ref: Ref, head: RefEntry | None) -> RefEntry | None:
        # A later entry that the catalog knows was written since the listing, or is lost from the store.
        for _ in range(_LOOKS):
            known = index.number(ref)
            if known <= (head.n if head else 0):
                return head
            head = self._refs.head(ref)
        raise lost({ref: head.n if head else 0}, {ref: known})[ref]
