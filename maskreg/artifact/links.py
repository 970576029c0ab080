"""Links: deltas that stand on another artifact, whose target is their source. Links form a chain.

A training run that publishes its weights again and again makes a chain. Each link names the artifact that it stands on
as its parent, so the digest of the last one fixes all of them::

    base root R0 -> artifact A: R0 -> R1        an extraction; stands on nothing
                    link B:     R1 -> R2        parents: [A], recipe: {"kind": "link"}
                    link C:     R2 -> R3        parents: [B], recipe: {"kind": "link"}

That a link's source root is the target root of its parent is checked wherever a chain is walked; the roots alone say
which checkpoint a link applies to, the parent alone where the link below is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maskreg.digest import Digest
from maskreg.errors import BrokenChainError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maskreg.artifact.manifest import Manifest

LINK_RECIPE: Mapping[str, str] = {"kind": "link"}
"""The lineage recipe of a link."""


class Link(NamedTuple):
    """An artifact of a chain.

    Attributes:
        digest: the artifact.
        manifest: what was computed, and from what.
    """

    digest: Digest
    manifest: Manifest

    @property
    def before(self) -> str:
        """Root of the checkpoint that it applies to."""
        return self.manifest.source.root

    @property
    def after(self) -> str:
        """Root of the checkpoint that it gives."""
        return self.manifest.target.root

    @property
    def below(self) -> Digest | None:
        """The artifact that it stands on; None for the first of a chain."""
        return stands_on(self.manifest)

    def check_on(self, below: Link) -> None:
        """Refuse a parent whose target is not the source.

        Raises:
            BrokenChainError: there is a gap between the two.
        """
        if self.before != below.after:
            raise BrokenChainError(
                f"link {self.digest.short} stands on {below.digest.short}, but applies to root "
                f"{Digest(self.before).short}, and that one gives root {Digest(below.after).short}",
                hint="publish the link again; a damaged chain cannot be followed",
            )


def stands_on(manifest: Manifest) -> Digest | None:
    """The artifact that a link stands on; None for an artifact that is no link."""
    is_link = manifest.kind == "delta" and manifest.recipe is not None and manifest.recipe.get("kind") == "link"
    return Digest(manifest.parents[0]) if is_link and manifest.parents else None
