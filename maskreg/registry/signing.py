"""Changes to the keys of a registry's projects, and what they vouch for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from maskreg import errors
from maskreg.digest import Digest
from maskreg.ref import Ref, check_project
from maskreg.registry.keys import MAX_SKEW, KeyDocument
from maskreg.registry.registry import Registry
from maskreg.result import Result
from maskreg.signature import PrivateKey, PublicKey
from maskreg.store.entry import RefEntry

State: TypeAlias = Literal["signed", "listed", "unsigned", "wrong"]
"""How a tag's latest entry stands.

``signed`` by the project's key; ``listed`` in what the key vouched for when it began, because it is older; ``unsigned``
in a project without a key; ``wrong`` in a project that has one, which did neither.
"""


@dataclass(frozen=True)
class SignedTag(Result):
    """Who vouches for a tag.

    Attributes:
        ref: the tag.
        n: number of its latest entry; 0 where there is none to read.
        digest: what it points to; None when it was removed, or cannot be read.
        state: how that entry stands.
        key: public key that vouches for it; None when none does.
        since: when the first of the entries was written that this key signed without a break; for one that is listed,
            when the key began. None when no key vouches.
        by: who wrote the latest entry; empty where there is none to read.
        fault: what is wrong; empty when nothing is.
        error: the same as an error, with its facts; None when nothing is wrong.
    """

    ref: Ref
    n: int
    digest: Digest | None
    state: State
    key: PublicKey | None = None
    since: datetime | None = None
    by: str = ""
    fault: str = ""
    error: errors.MaskregError | None = None


@dataclass(frozen=True)
class Signatures(Result):
    """Who vouches for the tags of a registry.

    Attributes:
        registry: ``local``, or the remote's name.
        tags: each tag, in the order of their names.
    """

    registry: str
    tags: tuple[SignedTag, ...]

    @property
    def wrong(self) -> tuple[SignedTag, ...]:
        """Tags of signed projects for which no trusted key vouches."""
        return tuple(tag for tag in self.tags if tag.state == "wrong")

    @property
    def unsigned(self) -> tuple[SignedTag, ...]:
        """Tags of projects that have no key."""
        return tuple(tag for tag in self.tags if tag.state == "unsigned")

    @property
    def ok(self) -> bool:
        """Whether a trusted key vouches for every tag."""
        return not self.wrong and not self.unsigned

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "ok": self.ok}


def create_key(
    registry: Registry, project: str, signer: PrivateKey, *, fresh_s: int = 0, lost: bool = False
) -> KeyDocument:
    """Let a key sign a project from now on; it vouches for all tags as they are."""
    registry.ensure_uuid()
    documents = registry.trust.documents(check_project(project))
    if bool(documents) is not lost:
        if lost:
            raise errors.NotFoundError(f"{project} on {registry.name} has no key that could be lost")
        raise errors.NotAllowedError(
            f"{project} on {registry.name} has the key {documents[-1].key} already",
            has_key=project,
            remote=registry.remote_name,
        )
    heads = list(_heads(registry, project))
    return registry.trust.extend(project, signer, heads, by=registry.by, fresh_s=fresh_s, lost=lost)


def rotate_key(registry: Registry, project: str, signer: PrivateKey, *, fresh_s: int | None = None) -> KeyDocument:
    """Replace the key of a project; the old one signs the new one, and nothing after that."""
    current = current_key(registry, project)
    registry.trust.signer_of(project)
    heads = list(_heads(registry, project))
    kept = current.fresh_s if fresh_s is None else fresh_s
    return registry.trust.extend(project, signer, heads, by=registry.by, fresh_s=kept)


def current_key(registry: Registry, project: str) -> KeyDocument:
    """The key document of a project that counts now."""
    documents = registry.trust.documents(check_project(project))
    if not documents:
        raise errors.NotFoundError(
            f"{project} on {registry.name} has no key", keyless=project, remote=registry.remote_name
        )
    return documents[-1]


def vouch(registry: Registry, ref: Ref) -> RefEntry:
    """Sign what a tag says now, though no trusted key vouches for it.

    Returns:
        Its latest entry: a new one that says the same, or the present one when a trusted key vouches for it already.
    """
    ref = replace(ref, digest=None)
    current_key(registry, ref.project)
    head = registry.refs.head(ref)
    try:
        if (trusted := registry.head(ref)) is not None:
            return trusted
    except errors.UntrustedError:
        if head is None:
            raise
    if head is None:
        raise errors.NotFoundError(f"there is no {ref} in {registry.name}", remote=registry.remote_name)
    card = {"card": head.card, "origin": head.origin, "immutable": head.immutable}
    registry.refs.append(ref, after=head, digest=head.digest, by=registry.by, **card)  # type: ignore[arg-type]
    signed = registry.head(ref)
    assert signed is not None  # it was just written
    registry.index.note(signed, "sign")
    return signed


def refresh(registry: Registry, project: str) -> KeyDocument:
    """State how the tags of a project stand now, so that readers go on taking them for the current state."""
    current_key(registry, project)
    registry.trust.signer_of(project)
    heads = list(registry.refs.heads(project=project))
    for head in heads:
        registry.trust.check_latest(head.ref, head, expired_ok=True)
        if registry.witness is not None:
            registry.witness.compare(registry.refs, registry.uuid, head.ref, head)
    return registry.trust.refresh(project, heads, by=registry.by)


def refresh_due(registry: Registry, *, share: float = 0.5) -> tuple[str, ...]:
    """Renew the statement of every project of which this registry signs, when it has used up a share of its time.

    For a service to call now and then: at least as often as the shortest time that a statement is good for allows. A
    project that cannot be renewed does not keep the others from it.

    Args:
        registry: with a signer.
        share: how much of its time a statement can use up before it is renewed, from 0 to 1.

    Returns:
        The projects.
    """
    renewed: list[str] = []
    failed: list[errors.MaskregError] = []
    # Other processes make and replace keys.
    registry.trust.forget()
    for project in registry.trust.projects():
        try:
            if _is_due(registry, project, share):
                refresh(registry, project)
                renewed.append(project)
        except errors.MaskregError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return tuple(renewed)


def _is_due(registry: Registry, project: str, share: float) -> bool:
    document = current_key(registry, project)
    if document.fresh_s == 0 or registry.trust.find(document.key) is None:
        return False
    now = registry.trust.clock()
    newest = registry.trust.renewed(document)
    return newest.at - now > MAX_SKEW or now >= newest.at + share * timedelta(seconds=document.fresh_s)


def trust_key(registry: Registry, project: str, key: PublicKey) -> KeyDocument:
    """Trust a key of a project from now on, in place of what was trusted until now."""
    check_project(project)
    n = registry.trust.log.numbers().get(project, 0)
    document = registry.trust.log.read(project, n) if n else None
    if document is None:
        raise errors.NotFoundError(
            f"{project} on {registry.name} has no key", keyless=project, remote=registry.remote_name
        )
    if document.key != key or document.registry != registry.uuid:
        raise errors.UntrustedError(
            f"keys/{project}",
            f"{project} on {registry.name} has the key {document.key} of registry {document.registry}, and not {key}",
            hint="ask its owner",
        )
    if registry.trust.pins is not None:
        registry.trust.pins.replace(document)
    registry.trust.forget()
    return document


def signed_tags(registry: Registry, ref: Ref | None = None) -> Iterator[SignedTag]:
    """Who vouches for a tag, or for all tags of a registry; damage is told, not raised."""
    registry.check_format()
    known = set(registry.refs.tags())
    if ref is not None:
        if replace(ref, digest=None) not in known:
            registry.live(ref)
        known = {replace(ref, digest=None)}
    for tag in sorted(known):
        yield _signed_tag(registry, tag)


def _signed_tag(registry: Registry, ref: Ref) -> SignedTag:
    head: RefEntry | None = None
    try:
        head = registry.refs.head(ref)
        log = registry.history(ref)
        head = log[-1]
        documents = registry.trust.documents(ref.project)
    except errors.DataError as error:
        facts = (head.n, head.digest) if head else (0, None)
        by = head.by if head else ""
        return SignedTag(ref, *facts, "wrong", by=by, fault=error.fault, error=error)
    if not documents:
        return SignedTag(ref, head.n, head.digest, "unsigned", by=head.by)
    key = documents[-1].key
    if head.signer != key:
        return SignedTag(ref, head.n, head.digest, "listed", key, documents[-1].at, head.by)
    since = head.at
    for entry in reversed(log):
        if entry.signer != key:
            break
        since = entry.at
    return SignedTag(ref, head.n, head.digest, "signed", key, since, head.by)


def _heads(registry: Registry, project: str) -> Iterator[RefEntry]:
    # One by one, as every command looks a tag up: held against what was seen, and against the key there is.
    for ref in registry.refs.tags():
        if ref.project == project and (head := registry.head(ref)) is not None:
            yield head
