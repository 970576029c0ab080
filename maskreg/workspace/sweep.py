"""Sweep: extract an artifact from every checkpoint of a run, and go on where an earlier sweep ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from maskreg.checkpoint.run import checkpoints_of
from maskreg.digest import Digest
from maskreg.errors import ConfigError, MaskregError, NoSpaceError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import DEFAULT_TAG, Card, Ref
from maskreg.result import Result
from maskreg.workspace.engines import engine_of
from maskreg.workspace.extract import extract, merged_card
from maskreg.workspace.sweep_side import SweepSide, room_of
from maskreg.workspace.swept import Extractions
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_name, opened

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact

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
        digest: its artifact; None while there is none.
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

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints; an error with its code and its hint."""
        error = self.error
        fault = None if error is None else error.to_json()
        return {**super().to_json(), "error": fault}


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
    family: str = "",
    method: str = "",
    license: str = "",
    description: str = "",
    meta: Mapping[str, str] | None = None,
    rule: str = "exact",
    mask_only: bool = False,
    reversible: bool = False,
    allow_mismatch: bool = False,
    device: str = "cpu",
    download: bool = False,
    with_code: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
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
        family: model family of every artifact.
        method: how the run trained: ``opd``, ``rlvr``, ``sft`` or another word.
        license: SPDX identifier.
        description: one paragraph for people.
        meta: run metadata.
        rule: what counts as moved: ``exact``, ``abs:TAU`` or ``rel:ETA``.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the other side's values too.
        allow_mismatch: store whole, or list, tensors that do not pair up.
        device: ``cpu``, ``cuda`` or ``cuda:N``; no result depends on it.
        download: fetch a source from the hub that is not in the cache.
        with_code: take along small files that can run code too.
        force: move names that others may use.
        dry_run: only say which checkpoints there are, and which were extracted before.
        progress: progress callback, in bytes of both checkpoints of each comparison.
        workspace: where to store them; by default what the settings say.

    Returns:
        What became of each checkpoint; see :attr:`Sweep.failed`.

    Raises:
        UsageError: options that contradict each other, a name with a tag or a digest, no source where one is needed,
            or a rule that makes no sense.
        NotFoundError: nothing matches, or there is no such source.
        DataError: the source cannot be read.
        NoSpaceError: the disk would fill up; what was extracted is kept.
        ConfigError: no such device, or wrong settings.
    """
    base = as_name(name)
    _check(base, onto, source)
    from maskreg.tensors.rules import parse_rule

    options: dict[str, Any] = {
        "rule": parse_rule(rule).name,
        "mask_only": mask_only,
        "reversible": reversible,
        "allow_mismatch": allow_mismatch,
        "with_code": with_code,
    }
    card: dict[str, Any] = {"family": family, "method": method, "license": license, "description": description}
    card["meta"] = dict(meta or {})
    Card(**card).checked()
    rows: list[Swept] = []
    with ExitStack() as stack:
        space = stack.enter_context(opened(workspace))
        stack.enter_context(engine_of(space, "sweep"))
        run = list(checkpoints_of(pattern, space.settings.options_of))
        previous = onto == "previous"
        room = room_of(previous)
        if source is None:
            last = SweepSide(space, run.pop(0).path, "source", room=room, download=download)
        else:
            last = _source_side(space, source, room=room, download=download)
            run = [member for member in run if member.path.resolve() != last.path.resolve()]
        stack.callback(last.close)
        each = _Each(space, card, options, {"device": device, "force": force}, dry_run=dry_run)
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

    def __init__(
        self,
        space: Workspace,
        card: Mapping[str, Any],
        options: Mapping[str, Any],
        how: Mapping[str, Any],
        *,
        dry_run: bool,
    ) -> None:
        """Remember what all of them have in common.

        Args:
            space: where they are stored.
            card: what is said about each.
            options: what the artifacts depend on beside the checkpoints.
            how: options of the extraction that no artifact depends on.
            dry_run: look, and extract nothing.
        """
        self._space, self._card = space, card
        self._options, self._how, self._dry_run = options, how, dry_run
        self._extractions = Extractions(space, options)

    def extract(self, source: SweepSide, target: SweepSide, ref: Ref, progress: Progress) -> Swept:
        """What became of a checkpoint.

        Raises:
            UsageError, ConfigError, NoSpaceError: something that is not about this checkpoint.
        """
        row = Swept(str(target.path), ref, "waiting", str(source.path))
        try:
            key = None
            if source.stamp is not None and target.stamp is not None:
                key = self._extractions.key(source.stamp, target.stamp)
            earlier = None if key is None else self._extractions.recall(key)
            if earlier is not None and self._is_named(ref, earlier.digest):
                return _with(row, "kept", earlier)
            if self._dry_run:
                return row
            said = {**self._card, **self._options, **self._how}
            stored = extract(
                source.checkpoint, target.checkpoint, ref, **said, progress=progress, workspace=self._space
            )
            changed = [side for side in (source, target) if side.has_changed()]
            for side in changed:
                self._space.note(f"{side.path} changed while it was read: the same command again extracts {ref} anew")
                side.close()
            if key is not None and not changed:
                self._extractions.note(key, stored.digest)
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
        card = merged_card(head.card, Card(**self._card))
        if card != head.card and not self._dry_run:
            self._space.local.publish(ref, digest, card=card, after=head)
        return True


class _Labeled:
    """Progress of one checkpoint of several, whose phases say which it is."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label

    def start(self, label: str, total_bytes: int) -> None:
        self._progress.start(f"{label} {self._label}", total_bytes)

    def advance(self, n_bytes: int) -> None:
        self._progress.advance(n_bytes)


def _check(name: Ref, onto: str, source: CheckpointLike | None) -> None:
    if onto not in get_args(Onto):
        raise UsageError(f"onto={onto!r}", hint=f"one of {', '.join(get_args(Onto))}")
    if source is None and onto == "source":
        raise UsageError(
            "name the source that the run began with",
            hint="or compare each checkpoint with the one before it: previous",
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
