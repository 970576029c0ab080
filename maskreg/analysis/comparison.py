"""The result of comparing masks: figures of every pair, consensus, stripes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from maskreg.analysis.consensus import Consensus
from maskreg.analysis.evidence import OverlapFigures
from maskreg.analysis.stripes import Stripes
from maskreg.analysis.verdict import Asked, Verdict, verdict
from maskreg.result import plain


@dataclass(frozen=True)
class PairOverlap:
    """The overlap of two masks, A and B.

    Attributes:
        names: of A and B.
        digests: of A and B.
        rules: of A and B.
        whole: figures over everything that was compared.
        roles, layers, modules, tensors: the same figures by group; tensors outside every layer are in no layer.
        notes: caveats about the figures, one sentence each.
        asked: what the verdict is asked under.
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

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap is more, or less, than chance."""
        return verdict(self.whole, self.names, self.asked)

    @property
    def scope(self) -> dict[str, int]:
        """How much was compared: tensors and coordinates."""
        return {"tensors": self.whole.tensors, "coordinates": self.whole.counts.numel}

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        groups = {"roles": self.roles, "layers": self.layers, "modules": self.modules, "tensors": self.tensors}
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
class Comparison:
    """Two or more masks compared.

    Attributes:
        pairs: every pair, in the order in which the masks were given.
        consensus: how many coordinates are in how many masks; None for two masks.
        stripes: for each mask, the stripes of its matrices by name; empty unless requested.
    """

    pairs: tuple[PairOverlap, ...]
    consensus: Consensus | None
    stripes: tuple[Mapping[str, Stripes], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "pairs": [pair.to_json() for pair in self.pairs],
            "consensus": None if self.consensus is None else self.consensus.to_json(),
            "stripes": [{name: asdict(stripes) for name, stripes in mask.items()} for mask in self.stripes],
        }
