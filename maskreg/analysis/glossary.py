"""What the figures of an analysis mean, and where their definitions come from."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from maskreg.errors import UsageError

_DSSU = "Dense Supervision, Sparse Updates (arXiv 2606.13657), its code"
_GEO = "On the Geometry of On-Policy Distillation, appendix C.3"


@dataclass(frozen=True)
class Definition:
    """What a figure is.

    Attributes:
        text: the definition; dW = W1 - W0, sigma are singular values in falling order.
        source: who defines it so.
    """

    text: str
    source: str


GLOSSARY = {
    "sparsity": Definition(
        "share of coordinates that did not move, pooled over all compared tensors, vectors included. Rules on bf16 "
        "casts: exact (the codes differ), abs:1e-05 (their fp32 difference is above 1e-5), rel:0.001 (equal to exact)",
        "exact and rel: GEO 3.1; abs: RL Finetunes Small Subnetworks (arXiv 2505.11711), DSSU",
    ),
    "relative_norm": Definition(
        "||dW||_F / ||W0||_F; pooled: sqrt(sum ||dW||^2) / sqrt(sum ||W0||^2) over all tensors", _DSSU
    ),
    "update_norm": Definition("||dW||_F over all tensors, of a checkpoint of a run against the source", "maskreg"),
    "step_norm": Definition("the same norm of what changed since the checkpoint before", "maskreg"),
    "density": Definition("share of coordinates that moved under the exact rule, on bf16 casts", _DSSU),
    "step_density": Definition("the same share of what changed since the checkpoint before", "maskreg"),
    "numel": Definition("coordinates of the compared tensors", "maskreg"),
    "stable_rank": Definition("||dW||_F^2 / sigma_1^2", _DSSU),
    "energy_top": Definition(
        "share of ||dW||_F^2 in the k largest singular directions; with pct, in that percent of all directions", _DSSU
    ),
    "effective_rank": Definition("exp(-sum p ln p), p = sigma / sum sigma: of sigma, not of its square", _DSSU),
    "numerical_rank": Definition("share of singular values above tolerance * sigma_1", _DSSU),
    "rank_99": Definition("smallest k whose largest k directions hold 99 % of ||dW||_F^2", "SGD effective rank"),
    "hill": Definition("[1/(k-1) sum_{i<k} ln(sigma_i / sigma_k)]^-1 with k = 10", "Hill (1975); maskreg's k"),
    "step": Definition(
        "largest sigma_r / sigma_{r+1} for r from 4 to 64; step_rank is that r, step_energy the energy of the r "
        "directions. A merged LoRA is suspected from a step of 1.6 on, if its directions hold half of the energy and "
        "twice what they hold under the null",
        "maskreg, by experiment",
    ),
    "angle_mean": Definition(
        "mean principal angle in degrees between the leading k directions of W0 and W1, left (u) or right (v); "
        "float64, angles below 45 degrees from their sine; none where k is not below the smaller side",
        _GEO + " (k = 512)",
    ),
    "angle_max": Definition("largest principal angle in degrees; see angle_mean", _GEO + " (k = 512)"),
    "sine_mean": Definition("mean sine of the left principal angles, sqrt(1 - cos^2)", _DSSU),
    "nss": Definition("||sigma(W1) - sigma(W0)||_2 / ||sigma(W0)||_2, both spectra whole, float64", _GEO),
    "nss_of_norm": Definition("||sigma(W1) - sigma(W0)||_2 / ||dW||_F", _DSSU),
    "projection": Definition(
        "||U_k^T dW V_k||_F^2 / ||dW||_F^2 with the source's leading k = max(1, int(share * min(m, n))) directions; by "
        "chance k^2 / (m n)",
        _DSSU,
    ),
    "projection_lift": Definition("projection over k^2 / (m n), what a random update gives", "maskreg"),
    "low": Definition(
        "share of the moved coordinates among the ceil(alpha * m * n) of smallest |W0|, ties to the lower flat index; "
        "by chance alpha. The name says preset, alpha and the rule for moved",
        _DSSU + "; " + _GEO,
    ),
    "principal": Definition(
        "share of the moved coordinates among the ceil(alpha * m * n) of largest |U_r S_r V_r^T| of W0; by chance "
        "alpha. The name says preset, alpha and the rule for moved; r is the preset's",
        _DSSU + "; " + _GEO,
    ),
    "principal_not_low": Definition(
        "share of the moved coordinates that are principal and not low; most of the overlap with principal masks "
        "comes from entries that are both",
        _DSSU,
    ),
    "similarity_to_final": Definition(
        "||V_K^T V'_K||_F^2 / K of the leading K = 16 right directions of two updates; by chance K / n", _DSSU
    ),
    "null": Definition(
        "the same figure for w1 = b(w0 + s z), z Gaussian and independent of w0, s fitted per tensor to the density: "
        "what rounding alone makes of noise as strong as the update. Not rounded where the target is a full-precision "
        "master",
        "maskreg",
    ),
    "chance": Definition("the figure's expectation for an update that knows nothing, not even of rounding", "maskreg"),
    "pooled": Definition("one number over all compared tensors, not a mean of theirs", "maskreg"),
    "value": Definition("the figure as it was measured, beside null and chance", "maskreg"),
    "mean": Definition("over matrices, each counting alike; median and max likewise", "maskreg"),
    "weighted": Definition("mean over matrices weighted by their moved coordinates, which is the pooled share", _DSSU),
}
"""Figures by the beginning of their name."""


ALIASES = {
    "figure": "value", "median": "mean", "max": "mean", "top": "energy_top", "angle": "angle_max",
    "proj_lift": "projection_lift", "rel_norm": "relative_norm", "similarity": "similarity_to_final",
}  # fmt: skip
"""What else figures are called in tables; blanks and hyphens are underscores, dots at the end of a word nothing."""


def explain(figure: str) -> Definition:
    """The definition of a figure, by its full name, its beginning or its title in a table.

    Raises:
        UsageError: there is no such figure.
    """
    plain = re.sub(r"\.?[ -]|[:_.]$", "_", figure.strip().lower()).rstrip("_")
    for title, name in ALIASES.items():
        if plain == title or plain.startswith(f"{title}_"):
            plain = name + plain[len(title) :]
            break
    return GLOSSARY[beginning(plain)]


def beginning(figure: str) -> str:
    """The longest name in the glossary that a figure's name begins with.

    Raises:
        UsageError: there is none.
    """
    fitting = [name for name in GLOSSARY if figure == name or figure.startswith((f"{name}_", f"{name}@"))]
    if not fitting:
        near = difflib.get_close_matches(figure, GLOSSARY, n=1)
        hint = f"maskreg analyze --explain {near[0]}" if near else f"there are {', '.join(GLOSSARY)}"
        raise UsageError(f"there is no figure {figure!r}", hint=hint)
    return max(fitting, key=len)
