"""The result of comparing masks: figures of every pair, consensus, stripes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

from maskreg.analysis.consensus import Consensus
from maskreg.analysis.evidence import MATCHED, NULLS, PER_TENSOR, STRIPED, OverlapFigures
from maskreg.analysis.pairwise import PairAnswer, PairMatrix, holm, order_of
from maskreg.analysis.stripes import Stripes
from maskreg.analysis.verdict import LEVEL, Asked, Outcome, Verdict, deciding, verdict
from maskreg.checkpoint.roles import GROUPS
from maskreg.result import Brief, html_table, plain

_ONE_OF_MANY = "of so many answers this one could be wrong by accident"


@dataclass(frozen=True)
class PairOverlap:
    """The overlap of two masks, A and B.

    Attributes:
        names: of A and B.
        digests: of A and B.
        rules: of A and B.
        whole: figures over everything that was compared.
        roles, layers, modules, tensors: the same figures by group; tensors outside every layer are in no layer. Empty
            for groups that were not kept.
        notes: caveats about the figures, one sentence each.
        asked: what the verdict is asked under.
        relations: how one follows from the other, or both from a third, one sentence each; they are among the notes.
        kept: the groups that figures were kept of: some of
            :data:`~maskreg.checkpoint.roles.GROUPS`.
    """

    names: tuple[str, str]
    digests: tuple[str, str]
    rules: tuple[str, str]
    whole: OverlapFigures
    roles: Mapping[str, OverlapFigures]
    layers: Mapping[str, OverlapFigures]
    modules: Mapping[str, OverlapFigures]
    tensors: Mapping[str, OverlapFigures]
    notes: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)
    relations: tuple[str, ...] = ()
    kept: tuple[str, ...] = tuple(GROUPS)

    def __repr__(self) -> str:
        return f"<PairOverlap: {self.verdict.sentence}>"

    def _repr_html_(self) -> str:
        return html_table([("masks", " and ".join(self.names)), ("verdict", self.verdict.sentence)])

    def by(self, kind: str) -> Mapping[str, OverlapFigures]:
        """The figures of every group.

        Args:
            kind: one of :data:`~maskreg.checkpoint.roles.GROUPS`.
        """
        groups: Mapping[str, OverlapFigures] = getattr(self, f"{kind}s")
        return groups

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap is more, or less, than chance."""
        return verdict(self.whole, self.names, self.asked)

    @property
    def scope(self) -> dict[str, int]:
        """How much was compared: tensors and coordinates."""
        return {"tensors": self.whole.tensors, "coordinates": self.whole.counts.numel}

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null, and groups that were not kept are absent."""
        groups = {f"{kind}s": self.by(kind) for kind in self.kept}
        return {
            "names": list(self.names),
            "digests": list(self.digests),
            "rules": list(self.rules),
            "scope": self.scope,
            "whole": self.whole.to_json(),
            **{kind: {name: figures.to_json() for name, figures in group.items()} for kind, group in groups.items()},
            "verdict": plain(asdict(self.verdict)),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Comparison(Brief):
    """Two or more masks compared.

    Attributes:
        pairs: every pair, in the order in which the masks were given.
        consensus: how many coordinates are in how many masks; None for two masks.
        stripes: for each mask, the stripes of its matrices by name; empty unless requested.
        matrix: the pairs beside each other, with answers that hold for all of them together; None for two masks.
    """

    pairs: tuple[PairOverlap, ...]
    consensus: Consensus | None
    stripes: tuple[Mapping[str, Stripes], ...]
    matrix: PairMatrix | None = None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The answer about every pair; of several, corrected for their number."""
        if self.matrix is None:
            return tuple(pair.verdict.outcome for pair in self.pairs)
        return tuple(pair.outcome for pair in self.matrix.pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "matrix": None if self.matrix is None else self.matrix.to_json(),
            "pairs": [pair.to_json() for pair in self.pairs],
            "consensus": None if self.consensus is None else self.consensus.to_json(),
            "stripes": [{name: asdict(stripes) for name, stripes in mask.items()} for mask in self.stripes],
        }


def matrix_of(pairs: Sequence[PairOverlap], names: Sequence[str]) -> PairMatrix:
    """The matrix of some masks.

    Args:
        pairs: every pair, in the order of the masks.
        names: of the masks.
    """
    verdicts = [pair.verdict for pair in pairs]
    null = _strictest(pairs)
    tested = sum(_is_tested(alone) for alone in verdicts)
    corrected = holm([alone.p for alone in verdicts], tested)
    answers = []
    for masks, pair, alone, p in zip(combinations(range(len(names)), 2), pairs, verdicts, corrected, strict=True):
        excess = pair.whole.nulls[null]
        stands = not _is_tested(alone) or (p is not None and p <= LEVEL)
        answers.append(
            PairAnswer(
                masks,
                pair.asked.start,
                excess.headroom,
                excess.headroom_interval,
                alone.null,
                alone.headroom,
                alone.outcome if stands else Outcome.OPEN,
                alone.outcome,
                alone.p,
                p,
                "; ".join(pair.relations),
                alone.reason or ("" if stands else _ONE_OF_MANY),
            )
        )
    matrix = PairMatrix(tuple(names), null, pairs[0].asked.smallest, tested, tuple(answers))
    known = all(pair.whole.nulls[MATCHED].expected is not None for pair in pairs)
    return replace(matrix, order=order_of(matrix.headrooms), with_source=known)


def _strictest(pairs: Sequence[PairOverlap]) -> str:
    shared = set(NULLS).intersection(*(deciding(pair.whole) for pair in pairs))
    return next(null for null in (STRIPED, MATCHED, PER_TENSOR) if null in shared)


def _is_tested(alone: Verdict) -> bool:
    return bool(alone.null)
