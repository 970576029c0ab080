"""Statistics of a mask: densities by tensor, role and layer, and the three FFN ratios."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import add

FFN = "ffn"


@dataclass(frozen=True)
class Counts:
    """Sums over a group of coordinates.

    Attributes:
        nnz: moved under the rule.
        differing: coordinates whose bits differ.
        energy: sum of squared differences over finite pairs.
        nonfinite: pairs that are not finite, which the energy leaves out.
        nan, inf: target coordinates that are NaN, or infinite, in bf16.
    """

    numel: int = 0
    nnz: int = 0
    differing: int = 0
    energy: float = 0.0
    nonfinite: int = 0
    nan: int = 0
    inf: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class Summary:
    """Totals of a mask, by role and by layer, and its FFN ratios."""

    all: Counts
    roles: dict[str, Counts]
    layers: dict[str, Counts]
    ffn: dict[str, float | None]


def ffn_shares(ffn: Counts, everything: Counts) -> dict[str, float | None]:
    """The three FFN ratios by the names in a manifest, with the parameter share and the lifts.

    None where a denominator is 0. The energy share is defined in "Dense Supervision, Sparse Updates" (arXiv 2606.13657,
    table 3).
    """
    param_share = _ratio(ffn.numel, everything.numel)
    energy_share = _ratio(ffn.energy, everything.energy)
    density = _ratio(ffn.nnz, ffn.numel)
    mask_share = _ratio(ffn.nnz, everything.nnz)
    return {
        "param_share": param_share,
        "energy_share": energy_share,
        "energy_lift": _ratio(energy_share, param_share),
        "density": density,
        "density_lift": _ratio(density, _ratio(everything.nnz, everything.numel)),
        "mask_share": mask_share,
        "mask_lift": _ratio(mask_share, param_share),
    }


def summarize(rows: Iterable[tuple[str, str, Counts]]) -> Summary:
    """Add up the role, layer and counts of each tensor; roles and layers without coordinates are left out."""
    everything = Counts()
    roles: dict[str, Counts] = {}
    layers: dict[str, Counts] = {}
    for role, layer, counts in rows:
        if not counts.numel:
            continue
        everything += counts
        roles[role] = roles.get(role, Counts()) + counts
        if layer:
            layers[layer] = layers.get(layer, Counts()) + counts
    return Summary(everything, roles, layers, ffn_shares(roles.get(FFN, Counts()), everything))


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
