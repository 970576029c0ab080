"""Changes to tags: add one, edit its card, remove it, restore it. Each appends one entry to the ref log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import EllipsisType
from typing import Literal, TypeAlias

from maskreg.digest import Digest
from maskreg.errors import NotFoundError, StaleError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry.registry import Registry
from maskreg.store.reflog import RefEntry

Expected: TypeAlias = "Digest | Literal['absent'] | None"
"""What the caller has last seen of a tag: the id of its latest entry, or that it is not set. None skips the check."""


def check_expected(ref: Ref, head: RefEntry | None, expected: Expected) -> None:
    """Refuse to change a tag that is not as it was seen.

    Args:
        ref: the tag.
        head: its latest entry.
        expected: what was seen.
    """
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
    *,
    family: str | None = None,
    method: str | None = None,
    license: str | None = None,
    description: str | None = None,
    meta: Mapping[str, str] | None = None,
    by: str = "",
    expected: Expected = None,
) -> RefEntry:
    """Edit the card of a tag. None leaves a field as it is; an empty value in ``meta`` removes its key."""
    live = registry.live(ref)
    check_expected(ref, live, expected)
    _check_pin(ref, live.digest)
    texts = {"family": family, "method": method, "license": license, "description": description}
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
