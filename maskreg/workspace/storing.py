"""Giving a name to an artifact that a use case has made, and telling what the name pointed to until then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maskreg.bucket import Location
from maskreg.digest import Digest
from maskreg.disk import occupied, refuse_url
from maskreg.errors import ConflictError, ImmutableTagError, MaskregError, OutputExistsError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.store.chain import check_free, check_movable
from maskreg.store.reflog import RefEntry
from maskreg.workspace.workspace import Named, Workspace, as_name


@dataclass(frozen=True)
class Stored(Named):
    """An artifact that was made and stored in the local registry."""

    was: Digest | None = None
    notes: tuple[str, ...] = ()


class Naming:
    """A name of the local registry that a new artifact will get.

    Created before the work begins, and refused then if the name must not move. If another process moves the name in
    the meantime, the work is kept, and the name stays where it is.

    Attributes:
        ref: the name; None for an artifact that gets none.
        head: the name's latest entry when the work began; None when there was none.
    """

    def __init__(
        self, workspace: Workspace, name: str | Ref | None, *, careful: bool, digest: Digest | None = None
    ) -> None:
        """Look up what the name points to now, and ask before it is moved, where there is a terminal."""
        self._workspace = workspace
        self.ref = ref = None if name is None else as_name(name)
        self.head: RefEntry | None = workspace.local.head(ref) if ref else None
        if ref:
            workspace.local.trust.check_signs(ref.project)
        self._careful = careful
        if not careful or self.head is None or self.head.last_digest == digest:
            return
        # Before the work and its progress: a question or a refusal must not come after an hour.
        check_free(self.head)
        if (user := self._user()) and self.head.digest is not None:
            state = f"{self.head.ref} ({self.head.digest.short}) {user}"
            again = "If the new artifact differs, move it? Its history keeps the old one"
            if workspace.confirm is None or not workspace.confirm(f"{state}. {again}"):
                fault, hint = f"{state}, so it is not moved to a new artifact", "choose another tag, or move it"
                raise ConflictError(fault, hint=hint, options={"force": True})
            self._careful = False

    def _user(self) -> str:
        """Other use of the name, to follow "it"; empty without any, as far as is known."""
        head, local = self.head, self._workspace.local
        # A name that is immutable never moves, used or not.
        if head is None or head.immutable or head.deleted:
            return ""
        if head.origin:
            return "was pulled from a remote"
        from maskreg.registry.transfer import is_tracked

        if is_tracked(local, head.ref):
            return "was pushed to a remote"
        return "" if head.by == local.by else f"was set by {head.by}"

    def store(self, digest: Digest, card: Card, notes: Sequence[str] = (), *, derived: Card | None = None) -> Stored:
        """Point the name at an artifact; where the name must not move to it, the artifact is kept.

        Args:
            card: texts of this call; an empty text keeps the earlier one, and an empty value removes a key of meta.
            derived: texts that follow from the inputs; ignored where the name already points to this very artifact.
        """
        local, ref, was = self._workspace.local, self.ref, None
        known = self.head.card if self.head is not None and self.head.digest == digest else derived or Card()
        card = _merged(known, card)
        if ref:
            kept = Ref(ref.project, ref.name, digest=digest)
            user = self._user() if self._careful else ""
            if user and self.head is not None and self.head.digest not in (None, digest):
                raise ConflictError(
                    f"{ref} stays at {self.head.last_digest and self.head.last_digest.short}, because it {user}; the "
                    f"new artifact is {digest.short}, and is kept",
                    keep=kept,
                    keep_as=ref.tag,
                )
            try:
                check_movable(self.head, digest)
                with local.keeping(digest):
                    local.append(ref, digest, card=card, after=self.head)
            except (ConflictError, ImmutableTagError) as error:
                raise type(error)(error.message, keep=kept, keep_as="OTHER-TAG") from error
            was = note_move(self._workspace, ref, self.head, digest)
        note_catalog(self._workspace, local)
        return Stored(ref, local.artifact(digest), card, was, tuple(notes))


def _merged(old: Card, new: Card) -> Card:
    meta = {key: value for key, value in {**old.meta, **new.meta}.items() if value}
    said = {name: getattr(new, name) or text for name, text in vars(old).items()}
    return Card(**{**said, "meta": meta})


def shared_family(operands: Sequence[Named]) -> str:
    """The family of a result: the family of its operands; empty where they differ."""
    families = {operand.card.family for operand in operands}
    return families.pop() if len(families) == 1 else ""


def require_different(operands: Sequence[Named]) -> None:
    """Refuse an artifact that is named twice: it would count twice, as if two agreed."""
    names: dict[Digest, str] = {}
    for operand in operands:
        if (first := names.get(operand.digest)) is not None:
            same = "is named twice" if first == operand.name else f"and {operand.name} are one artifact"
            raise UsageError(f"{first} {same}", hint="name it once")
        names[operand.digest] = operand.name


def remember(workspace: Workspace, root: str, path: Location) -> None:
    """Note where a checkpoint of this identity lies, so that a later ``apply`` finds it."""
    workspace.local.index.saw_source(root, str(path.absolute()))


def free_path(out: str | Path, *, force: bool, source: object = None) -> Path:
    """The path of an output; refused where it is in a bucket, or exists, before anything is searched or read."""
    if out == "":
        raise UsageError("the path to write to is empty", options={"out": None})
    if isinstance(out, str):
        refuse_url(out)
    path = Path(out).expanduser()
    if not occupied(path):
        return path
    real = os.path.realpath(path)  # Path.resolve() is a RuntimeError for links in a circle
    if Path.cwd().is_relative_to(real):
        raise OutputExistsError(path, reason="and the current directory is in it", hint="choose another output")
    if not force:
        if isinstance(source, str | Path) and real == os.path.realpath(source):
            raise OutputExistsError(path, reason="and is the source", hint="choose another output")
        raise OutputExistsError(path, hint="choose another output, or replace it", options={"force": True})
    return path


def note_move(workspace: Workspace, ref: Ref, head: RefEntry | None, digest: Digest) -> Digest | None:
    """Say what a name pointed to before it moved to another artifact, and how to undo that.

    Returns:
        What it pointed to before; None when it is new, was removed, or has not moved.
    """
    was = head.digest if head is not None else None
    if was is None or was == digest:
        return None
    earlier = replace(ref, digest=was)
    workspace.note(MaskregError(f"{ref} was {was.short}", hint="to have it back", earlier=earlier, tag=ref.tag))
    return was


def note_catalog(workspace: Workspace, registry: Registry) -> None:
    """Say so when the catalog could not be used or written: the store is right, not the index."""
    if (problem := registry.index.problem) is not None:
        workspace.note(of_catalog(problem, registry, f"the catalog of {registry.name} was not used: "))


def of_catalog(problem: MaskregError, registry: Registry, prefix: str = "") -> MaskregError:
    """A problem of a catalog, which itself does not know whose it is; without facts it is behind afterwards."""
    facts = {**(problem.facts or {"catalog_damaged": True}), "remote": registry.remote_name}
    hint = f"{problem.hint}; then" if problem.hint and not problem.facts else problem.hint
    return MaskregError(f"{prefix}{problem.message}", hint=hint, **facts)
