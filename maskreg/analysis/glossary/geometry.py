"""Figures of an update's geometry. dW = W1 - W0; sigma are singular values in falling order; a matrix is m by n."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import DSSU
from maskreg.glossary import OWN, Entry

_GEO = "On the Geometry of On-Policy Distillation, appendix C.3"

NORMS = (
    Entry(
        "relative_norm",
        "||dW||_F / ||W0||_F. Pooled: sqrt(sum ||dW||^2) / sqrt(sum ||W0||^2) over all tensors.",
        DSSU,
        ("rel-norm",),
    ),
    Entry("update_norm", "||dW||_F over all tensors, of a checkpoint of a run against the source."),
    Entry("step_norm", "||dW||_F over all tensors, of a checkpoint of a run against the checkpoint before."),
    Entry(
        "concentration",
        "Share of ||dW||_F^2 in the given percent of a tensor's coordinates that moved farthest: ceil(share * numel) "
        "of every tensor, pooled by energy. Of coordinates that moved equally far, as many count as fit.",
        DSSU,
        family=True,
    ),
    Entry("step_density", "Share of coordinates that moved since the checkpoint before, under the rule exact."),
)

SPECTRUM = (
    Entry(
        "spectral_norm",
        "sigma_1 of dW: the farthest that the update moves a vector of length 1. In units of the weights. Of "
        "matrices too large for an exact SVD by the Lanczos method, to a relative residual of 1e-4.",
    ),
    Entry("stable_rank", "||dW||_F^2 / sigma_1^2.", DSSU),
    Entry(
        "energy_top",
        "Share of ||dW||_F^2 in the k largest singular directions. With pct, in that percent of all directions.",
        DSSU,
        ("top",),
        family=True,
    ),
    Entry("effective_rank", "exp(-sum p ln p) with p = sigma / sum sigma: of sigma, not of its square.", DSSU),
    Entry("numerical_rank", "Share of singular values above tolerance * sigma_1.", DSSU, family=True),
    Entry("rank_99", "Smallest k whose largest k directions hold 99 % of ||dW||_F^2.", "effective rank of SGD updates"),
    Entry(
        "hill", "Tail exponent [1/(k-1) sum_{i<k} ln(sigma_i / sigma_k)]^-1 with k = 10.", "Hill (1975); maskreg's k"
    ),
    Entry(
        "gap",
        "The largest ratio sigma_r / sigma_{r+1} for r from 4 to 64: a jump in the spectrum. Stored under the key "
        "step; step_rank is its r, and step_energy the share of the energy in the r directions above it. A merged LoRA "
        "is suspected from a gap of 1.6 on, if its directions hold half of the energy and twice what they hold under "
        "the rounding null.",
        "maskreg, by experiment",
        ("step", "step_rank", "step_energy"),
    ),
)

DIRECTIONS = (
    Entry(
        "angle_mean",
        "Mean principal angle in degrees between the leading k directions of W0 and W1. Left (u) or right (v); "
        "float64, angles below 45 degrees from their sine. Undefined where k is not below the smaller side.",
        f"{_GEO} (k = 512)",
        family=True,
    ),
    Entry(
        "angle_max",
        "Largest principal angle in degrees; see angle_mean.",
        f"{_GEO} (k = 512)",
        ("angle",),
        family=True,
    ),
    Entry("sine_mean", "Mean sine of the left principal angles, sqrt(1 - cos^2).", DSSU, family=True),
    Entry("nss", "||sigma(W1) - sigma(W0)||_2 / ||sigma(W0)||_2, of whole spectra in float64.", _GEO),
    Entry("nss_of_norm", "||sigma(W1) - sigma(W0)||_2 / ||dW||_F.", DSSU),
    Entry(
        "projection",
        "||U_k^T dW V_k||_F^2 / ||dW||_F^2 with the source's leading k = max(1, int(share * min(m, n))) directions. By "
        "chance k^2 / (m n).",
        DSSU,
        family=True,
    ),
    Entry(
        "projection_lift",
        "projection over k^2 / (m n), which a random update gives.",
        aliases=("proj-lift",),
        family=True,
    ),
    Entry(
        "similarity_to_final",
        "||V_K^T V'_K||_F^2 / K of the leading K = 16 right directions of two updates. By chance K / n.",
        "On the Geometry of On-Policy Distillation",
        ("similarity", "similarity_by_chance"),
    ),
)

COVERAGE = (
    Entry(
        "low",
        "Share of the moved coordinates among the ceil(alpha * m * n) of smallest |W0|, ties to the lower flat index. "
        "By chance alpha. The name gives preset, alpha and the rule for moved.",
        f"{DSSU}; {_GEO}",
        family=True,
    ),
    Entry(
        "principal",
        "Share of the moved coordinates among the ceil(alpha * m * n) of largest |U_r S_r V_r^T| of W0. By chance "
        "alpha. The name gives preset, alpha and the rule for moved; r is the preset's.",
        f"{DSSU}; {_GEO}",
        family=True,
    ),
    Entry(
        "principal_not_low",
        "Share of the moved coordinates that are principal and not low. Most of the overlap with principal masks comes "
        "from entries that are both.",
        DSSU,
        family=True,
    ),
)

COLUMNS = (
    Entry("value", "The figure as measured.", aliases=("figure",)),
    Entry("chance", "The figure's expectation for an update that knows nothing, not even of rounding."),
    Entry("pooled", "One number over all compared tensors, not a mean of theirs."),
    Entry("mean", "Over matrices, each counting alike; median and max likewise.", OWN, ("median", "max")),
    Entry("weighted", "Mean over matrices weighted by their moved coordinates, which is the pooled share.", DSSU),
)

GEOMETRY = (*NORMS, *SPECTRUM, *DIRECTIONS, *COVERAGE, *COLUMNS)
"""Definitions, in the order of tables."""

SHARES = frozenset(
    {
        *(
            "density",
            "step_density",
            "concentration",
            "sparsity",
            "energy_top",
            "numerical_rank",
            "projection",
            "similarity_to_final",
        ),
        *("low", "principal", "principal_not_low"),
    }
)
"""Figures of geometry that are shares, by the name of their entry."""

RATIOS = frozenset({"projection_lift"})
"""Figures of geometry that say how many times more."""
