"""Sweep: extract an artifact from every checkpoint of a run, and go on where an earlier sweep ended.

A file that is open stays what it was when another one is renamed to its place. So what says which files are read is
looked up before they are opened, and again after each comparison::

    stamp -> open -> compare with 1 -> the same stamp: a note of 1
                     compare with 2 -> another stamp:  no note of 2; opened anew for 3

What lies in a bucket is read in the version that was stamped, or not at all. A note of the local registry says which
artifact came of which files under which options; one that is lost, damaged or names what is gone costs an extraction::

    sweeps/<sha256 of both sides' stamps and the options>.json    {"digest": ..., "schema": ..., "seal": ...}
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Unpack, get_args

from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint.ahead import HeldCheckpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.layouts import is_adapter
from maskreg.checkpoint.run import Stamp, checkpoints_of, stamp_of
from maskreg.closing import Closing
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import creating, make_folder, replacing
from maskreg.document import canonical
from maskreg.errors import ConfigError, DataError, MaskregError, NoSpaceError, NotFoundError, UsageError
from maskreg.limits import LIMITS
from maskreg.progress import SILENT, Progress
from maskreg.ref import DEFAULT_TAG, Ref
from maskreg.result import Result
from maskreg.workspace.verbs.extract import ExtractOptions, extract, merged_card, parted
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_name, opened

_SCHEMA = "maskreg.swept/1"

Onto = Literal["source", "previous"]
"""What each checkpoint is compared with: the source, or the checkpoint before it."""


@dataclass(frozen=True)
class Swept(Result):
    """What became of one checkpoint of a sweep.

    Attributes:
        checkpoint: where it lies.
        ref: what its artifact is called.
        status: ``new``: extracted now; ``kept``: extracted before, by this or another sweep; ``waiting``: not yet, in
            a dry run; ``failed``.
        onto: the checkpoint that it was compared with.
        density: share of the compared coordinates that moved; None while there is no artifact.
        ffn_density: the same of the FFN.
        size: of the artifact in bytes.
        error: why there is none; None unless it failed.
    """

    checkpoint: str
    ref: Ref
    status: Literal["new", "kept", "waiting", "failed"]
    onto: str
    digest: Digest | None = None
    density: float | None = None
    ffn_density: float | None = None
    size: int | None = None
    error: MaskregError | None = None


@dataclass(frozen=True)
class Sweep(Result):
    """The artifacts of a run.

    Attributes:
        checkpoints: what became of each, in the order of the run.
    """

    checkpoints: tuple[Swept, ...]

    @property
    def failed(self) -> tuple[Swept, ...]:
        """The checkpoints without an artifact because something was wrong with them."""
        return tuple(row for row in self.checkpoints if row.status == "failed")


def sweep(
    pattern: str,
    name: str | Ref,
    *,
    source: CheckpointLike | None = None,
    onto: Onto = "source",
    download: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[ExtractOptions],
) -> Sweep:
    """Extract an artifact from every checkpoint of a run, each under a tag of its own.

    A checkpoint that was extracted before is not read again while its files, the files of the other side and the
    options are what they were: sizes and times of files, ETags in a bucket. An interrupted sweep goes on where it
    ended, and a growing run is swept again and again. The next sweep extracts again what changed while it was
    read, and everything of a source that was given open. A checkpoint without an artifact does not end the others::

        onto="source"      source -> 1    source -> 2    source -> 3
        onto="previous"    source -> 1         1 -> 2         2 -> 3       with 2 damaged: 1 -> 3

    Args:
        pattern: the checkpoints: a path or a URL with ``*``, ``?`` or ``[...]`` in it.
        name: ``[project/]name``; each artifact gets the checkpoint's name as its tag, as in ``run:step-100``.
        source: the checkpoint that the run began with; may be left out with ``onto="previous"``, where the first
            checkpoint then only is what the second is compared with.
        onto: what each checkpoint is compared with, ``source`` or ``previous``.
        dry_run: only say which checkpoints there are, and which were extracted before.

    Returns:
        What became of each checkpoint; see :attr:`Sweep.failed`.

    Raises:
        NotFoundError: nothing matches, or there is no such source.
    """
    base = as_name(name)
    _check(pattern, base, onto, source)
    parted(options)
    rows: list[Swept] = []
    with ExitStack() as stack:
        space = stack.enter_context(opened(workspace))
        stack.enter_context(space.engine("sweep"))
        run = list(checkpoints_of(pattern, space.settings.options_of))
        previous = onto == "previous"
        room = room_of(previous)
        if source is None:
            last = SweepSide(space, run.pop(0).path, "source", room=room, download=download)
        else:
            last = _source_side(space, source, room=room, download=download)
            run = [member for member in run if member.path.resolve() != last.path.resolve()]
        stack.callback(last.close)
        each = _Each(space, options, force=force, dry_run=dry_run)
        for number, member in enumerate(run, 1):
            held = room if previous else 0
            target = SweepSide(space, member.path, "target", base=last, room=held, download=download)
            stack.callback(target.close)
            label = _Labeled(progress, f"{member.label}, {number} of {len(run)}")
            row = each.extract(last, target, replace(base, tag=member.label), label)
            rows.append(row)
            if previous and row.status != "failed":
                last, target = target, last
            target.close()
    return Sweep(tuple(rows))


def _source_side(space: Workspace, source: CheckpointLike, *, room: int, download: bool) -> SweepSide:
    """The source, which can be opened."""
    with space.checkpoint(source, download=download, side="source") as opened:
        if opened is source:
            return SweepSide(space, opened.path, "source", opened=opened)
        # By its path from now on, which a hub id is not.
        return SweepSide(space, opened.path, "source", room=room, download=download)


class _Each:
    """Extracts single checkpoints of a sweep."""

    def __init__(self, space: Workspace, options: ExtractOptions, *, force: bool, dry_run: bool) -> None:
        from maskreg.tensors.rules import parse_rule

        self._space, self._options, self._force, self._dry_run = space, options, force, dry_run
        self._card, how = parted(options)
        # What an artifact depends on beside the files.
        self._said = {name: bool(how.get(name)) for name in ("mask_only", "reversible", "allow_mismatch", "with_code")}
        self._rule = parse_rule(how.get("rule", "exact")).name

    def extract(self, source: SweepSide, target: SweepSide, ref: Ref, progress: Progress) -> Swept:
        """What became of a checkpoint; errors that are not about this one end the sweep."""
        row, space = Swept(str(target.path), ref, "waiting", str(source.path)), self._space
        try:
            note = None
            if source.stamp is not None and target.stamp is not None:
                key = canonical([source.stamp, target.stamp, {**self._said, "rule": self._rule}])
                note = space.root / "sweeps" / f"{Digest.of(key).hex}.json"
            earlier = None if note is None else _recalled(space, note)
            if earlier is not None and self._is_named(ref, earlier.digest):
                return _with(row, "kept", earlier)
            if self._dry_run:
                return row
            sides = source.checkpoint, target.checkpoint
            stored = extract(*sides, ref, force=self._force, progress=progress, workspace=space, **self._options)
            changed = [side for side in (source, target) if side.has_changed()]
            for side in changed:
                space.note(f"{side.path} changed while it was read: the same command again extracts {ref} anew")
                side.close()
            if note is not None and not changed:
                # Without the note the next sweep works again; that is no reason to fail work that is done.
                with suppress(MaskregError), creating(note):
                    make_folder(note.parent)
                    with replacing(note) as file:
                        file.write(sealed({"schema": _SCHEMA, "digest": str(stored.digest)}))
            return _with(row, "new", stored.artifact)
        except (UsageError, ConfigError, NoSpaceError):
            raise
        except MaskregError as error:
            return replace(row, status="failed", error=error)

    def _is_named(self, ref: Ref, digest: Digest) -> bool:
        """Whether a tag points to an artifact; then it gets what is said about it now."""
        head = self._space.local.head(ref)
        if head is None or head.digest != digest:
            return False
        card = merged_card(head.card, self._card)
        if card != head.card and not self._dry_run:
            self._space.local.publish(ref, digest, card=card, after=head)
        return True


def _recalled(space: Workspace, note: Path) -> Artifact | None:
    """The artifact of a note, if it is still in the local registry, whole."""
    try:
        row = parse_sealed(note.read_bytes(), str(note), schema=_SCHEMA, max_bytes=LIMITS.small_file_bytes)
        artifact = space.local.artifact(Digest(str(row["digest"])))
        for part in artifact.manifest.parts:
            artifact.require(part)
    except (OSError, NotFoundError, DataError):
        return None
    return artifact


class _Labeled:
    """Progress of one checkpoint of several, whose phases say which it is."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label

    def start(self, label: str, total_bytes: int) -> None:
        self._progress.start(f"{label} {self._label}", total_bytes)

    def advance(self, n_bytes: int) -> None:
        self._progress.advance(n_bytes)


def _check(pattern: str, name: Ref, onto: str, source: CheckpointLike | None) -> None:
    if not pattern:
        raise UsageError("the pattern of checkpoints is empty", hint="such as out/step-*")
    if onto not in get_args(Onto):
        raise UsageError(f"onto={onto!r}", hint=f"one of {', '.join(get_args(Onto))}")
    if source is None and onto == "source":
        raise UsageError(
            "name the source that the run began with",
            hint="or compare each checkpoint with the one before it",
            options={"onto": "previous"},
        )
    if name.tag != DEFAULT_TAG:
        raise UsageError(
            f"{name}: every checkpoint is a tag of its own, such as {replace(name, tag='step-100')}",
            hint=f"leave out the tag: {replace(name, tag=DEFAULT_TAG)}",
        )


def _with(row: Swept, status: Literal["new", "kept"], artifact: Artifact) -> Swept:
    manifest = artifact.manifest
    return replace(
        row,
        status=status,
        digest=artifact.digest,
        density=manifest.totals.density,
        ffn_density=manifest.totals.ffn.density,
        size=manifest.size,
    )


HELD_BYTES = 4 << 30
"""Memory for what a sweep reads again from a bucket; never more than a quarter of the machine's."""


def room_of(onto_previous: bool) -> int:
    """Bytes of memory for each side that is read again."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(HELD_BYTES, machine // 4) // (2 if onto_previous else 1)


class SweepSide(Closing):
    """A checkpoint of a sweep, opened when it is first read.

    Attributes:
        path: where it lies.
    """

    def __init__(
        self,
        workspace: Workspace,
        path: Location,
        side: str,
        *,
        room: int = 0,
        opened: Checkpoint | None = None,
        base: SweepSide | None = None,
        download: bool = False,
    ) -> None:
        self.path = path
        self._workspace, self._side, self._given = workspace, side, opened
        self._base, self._download, self._room = base, download, room
        self._release = ExitStack()

    @cached_property
    def stamp(self) -> Stamp | None:
        """The files that it is made of, as they were before they were opened; None where a caller has opened it."""
        return self._stamp()

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The open checkpoint."""
        _ = self.stamp  # before it is opened
        opened = self._release.enter_context(self._open())
        fits = sum(info.nbytes for info in opened.tensors.values()) <= self._room
        # The system holds files of a disk by itself; a copy beside its own was measured to save nothing.
        far = isinstance(self.path, BucketPath) and self._given is None
        return self._release.enter_context(HeldCheckpoint(opened)) if far and fits else opened

    def close(self) -> None:
        """Close it. What is read later is what lies there then."""
        self._release.close()
        for name in ("stamp", "checkpoint"):
            vars(self).pop(name, None)

    def has_changed(self) -> bool:
        """Whether its files are others than those that were opened, or gone."""
        try:
            return self._stamp() != self.stamp
        except NotFoundError:
            return True

    def _stamp(self) -> Stamp | None:
        if self._given is not None:
            return None
        if not is_adapter(self.path):
            return stamp_of(self.path)
        # Only who opens it knows its base model.
        with self._open() as adapter:
            locations = adapter.locations()
        return stamp_of(*locations)

    def _open(self) -> AbstractContextManager[Checkpoint]:
        base = self._base.checkpoint if self._base is not None and is_adapter(self.path) else None
        spec = self.path if self._given is None else self._given
        return self._workspace.checkpoint(spec, side=self._side, base=base, download=self._download)
