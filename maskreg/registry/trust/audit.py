"""One audit of the signed projects of a registry: is every latest entry vouched for, and none of them old."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from maskreg.errors import CorruptError, DataError
from maskreg.ref import Ref
from maskreg.registry.trust.document import document_key
from maskreg.registry.trust.fresh import latest
from maskreg.registry.trust.trust import Trust
from maskreg.store.entry import REFS, ref_of
from maskreg.store.reflog import RefLog


def audit(trust: Trust, refs: RefLog, ref: Ref | None = None) -> Iterator[CorruptError]:
    """Everything of a tag, or of all, for which no trusted key vouches, and keys that are not trusted.

    Args:
        trust: the keys of the registry's projects.
        refs: its log; tags that cannot be read are left to those who check that.
        ref: the tag; all when left out.
    """
    for project in [ref.project] if ref else trust.projects():
        try:
            yield from _project(trust, refs, project, ref)
        except DataError as error:
            yield _as_corrupt(error, document_key(project, 1))


def _project(trust: Trust, refs: RefLog, project: str, ref: Ref | None) -> Iterator[CorruptError]:
    if not (documents := trust.documents(project)):
        return
    unread: list[CorruptError] = []
    heads = {entry.ref: entry for entry in refs.heads(unread, project=project)}
    listed = trust.log.read_heads(project, latest(documents[-1], trust.log, trust.pins, trust.clock()).heads)
    tags = {*heads, *(ref_of(f"{REFS}{path}/") for path in listed)} - {ref_of(error.key) for error in unread}
    for tag in sorted(tags if ref is None else tags & {replace(ref, digest=None)}):
        try:
            trust.check_latest(tag, heads.get(tag))
        except CorruptError as error:
            yield error


def _as_corrupt(error: DataError, key: str) -> CorruptError:
    return (
        error if isinstance(error, CorruptError) else CorruptError(key, error.message, hint=error.hint, **error.facts)
    )
