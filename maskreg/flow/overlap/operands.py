"""What is counted of several masks: the tensors that they share, and the source where it is that of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maskreg.analysis.contingency import MAX_MASKS
from maskreg.analysis.evidence import NO_SOURCE
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.selection import Selection
from maskreg.errors import UsageError
from maskreg.update.verified import VerifiedSource

MASKS_BYTES = 1 << 30
"""Memory for verified parts of all masks together."""


class Operands(NamedTuple):
    """Masks that can be counted together.

    Attributes:
        scope: the tensors that they share.
        source: the checkpoint of all of them, verified while it is read; None where there is none at hand.
        missing: why figures that need it are left out; empty when it is there.
    """

    scope: Scope
    source: VerifiedSource | None
    missing: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What holds for all figures, one sentence each."""
        return (*self.scope.notes, *([self.missing] if self.missing else []))


def operands_of(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None,
    *,
    allow_different: bool,
    selection: Selection,
    jobs: int,
    most: int = MAX_MASKS,
) -> Operands:
    """Check that masks can be counted together, and have them ready for threads.

    Args:
        artifacts: two masks or more.
        source: the checkpoint that they were made from, if it is at hand.
        allow_different: take what masks of other rules, tensors or sources share, instead of refusing.
        selection: the tensors.
        jobs: threads.
        most: masks that can be counted together.

    Raises:
        UsageError: fewer than two masks, or more than ``most``; or no tensor is what the selection names.
        PairMismatchError: their rules, tensors or sources differ.
        PartAbsentError: the mask part of one is absent.
        WrongCheckpointError: the source is another checkpoint.
        DataError: an artifact is damaged.
    """
    if not 2 <= len(artifacts) <= most:
        raise UsageError(f"2 to {most:,} masks can be counted together, not {len(artifacts):,}")
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    verified, missing = _verified_if_shared(artifacts, scope, source, jobs)
    for artifact, row in zip(artifacts, scope.rows[0], strict=True):
        artifact.require("mask")
        artifact.hold_at_most(MASKS_BYTES // len(artifacts))
        artifact.mask_bits(row, 0, 0)  # opens the array once, before threads need it
    return Operands(scope, verified, missing)


def _verified_if_shared(
    artifacts: Sequence[Artifact], scope: Scope, source: Checkpoint | None, jobs: int
) -> tuple[VerifiedSource | None, str]:
    if source is not None and scope.one_source:
        one_checkpoint = len({artifact.manifest.source.root for artifact in artifacts}) == 1
        only = None if one_checkpoint else scope.tensors
        return VerifiedSource(artifacts[0], source, only=only, jobs=jobs), ""
    why = NO_SOURCE if scope.one_source else "the masks have no common source"
    return None, f"figures by exponent and the rounding null are left out: {why}"
