"""Why two masks are alike whatever was trained: one of them is, holds, or was made from the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from maskreg.analysis.overlap import OverlapCounts
from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest


@dataclass(frozen=True)
class Ancestry:
    """What an artifact was made from, as far as it is known.

    Attributes:
        steps: by digest of an ancestor, the nearest first: the kinds of the lineage recipes that lead from it to the
            artifact, such as ``("subset", "and")`` for what an ``and`` made of a subset of it.
        unknown: digests of ancestors whose own parents are not known.
    """

    steps: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()

    @classmethod
    def of_parents(cls, artifact: Artifact) -> Ancestry:
        """The parents alone."""
        manifest = artifact.manifest
        kind = (str(manifest.recipe["kind"]),) if manifest.recipe else ()
        return cls(dict.fromkeys(manifest.parents, kind))


@dataclass(frozen=True)
class Relative:
    """A mask, and where it comes from.

    Attributes:
        name: what it is called.
        artifact: opened.
        ancestry: what it was made from.
    """

    name: str
    artifact: Artifact
    ancestry: Ancestry


Pair = tuple[Relative, Relative]


def relation(pair: Pair, table: OverlapCounts) -> Iterator[str]:
    """Why the overlap of two masks says nothing of training, one sentence each; empty where it can."""
    a, b = pair
    if a.artifact.digest == b.artifact.digest:
        yield f"{a.name} and {b.name} are the same artifact"
        return
    if table.a == table.b == table.both:
        what = "hold the same" if table.both else "both hold no"
        yield f"{a.name} and {b.name} {what} coordinates{_of_part(pair, table)}"
    for child, parent in ((a, b), (b, a)):
        kinds = child.ancestry.steps.get(parent.artifact.digest)
        if kinds is not None:
            how = f" ({', then '.join(kinds)})" if kinds else ""
            yield f"{child.name} was made from {parent.name}{how}"


def likeness(pair: Pair, table: OverlapCounts, names: Mapping[str, str]) -> Iterator[str]:
    """What else two masks have in common; their overlap can still be more or less than that gives."""
    a, b = pair
    if table.a != table.b and table.most and table.both == table.most:
        small, large = (a.name, b.name) if table.a < table.b else (b.name, a.name)
        part = _of_part(pair, table)
        yield f"{small} lies in {large}{part and f', counting the coordinates{part}'}"
    common = [ancestor for ancestor in a.ancestry.steps if ancestor in b.ancestry.steps]
    nearest = min((len(a.ancestry.steps[ancestor]) for ancestor in common), default=0)
    for ancestor in common:
        if len(a.ancestry.steps[ancestor]) == nearest:
            yield f"{a.name} and {b.name} were both made from {names.get(ancestor) or Digest(ancestor).short}"


def doubt(pair: Pair) -> Iterator[str]:
    """Why masks without a known relation can still be related."""
    for mask in pair:
        for ancestor in mask.ancestry.unknown:
            yield (
                f"{mask.name} was made from {Digest(ancestor).short}, which is not here, so what that was made from is "
                "not known"
            )


def _of_part(pair: Sequence[Relative], table: OverlapCounts) -> str:
    """What a statement about masks is restricted to: nothing where all of them is compared."""
    whole = all(mask.artifact.manifest.totals.numel == table.numel for mask in pair)
    return "" if whole else " of what is compared"
