"""Statements of freshness: how the tags of a project stood at a time, so that nobody can show an old state for ever.

A pin tells that a log went back behind what this machine has seen. It cannot tell that the log stopped there: who
stands before the store, or copied it, may serve the state of March in June, every signature valid. Only a date can::

    keys/<project>/fresh.json    {registry, project, n, heads: <digest>, at, signatures: {<key n>}}, replaceable

``heads`` names a list of the latest entry of every tag, as a key document does. Where the project's key document says
``fresh_s``, a reader takes the newest of that document, this statement and the one that it remembers, and refuses
everything when that is older than ``fresh_s``, and each tag that is behind the list. So:

    freeze            ends when the statement is too old
    rollback          shows to who never looked before, too
    mix-and-match     of new tags and old ones shows: the list is of all tags at one time

Entries that were written since the statement are newer than the list, and fine. Nobody renews a statement in a bucket
without somebody who does it regularly, so ``fresh_s`` is 0 unless its owner sets it; a service renews by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.errors import CorruptError, FormatError, NotAllowedError, UntrustedError, UsageError
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.registry.trust.document import KeyDocument, fresh_key
from maskreg.registry.trust.keylog import KeyLog
from maskreg.registry.trust.pins import Pins
from maskreg.signature import SIGNATURES, PublicKey, Signer, is_signed_by, parse_signatures, signed
from maskreg.store.entry import RefEntry, entry_key

_SCHEMA = "maskreg.freshness/1"


@dataclass(frozen=True)
class Statement:
    """How the tags of a project stood at a time.

    Attributes:
        registry: uuid of the registry.
        project: whose tags.
        n: number of the key document whose key signed it.
        heads: digest of the list of the latest entries.
        at: when, by the signer's clock (aware, UTC).
        signatures: by public key.
    """

    registry: str
    project: str
    n: int
    heads: Digest
    at: datetime
    signatures: Mapping[PublicKey, str]

    @classmethod
    def of(cls, document: KeyDocument) -> Statement:
        """What a key document states as of its own date."""
        return cls(document.registry, document.project, document.n, document.heads, document.at, document.signatures)

    def signed(self, signer: Signer) -> Statement:
        """The statement with a signature."""
        row: Any = signed(self._row(), signer)
        return replace(self, signatures=row[SIGNATURES])

    def to_bytes(self) -> bytes:
        """Canonical bytes, sealed."""
        return sealed(self._row())

    def expires(self, document: KeyDocument) -> datetime:
        """Until when it is good for."""
        return self.at + timedelta(seconds=document.fresh_s)

    def is_ahead(self, now: datetime) -> bool:
        """Whether it is of the future, by more than clocks may differ."""
        return self.at - now > MAX_SKEW

    def _row(self) -> dict[str, object]:
        return {
            "schema": _SCHEMA,
            "registry": self.registry,
            "project": self.project,
            "n": self.n,
            "heads": self.heads,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            SIGNATURES: dict(self.signatures),
        }

    @classmethod
    def parse(cls, data: bytes, document: KeyDocument) -> Statement | None:
        """Parse a stored statement; None when a key before the current one signed it.

        Args:
            data: the bytes.
            document: the current key document of the project.

        Raises:
            CorruptError: its bytes do not match its seal, or it is not signed by the key of the document.
            FormatError, LimitError: not a statement of this version.
        """
        key = fresh_key(document.project)
        row = parse_sealed(data, key, schema=_SCHEMA, max_bytes=LIMITS.ref_bytes)
        try:
            at = datetime.fromisoformat(row["at"]).astimezone(UTC)
            statement = cls(
                *(str(row["registry"]), str(row["project"]), int(row["n"]), Digest(row["heads"]), at),
                signatures=parse_signatures(row, key),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{key}: not a statement of freshness ({error})") from error
        if statement.n < document.n:
            return None
        is_ours = (statement.registry, statement.project, statement.n) == (
            *(document.registry, document.project, document.n),
        )
        if not is_ours or not is_signed_by(row, document.key):
            raise CorruptError(key, f"{document.key.short}, the key of {document.project}, did not sign it")
        return statement


MAX_SKEW = timedelta(hours=1)
"""How far the clock of whoever signs or writes something may be from the clock of whoever reads it."""


def latest(document: KeyDocument, log: KeyLog, pins: Pins | None, now: datetime) -> Statement:
    """The newest statement that there is of a project, which is remembered.

    A statement of the future, which somebody made whose clock was wrong, would be the newest one until then, and nobody
    would see that no more are made. It is not remembered, and given only where the log shows it or there is no other.

    Args:
        document: the current key document of the project.
        log: holds the statement that is shown.
        pins: hold the one that was shown before.
        now: the time.

    Raises:
        CorruptError: the stored statement is damaged, or not signed by the project's key.
    """
    newest = Statement.of(document)
    project = document.project
    remembered = pins.statement(document.registry, project) if pins is not None else None
    shown = log.statement(project)
    for data in filter(None, [remembered, shown]):
        statement = Statement.parse(data, document)
        if statement is None:
            continue
        if statement.is_ahead(now):
            if data == shown:
                return statement
        elif newest.is_ahead(now) or statement.at >= newest.at:
            newest = statement
            if pins is not None and data != remembered:
                pins.put_statement(document.registry, project, data)
    return newest


def accept(data: bytes, documents: Sequence[KeyDocument], log: KeyLog, pins: Pins | None, now: datetime) -> bool:
    """Store a statement in the place of the one before, and delete the lists that nothing names any more.

    Args:
        data: the statement.
        documents: the trusted key documents of the project.
        log: where it goes.
        pins: remember it, too.
        now: the time.

    Returns:
        Whether it was stored; False when there is a newer one.

    Raises:
        UsageError: it is of the future.
        CorruptError: the project's key has not signed it, or the list that it names is missing.
        FormatError, LimitError: not a statement of this version.
    """
    project = documents[-1].project if documents else ""
    statement = Statement.parse(data, documents[-1]) if documents else None
    if statement is None:
        raise CorruptError(fresh_key(project), "the project's key did not sign it")
    if statement.is_ahead(now):
        raise UsageError(
            f"{fresh_key(project)}: {_ahead(statement, now)}", hint="set the clock of the machine that is wrong"
        )
    before = latest(documents[-1], log, pins, now)
    if statement.at < before.at and not before.is_ahead(now):
        return False
    log.read_heads(project, statement.heads)
    log.put_statement(project, data)
    if pins is not None:
        pins.put_statement(statement.registry, project, data)
    # The list before may be that of a reader who has just read the statement before. A service lets nobody delete
    # lists, and does so itself.
    with suppress(NotAllowedError):
        log.drop_heads(project, keep={statement.heads, before.heads, *(document.heads for document in documents)})
    return True


def check_not_expired(document: KeyDocument, statement: Statement, now: datetime, where: str, remote: str) -> None:
    """Refuse a project of which the newest statement is too old.

    Args:
        document: its current key document.
        statement: the newest statement.
        now: the time.
        where: what people call the project and its registry, for the message.
        remote: name of the remote; empty for the local registry.

    Raises:
        UntrustedError: it is, or it is of the future.
    """
    if statement.is_ahead(now):
        raise UntrustedError(
            fresh_key(document.project),
            f"{where}: {_ahead(statement, now)}",
            hint="set the clock of this machine; if it is right, the clock of the signer",
        )
    if now > statement.expires(document):
        raise UntrustedError(
            fresh_key(document.project),
            f"{where}: the newest statement of freshness is of {_time(statement.at)}, and expired at "
            f"{_time(statement.expires(document))}: an old state is shown, or it was not renewed, or the clock of "
            f"this machine is wrong, which says {_time(now)}",
            hint="the holder of the key can renew it",
            expired=document.project,
            remote=remote,
        )


def check_not_behind(head: RefEntry | None, ref: Ref, statement: Statement, log: KeyLog, where: str) -> None:
    """Refuse a tag that is behind what a statement says of it.

    Args:
        head: its latest entry; None when there is none.
        ref: the tag.
        statement: the newest statement.
        log: has the list that the statement names.
        where: what people call the registry, for the message.

    Raises:
        UntrustedError: it is.
        CorruptError: the list is damaged or missing.
    """
    bound = log.read_heads(statement.project, statement.heads).get(ref.path)
    if bound is None or (head is not None and (head.n > bound[0] or (head.n, head.id) == bound)):
        return
    state = f"ends at entry {head.n}" if head is not None else "is gone"
    raise UntrustedError(
        entry_key(ref, bound[0]),
        f"{ref} on {where} {state}, and had entry {bound[0]}, {Digest(bound[1]).short}, when the key of {ref.project} "
        f"was last used to say so, at {statement.at:%Y-%m-%d %H:%M:%S} UTC",
        hint="restore its log from a copy",
    )


def _ahead(statement: Statement, now: datetime) -> str:
    return f"the statement of freshness is of {_time(statement.at)}, and the clock of this machine says {_time(now)}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
