"""Extract: diff two checkpoints, store what moved, and give it a name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.result import plain
from maskreg.workspace.engines import engine_of
from maskreg.workspace.storing import Naming, Stored, remember
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_name, opened


@dataclass(frozen=True)
class Extracted(Stored):
    """An artifact that an extraction has made.

    Attributes:
        code_files: small files in it that can run code.
        code_left_out: small files of the checkpoints that can run code, and are not in it.
    """

    code_files: tuple[str, ...] = ()
    code_left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        code = {"code_files": plain(self.code_files), "code_left_out": plain(self.code_left_out)}
        return {**super().to_json(), **code}


def extract(
    source: CheckpointLike,
    target: CheckpointLike,
    name: str | Ref | None = None,
    *,
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
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Extracted:
    """Diff two checkpoints and store what moved in the local registry.

    The delta gives the target exactly, unless the rule drops small changes. The same input gives the same digest.
    Memory is bounded, whatever the size of the checkpoints.

    Args:
        source: the checkpoint that the artifact will be applied to: a path, a hub id, or an open one.
        target: the checkpoint that post-training made of it.
        name: ``[project/]name[:tag]``; without one the artifact is known by its digest alone.
        family: model family, such as ``qwen3-8b``.
        method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
        license: SPDX identifier.
        description: one paragraph for people.
        meta: run metadata.
        rule: what counts as moved: ``exact``, ``abs:TAU`` or ``rel:ETA``.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the source's values too, so that the target can be turned back.
        allow_mismatch: store whole, or list, tensors that do not pair up.
        device: ``cpu``, ``cuda`` or ``cuda:N``; the result does not depend on it.
        download: fetch hub checkpoints that are not in the cache.
        with_code: take along small files that can run code too: Python files, and JSON documents that name code which
            the other checkpoint's do not.
        force: move a name that others may use: one that was pulled or pushed, or that another user has set. Its
            history keeps the old artifact.
        progress: progress callback, in bytes of both checkpoints.
        workspace: where to store it; by default what the settings say.

    Raises:
        UsageError: options that contradict each other, a name with a digest, or a rule that makes no sense.
        DataError: checkpoints that do not pair up or cannot be read.
        NotFoundError: there is no such checkpoint.
        ConflictError: others may use the name, and ``force`` is not set: nothing was made; or it was moved
            concurrently, and the artifact is kept.
        ImmutableTagError: the name must not move: refused before the work, or after it with ``force``.
        NoSpaceError: the disk would fill up.
        ConfigError: no such device, or wrong settings.
    """
    from maskreg.flow.extract.extraction import extract as extract_from
    from maskreg.tensors.rules import parse_rule

    parse_rule(rule)
    card = Card(family, method, license, description, dict(meta or {})).checked()
    with ExitStack() as stack:
        space = stack.enter_context(opened(workspace))
        naming = Naming(space, None if name is None else as_name(name), careful=not force)
        before = stack.enter_context(space.checkpoint(source, download=download, side="source"))
        after = stack.enter_context(space.checkpoint(target, download=download, side="target", base=before))
        stack.enter_context(engine_of(space, "extract"))
        extracted = extract_from(
            before,
            after,
            space.root,
            rule=rule,
            mask_only=mask_only,
            reversible=reversible,
            allow_mismatch=allow_mismatch,
            device=device,
            with_code=with_code,
            progress=progress,
        )
        if naming.head is not None and naming.head.digest == extracted.digest:
            # The same artifact again: what people said about it holds.
            card = merged_card(naming.head.card, card)
        stored = naming.store(extracted.digest, card, extracted.notes)
        manifest = stored.artifact.manifest
        remember(space, manifest.source.root, before.path)
        remember(space, manifest.target.root, after.path)
        return Extracted(**vars(stored), code_files=extracted.code_files, code_left_out=extracted.code_left_out)


def merged_card(old: Card, new: Card) -> Card:
    """What is said about an artifact that is made again: what is new, and what holds of the old.

    Args:
        old: the card so far.
        new: what is said now; what is empty leaves the old, but an empty value of ``meta`` takes its key away.
    """
    return Card(
        new.family or old.family,
        new.method or old.method,
        new.license or old.license,
        new.description or old.description,
        {key: value for key, value in {**old.meta, **new.meta}.items() if value},
    )
