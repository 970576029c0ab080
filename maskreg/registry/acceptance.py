"""Taking a remote as it is now, on purpose, though it does not continue what this machine has seen of it."""

from __future__ import annotations

from collections.abc import Iterator

from maskreg.errors import RolledBackError, UntrustedError
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.store.entry import REFS, ref_of


def accept_registry(registry: Registry) -> str:
    """Take the registry that is at this location now, though it is not the one that this machine has seen there.

    Its tags are not looked at: what was seen of them belongs to the identity of the registry that had them.

    Returns:
        What was refused until now; empty when nothing was.
    """
    if registry.witness is None:
        return ""
    try:
        registry.witness.check_registry(registry.uuid)
    except RolledBackError as error:
        registry.witness.forget_registry()
        registry.witness.check_registry(registry.uuid)
        return error.message
    return ""


def accept_tag(registry: Registry, ref: Ref) -> str:
    """Take a tag as it is now, and the registry that has it, and remember both.

    Returns:
        What was refused until now; empty when nothing was.

    Raises:
        UntrustedError: its project is signed, and no trusted key vouches for the tag as it is now.
    """
    refused = accept_registry(registry)
    try:
        registry.head(ref)
    except RolledBackError as error:
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
        refused = f"{refused}; {error.message}" if refused else error.message
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
