"""Extract: diff two checkpoints, store what moved, and give it a name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from maskreg.bucket import Location
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.workspace.storing import Naming, Stored, remember
from maskreg.workspace.workspace import CheckpointLike, WorkOptions, Workspace, opened, split_options

if TYPE_CHECKING:
    from maskreg.flow.extract.extraction import ExtractResult


class CardOptions(TypedDict, total=False):
    """What people are told about a new artifact: the fields of its card."""

    family: str
    method: str
    license: str
    description: str
    meta: Mapping[str, str]
    readme: str


class ExtractOptions(CardOptions, WorkOptions, total=False):
    """How two checkpoints are compared, what is kept of the difference, and what is said about it.

    Attributes:
        rule: what counts as moved: ``exact``, which is the default, ``abs:TAU`` or ``rel:ETA``.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the source's values too, so that the target can be turned back.
        allow_mismatch: store whole, or list, tensors that do not pair up.
    """

    rule: str
    mask_only: bool
    reversible: bool
    allow_mismatch: bool


@dataclass(frozen=True)
class Extracted(Stored):
    """An artifact that an extraction has made.

    Attributes:
        code_files: small files in it that can run code.
        code_left_out: small files of the checkpoints that can run code, and are not in it.
    """

    code_files: tuple[str, ...] = ()
    code_left_out: tuple[str, ...] = ()


def extract(
    source: CheckpointLike,
    target: CheckpointLike,
    name: str | Ref | None = None,
    *,
    download: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[ExtractOptions],
) -> Extracted:
    """Diff two checkpoints and store what moved in the local registry.

    The delta gives the target exactly, unless the rule drops small changes. The same input gives the same digest.
    Memory is bounded for checkpoints of any size.

    Args:
        source: the checkpoint that the artifact will be applied to: a path, a hub id, or an open one.
        target: the checkpoint that post-training made of it.
    """
    from maskreg.flow.extract.extraction import checked_rule
    from maskreg.flow.extract.extraction import extract as extract_from

    said, how = split_options(options, CardOptions, ExtractOptions)
    card = card_of(said)
    kept = {"mask_only": how.get("mask_only", False), "reversible": how.get("reversible", False)}
    checked_rule(how.get("rule", "exact"), **kept)
    with ExitStack() as stack:
        space = stack.enter_context(opened(workspace))
        naming = Naming(space, name, careful=not force)
        before = stack.enter_context(space.checkpoint(source, download=download, side="source"))
        after = stack.enter_context(space.checkpoint(target, download=download, side="target"))
        extracted = extract_from(before, after, space.root, **how, progress=progress)
        stored = naming.store(extracted.digest, card, extracted.notes)
        remember(space, stored.manifest.target.root, after.path)
        return remembered(space, stored, extracted, before.path)


def remembered(space: Workspace, stored: Stored, extracted: ExtractResult, source: Location) -> Extracted:
    """The result, after noting where its source is."""
    remember(space, stored.manifest.source.root, source)
    return Extracted(**vars(stored), code_files=extracted.code_files, code_left_out=extracted.code_left_out)


def card_of(said: Mapping[str, Any]) -> Card:
    """The card that options say, checked."""
    return Card(**{**said, "meta": dict(said.get("meta") or {})}).checked()
