"""Giving a name to what a command made, and saying what the name meant until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskreg.errors import ConflictError
from maskreg.ref import Ref

from .output import Output

if TYPE_CHECKING:
    from maskreg.digest import Digest
    from maskreg.ref import Card
    from maskreg.registry import Registry
    from maskreg.store.reflog import RefEntry


def publish(output: Output, here: Registry, ref: Ref, digest: Digest, card: Card, head: RefEntry | None) -> str | None:
    """Point a name of the local registry at an artifact.

    Args:
        output: told what the name pointed to, when that was another artifact.
        here: the local registry.
        ref: the name.
        digest: the artifact.
        card: what people say about it.
        head: the name's latest entry when the work began; None when there was none.

    Returns:
        The digest of that other artifact, for programs; None when there was none.

    Raises:
        ConflictError: the name was moved since; the artifact is kept all the same.
    """
    try:
        here.publish(ref, digest, card=card, after=head.n if head else 0)
    except ConflictError as error:
        # The work is done and kept; only the name was taken meanwhile.
        kept = Ref(ref.project, ref.name, digest=digest)
        raise ConflictError(error.message, hint=f"maskreg tag {kept} OTHER-TAG") from error
    was = head.digest if head is not None else None
    if was is None or was == digest:
        return None
    back = f"maskreg tag {Ref(ref.project, ref.name, ref.tag, was)} {ref.tag}"
    output.note(f"note: {ref} was {was.short}; to have it back: {back}")
    return str(was)
