"""Taking a remote as it is now, on purpose, though it does not continue what this machine has seen of it."""

from __future__ import annotations

from collections.abc import Iterator

from maskreg.errors import RolledBackError, UntrustedError
from maskreg.ref import Ref
from maskreg.registry.keys import document_key
from maskreg.registry.registry import Registry
from maskreg.store.entry import REFS, ref_of


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
            # Not for who reads to accept: only who has the key of the project can vouch for it.
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
    for error in registry.witness.audit(registry.refs, registry.uuid):
        if (
            isinstance(error, RolledBackError)
            and error.key.startswith(REFS)
            and (refused := accept_tag(registry, ref_of(error.key)))
        ):
            yield refused
