"""Tags: add one, edit its card, remove it, restore it, find an artifact's, or take a remote's as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import EllipsisType
from typing import Literal, TypeAlias

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError, RolledBackError, StaleError, UntrustedError, UsageError
from maskreg.ref import Card, Ref, ShortDigest
from maskreg.registry.keys import document_key
from maskreg.registry.registry import Registry
from maskreg.registry.searching import digests_in
from maskreg.store.entry import NAMES, REFS, BackReference, ref_of
from maskreg.store.reflog import RefEntry

Expected: TypeAlias = "Digest | Literal['absent'] | None"
"""What the caller has last seen of a tag: the id of its latest entry, or that it is not set. None skips the check."""


def check_expected(ref: Ref, head: RefEntry | None, expected: Expected) -> None:
    """Refuse to change a tag that is not as it was seen."""
    if expected == "absent" and head is not None and not head.deleted:
        raise StaleError(f"{ref} exists: {_last(head)}", history=ref)
    if expected in (None, "absent") or (head is not None and head.id == expected):
        return
    raise StaleError(f"{ref} is not as it was seen: {_last(head) if head else 'it does not exist'}", history=ref)


def _last(head: RefEntry) -> str:
    return f"{head.by} changed it last, at {head.at:%Y-%m-%d %H:%M:%S} UTC (entry {head.n})"


def tag(
    registry: Registry,
    ref: Ref,
    new: Ref,
    *,
    after: RefEntry | EllipsisType | None = ...,
    immutable: bool | None = None,
    by: str = "",
) -> RefEntry:
    """Point the tag ``new`` at the artifact of ``ref``, with the same card; a tag that exists moves.

    Args:
        registry: where both are.
        ref: the artifact.
        new: the tag.
        after: the latest entry of ``new`` when the work began; read now when left out.
        immutable: ``new`` must never point to another artifact again; left out, the registry's settings say so.
        by: who does it; empty for whom the registry was opened by.
    """
    if isinstance(after, EllipsisType):
        after = registry.head(new)
    resolved = registry.resolve(ref)
    card = resolved.card
    if resolved.entry is None:
        # A pinned digest that the tag has left: the last card it had under this tag.
        log = registry.history(ref) if registry.head(ref) else []
        cards = [entry.card for entry in log if entry.digest == resolved.digest]
        card = cards[-1] if cards else Card()
    return registry.publish(new, resolved.digest, card=card, after=after, immutable=immutable, by=by)


def annotate(
    registry: Registry,
    ref: Ref,
    texts: Mapping[str, str | None],
    *,
    meta: Mapping[str, str] | None = None,
    by: str = "",
    expected: Expected = None,
) -> RefEntry:
    """Edit the card of a tag: its texts by name, None as they are; an empty value in ``meta`` removes its key."""
    live = registry.live(ref)
    check_expected(ref, live, expected)
    _check_pin(ref, live.digest)
    merged = {k: v for k, v in {**live.card.meta, **(meta or {})}.items() if v}
    card = replace(live.card, **{k: v for k, v in texts.items() if v is not None}, meta=merged)
    return registry.append(
        ref, live.digest, card=card, after=live, origin=live.origin, action="annotate", immutable=live.immutable, by=by
    )


def remove(registry: Registry, ref: Ref, *, by: str = "", expected: Expected = None) -> RefEntry:
    """Remove a tag. Its log stays, and :func:`restore` brings it back until its objects are collected."""
    live = registry.live(ref)
    check_expected(ref, live, expected)
    _check_pin(ref, live.digest)
    return registry.append(
        ref, None, card=live.card, after=live, origin=live.origin, action="remove", immutable=live.immutable, by=by
    )


def restore(registry: Registry, ref: Ref, *, by: str = "", expected: Expected = None) -> RefEntry:
    """Bring a removed tag back as it was."""
    log = registry.history(ref)
    check_expected(ref, log[-1], expected)
    if not log[-1].deleted:
        tag = replace(ref, digest=None)
        raise UsageError(f"{tag} was not removed", history=tag)
    last = next(entry for entry in reversed(log) if not entry.deleted)
    assert last.digest is not None
    _check_pin(ref, last.digest)
    return registry.publish(
        ref, last.digest, card=last.card, after=log[-1], origin=last.origin, immutable=last.immutable, by=by
    )


def _check_pin(ref: Ref, digest: Digest | None) -> None:
    """Refuse to change a tag that has moved since the caller looked at it."""
    if ref.digest is not None and ref.digest != digest:
        tag = replace(ref, digest=None)
        raise NotFoundError(f"{tag} does not point to {ref.digest.short}", history=tag)


_SHOWN = 5
_SHORT_DIGITS = 12


def expand(registry: Registry, short: ShortDigest) -> Ref | Digest:
    """The artifact whose digest alone begins with these digits; a name that exists goes first."""
    if short.name is not None and registry.head(short.name) is not None:
        return short.name
    digests = sorted({digest for digest in digests_in(registry.store) if digest.hex.startswith(short.digits)})
    if len(digests) > 1:
        raise _ambiguous(registry, short, digests)
    if not digests:
        if short.name is not None:
            # Says which names are similar.
            registry.resolve(short.name)
        raise NotFoundError(f"no digest in {registry.name} begins with {short.digits}", remote=registry.remote_name)
    return digests[0] if short.label is None else replace(short.label, digest=digests[0])


def names_of(registry: Registry, digest: Digest) -> list[Ref]:
    """The tags that point to an artifact now, in order."""
    return sorted(entry.ref for entry in registry.refs.heads([]) if entry.digest == digest)


def only_name_of(registry: Registry, digest: Digest) -> Ref:
    """The tag that points to an artifact, with its digest, for what needs a name and was given a digest."""
    names = names_of(registry, digest)
    if len(names) == 1:
        return replace(names[0], digest=digest)
    if not names:
        if registry.store.head(artifact_prefix(digest) + MANIFEST) is None:
            raise NotFoundError(f"artifact {digest.short} is not in {registry.name}", remote=registry.remote_name)
        fault = f"{digest.short} has no name in {registry.name}, and this needs one"
        raise UsageError(fault, unnamed=digest, name="NAME:TAG", remote=registry.remote_name)
    raise UsageError(
        f"{digest.short} has {len(names)} names in {registry.name}: {', '.join(map(str, names))}; write one of them",
        names=digest.short,
        remote=registry.remote_name,
    )


def _ambiguous(registry: Registry, short: ShortDigest, digests: list[Digest]) -> UsageError:
    # Enough digits to tell them apart.
    length = len("sha256:") + _SHORT_DIGITS
    while len({digest[:length] for digest in digests}) < len(digests):
        length += 1
    shown = [
        f"{digest[:length]} ({', '.join(map(str, names_of(registry, digest))) or 'no name'})"
        for digest in digests[:_SHOWN]
    ]
    more = f" and {len(digests) - _SHOWN} more" if len(digests) > _SHOWN else ""
    return UsageError(
        f"{len(digests)} digests in {registry.name} begin with {short.digits}: {', '.join(shown)}{more}",
        digits=f"sha256:{short.digits}",
        remote=registry.remote_name,
    )


def ever_named(registry: Registry, digest: Digest) -> Iterator[Ref]:
    """Tags of which some entry names an artifact, whether they do now or not; a tag can come several times.

    A back reference alone proves nothing: it is written before its entry, which might never follow. What is damaged
    proves nothing either. Where back references are missing, as in a store that was restored without them, the catalog
    knows the tags that point to it now.
    """
    for info in registry.store.list(f"{NAMES}{digest.hex}/"):
        back = BackReference.of(info)
        if back is None:
            continue
        with suppress(DataError, NotFoundError):
            ref = back.read(registry.store)
            entry = registry.refs.peek(ref, back.n)
            if entry is not None and entry.digest == digest:
                yield ref
    yield from (row.ref for row in registry.page(Query(digest=digest)))


def accept_registry(registry: Registry) -> str:
    """Take the registry that is at this location now, though it is not the one that this machine has seen there.

    Its tags are not looked at: what was seen of them belongs to the identity of the registry that had them.
    """
    if registry.witness is None:
        return ""
    try:
        registry.witness.check_registry(registry.uuid)
    except RolledBackError as error:
        _check_keys(registry, registry.witness.registry_before())
        registry.witness.forget_registry()
        registry.witness.check_registry(registry.uuid)
        return error.message
    return ""


def _check_keys(registry: Registry, before: str) -> None:
    # Otherwise a forged registry at the same address would count as one that is seen for the first time.
    pins, uuid, log = registry.trust.pins, registry.uuid, registry.trust.log
    numbers = log.numbers()
    for project in pins.projects(before) if pins is not None else ():
        assert pins is not None  # it has projects
        pinned = pins.get(before, project)
        if pinned is None or project in registry.trust.configured or (uuid and pins.get(uuid, project)):
            continue
        latest = later = log.read(project, numbers.get(project, 0))
        while later is not None and later.key != pinned.key:
            earlier = log.read(project, later.n - 1)
            later = earlier if earlier is not None and later.follows(earlier) else None
        if later is not None and later.registry == uuid:
            continue
        has = f"has the key {latest.key} there" if latest else "has no key there"
        raise UntrustedError(
            document_key(project, latest.n if latest else 1),
            f"{registry.name} is another registry than before, {project} {has}, and {pinned.key}, which this machine "
            f"has trusted since {pinned.at:%Y-%m-%d}, did not sign that",
            hint=f"to trust none, {pins.removal(before, project)}; or ask its owner, and if that is the key",
            project=project,
            new_key=latest.key if latest else "KEY",
            remote=registry.remote_name,
        )


def accept_tag(registry: Registry, ref: Ref) -> str:
    """Take a tag as it is now, and remember it."""
    refused = ""
    try:
        registry.head(ref)
    except RolledBackError as error:
        if not error.key.startswith(REFS):
            raise
        assert registry.witness is not None  # nothing else raises it
        known = registry.witness.remembered(registry.uuid, ref)
        registry.witness.forget_tag(registry.uuid, ref)
        try:
            registry.head(ref)
        except UntrustedError:
            # A reader cannot accept this: only the holder of the project's key can vouch for it.
            if known is not None:
                registry.witness.remember(registry.uuid, known)
            raise
        refused = error.message
    return refused


def accept_all(registry: Registry) -> Iterator[str]:
    """Take the registry that is at this location now, and every tag of it as it is now.

    Tags that continue what was seen are left alone. Damage that is no rollback stays, for ``verify`` to report.

    Yields:
        What was refused until now: the registry, then each tag.
    """
    if refused := accept_registry(registry):
        yield refused
    if registry.witness is None:
        return
    for error in registry.witness.find_damage(registry.refs, registry.uuid):
        if (
            isinstance(error, RolledBackError)
            and error.key.startswith(REFS)
            and (refused := accept_tag(registry, ref_of(error.key)))
        ):
            yield refused
