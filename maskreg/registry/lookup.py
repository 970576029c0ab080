"""Which artifact the first digits of a digest mean, and which tags point to it, now or ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError, UsageError
from maskreg.ref import Ref, ShortDigest
from maskreg.registry.index.manifests import digests_in
from maskreg.registry.registry import Registry
from maskreg.store.backrefs import NAMES, BackReference

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
        raise UsageError(
            f"{digest.short} has no name in {registry.name}, and this needs one", unnamed=digest, name="NAME:TAG"
        )
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
    """Tags of which some entry names an artifact, whether they do now or not; a tag may come several times.

    A back reference alone proves nothing: it is written before its entry, which may never follow. What is damaged
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
