"""What each figure of a comparison means: one paragraph with its formula and where it comes from."""

from __future__ import annotations

import difflib

from maskreg.errors import UsageError

DEFINITIONS = {
    "nnz": (
        "Coordinates in a mask: those that moved under the rule. |A| and |B| are the two masks' numbers, i = "
        "|A and B| how many are in both, N how many coordinates were compared. Only tensors that both masks "
        "cover are counted."
    ),
    "density": ("p = |A| / N and q = |B| / N: the share of the compared coordinates that is in a mask."),
    "coverage": (
        "Share of one mask that lies in the other: of A, |A and B| / |A|; of B, |A and B| / |B|. A uniform "
        'random mask covers any other by its own density. Undefined for an empty mask. Source: "Dense '
        'Supervision, Sparse Updates", arXiv 2606.13657; "RL Finetunes Small Subnetworks", arXiv 2505.11711, '
        "appendix E."
    ),
    "jaccard": (
        "|A and B| / |A or B|. Two independent random masks are expected at pq / (p + q - pq), given as "
        'jaccard_random. Undefined when both are empty. Source: "The Path Not Taken", arXiv 2511.08567, table '
        "2."
    ),
    "jaccard_random": (
        "pq / (p + q - pq): the Jaccard index of two independent uniform masks of these densities. Source: "
        '"RL Finetunes Small Subnetworks", arXiv 2505.11711, appendix E.'
    ),
    "lift": (
        "How many times more coordinates are in both than two independent uniform masks would share: i N / "
        "(|A| |B|). Symmetric. It cannot exceed 1 / max(p, q), so lifts of masks of other densities are not "
        "comparable: see lift_max, phi and odds_ratio. Undefined when a mask is empty. Source: coverage over "
        'its random baseline, "RL Finetunes Small Subnetworks", arXiv 2505.11711, appendix E.'
    ),
    "lift_max": ("1 / max(p, q): the lift of masks of these densities when the smaller lies in the larger."),
    "lift_share": (
        "lift / lift_max, which is i / min(|A|, |B|): the share of the smaller mask that lies in the larger one."
    ),
    "phi": (
        "Correlation of the two masks as 0/1 variables: (i/N - pq) / sqrt(p (1 - p) q (1 - q)). 0 for "
        "independent masks, 1 for equal ones. Undefined when a mask is empty or full. Source: Pearson's phi "
        "coefficient of a 2x2 table."
    ),
    "phi_max": ("The largest phi that masks of these densities can have: phi with i = min(|A|, |B|)."),
    "odds_ratio": (
        "Odds to be in B for coordinates of A, over the same odds for those outside of A: a d / (b c), where "
        "a are in both, b in A only, c in B only, d in neither. It does not saturate as lift does. 1 for "
        "independent masks; undefined when no coordinate is in A only, or none in B only. Not stratified: "
        "whatever makes both masks prefer the same weights raises it."
    ),
    "mantel-haenszel": (
        "The odds ratio that remains within strata: the sum over strata k of a_k d_k / n_k, over the sum of "
        "b_k c_k / n_k. Strata are tensors (by-tensor), exponents of the source's bf16 code (by-exponent), or "
        "exponents within each tensor (by-tensor-and-exponent). 1 means: given the stratum, the masks are "
        "independent. Source: Mantel and Haenszel, J. Natl. Cancer Inst. 22 (1959)."
    ),
    "random-global": (
        "Null: one of the masks redrawn with as many coordinates, anywhere in the group. Expected overlap "
        'pqN; hypergeometric spread. Source: "RL Finetunes Small Subnetworks", arXiv 2505.11711, appendix E.'
    ),
    "random-per-tensor": (
        "Null: one of the masks redrawn with as many coordinates in every tensor, anywhere in it. Expected "
        "overlap: the sum over tensors of n_t p_t q_t. It accounts for tensors that hardly move at all, such "
        "as norms."
    ),
    "exponent-matched": (
        "Null: one of the masks redrawn with as many coordinates in every class of every tensor, a class "
        "being an exponent of the source's bf16 code, with mantissa 0 apart (below a power of two the next "
        "number is half as far). Expected overlap: the sum over tensors and classes of a b / n. Small weights "
        "flip their bf16 code more easily, so any two updates share them; this null takes that out, whatever "
        "it is due to. Needs the source."
    ),
    "rounding-null": (
        "Null: both masks made by rounding alone. An update that knows nothing of the weights, Gaussian noise "
        "of one scale for each tensor, flips a coordinate when it exceeds half the distance to the next bf16 "
        "number: P = Q(up / s) + Q(down / s), by exponent and mantissa = 0. The scale s of each mask and "
        "tensor is fitted to its number of coordinates. Expected overlap: the sum over tensors and classes of "
        "n P_A P_B. Undefined when the source is not stored in bf16, for rules other than exact, and when more "
        "moved than are finite numbers. A tensor of which nothing or everything moved counts as it is. Needs the "
        "source."
    ),
    "rounding-null-a": (
        "The rounding null with A alone redrawn: the sum over tensors and classes of P_A times the "
        "coordinates that are in B. See rounding-null."
    ),
    "rounding-null-b": (
        "The rounding null with B alone redrawn: the sum over tensors and classes of P_B times the "
        "coordinates that are in A. See rounding-null."
    ),
    "expected": (
        "E: the coordinates in both masks that a null expects, given beside it as a number and as the lift "
        "over uniform random that it amounts to. The nulls are random-global, random-per-tensor, "
        "exponent-matched, rounding-null, rounding-null-a and rounding-null-b."
    ),
    "ratio": (
        "Observed over expected: i / E, how many times more coordinates are in both masks than a null "
        "expects. 1 is chance under that null. As lift, it cannot exceed min(|A|, |B|) / E, so a ratio near 1 "
        "may still leave much of the headroom filled."
    ),
    "headroom": (
        "(i - E) / (i_max - E): of what the smaller mask leaves open above a null's expectation E, the share "
        "that is filled; i_max = min(|A|, |B|). 0 is chance under that null, 1 is containment, negative is "
        "less than chance. Undefined when the null already expects the most."
    ),
    "sd": (
        "Standard deviation of the overlap under a null, in coordinates. Random nulls: hypergeometric, ab (n "
        "- a)(n - b) / (n^2 (n - 1)) summed over strata. Rounding: coordinates flip one by one, the sum of n "
        "P (1 - P), a little more than with a fixed number. Billions of coordinates make it tiny, so that "
        "almost any difference is many of them: read headroom and odds ratios for size."
    ),
    "deviations": (
        "(observed - expected) / sd: how many standard deviations of a null the overlap lies above what it expects; "
        "below 0 when less is shared. It grows with the number of coordinates: read headroom and odds ratios for size."
    ),
    "verdict": (
        "More than rounding: the overlap exceeds, by over 5 standard deviations, what random masks share that have as "
        "many coordinates of every tensor and exponent. Without the source: more than chance, by the same rule with "
        "random masks that have as many coordinates of every tensor."
    ),
    "consensus": (
        "How many coordinates are in exactly k of the masks, beside what independent masks of these densities "
        "would show tensor by tensor (Poisson binomial, summed over tensors), and the one "
        "over the other. The mean over masks of the 0/1 "
        'values is the consensus ratio of "The Path Not Taken", arXiv 2511.08567.'
    ),
    "stripes": (
        "Rows and columns of a matrix that move together: the share of rows (columns) that are full and "
        "empty, and the variance of their densities over p (1 - p) / length, which independent coordinates "
        'would show. Far above 1 means stripes. Source: row and column ratios of "The Path Not Taken", arXiv '
        "2511.08567."
    ),
    "seed-overlap": (
        "The lift between two runs of one recipe that differ in their seed: the ceiling to read another "
        "overlap by. Recorded when the cards of both masks say the same family and method and another seed."
    ),
    "groups": (
        "Tensors taken together: by role (ffn, attention, embedding, lm_head, norm, router, other), by layer, or one "
        "by one; all figures are those of these tensors alone. In tables of groups and of pairs the line under a "
        "figure says what it is beside: tensor, random masks with as many coordinates of every tensor "
        "(random-per-tensor); exponent, of every tensor and exponent (exponent-matched); rounding, the rounding null "
        "of both masks. The odds ratio there is the Mantel-Haenszel one within tensors, or within exponents of each "
        "tensor."
    ),
    "lineage": (
        "A mask that was made from another, such as a baseline, shares with it what its making gave it: their overlap "
        "says nothing of training. Told from the parents that artifacts record."
    ),
    "rule": "What counts as moved: exact, abs:TAU or rel:ETA, on bf16 codes. Masks of other rules are other things.",
    "rlvr-overlap": ("The recorded lift against the mask that the tag rlvr-reference of the same source pointed at."),
}
"""Every figure by name."""

ALIASES = {
    "p": "density", "q": "density", "a": "density", "b": "density", "density-a": "density", "density-b": "density",
    "coverage-a": "coverage", "coverage-b": "coverage", "nnz-a": "nnz", "nnz-b": "nnz", "nnz-both": "nnz",
    "in-both": "nnz", "coordinates": "nnz", "mh": "mantel-haenszel", "by-tensor": "mantel-haenszel",
    "by-exponent": "mantel-haenszel", "by-tensor-and-exponent": "mantel-haenszel", "odds": "odds_ratio",
    "overlap": "lift", "observed/expected": "ratio", "of-at-most": "lift_max", "uniform-random": "random-global",
    "per-tensor": "random-per-tensor", "exponent": "exponent-matched", "exponent-matched-random": "exponent-matched",
    "rounding": "rounding-null", "rounding-alone-in-both": "rounding-null", "rounding-alone-in-a": "rounding-null-a",
    "rounding-alone-in-b": "rounding-null-b", "beside": "expected", "nulls": "expected", "ceiling": "seed-overlap",
    "pair": "verdict", "more": "verdict", "null": "verdict", "sentence": "verdict", "parents": "lineage",
    "rules": "rule", "role": "groups", "layer": "groups", "tensor": "groups", "tensors": "groups", "scope": "groups",
    "in-exactly": "consensus", "masks": "consensus", "mask": "consensus", "independent": "consensus",
    "over-independent": "consensus", "rows": "stripes", "columns": "stripes", "full": "stripes", "empty": "stripes",
    "full-rows": "stripes", "empty-rows": "stripes", "full-columns": "stripes", "empty-columns": "stripes",
    "rows-var/binomial": "stripes", "columns-var/binomial": "stripes", "dispersion": "stripes", "variance": "stripes",
    "binomial": "stripes",
}  # fmt: skip
"""Other names that figures have in tables and documents; blanks and underscores are hyphens."""

COLUMNS = {
    "ratio-tensor": ("ratio", "random-per-tensor"),
    "ratio-exponent": ("ratio", "exponent-matched"),
    "ratio-rounding": ("ratio", "rounding-null"),
    "headroom-tensor": ("headroom", "random-per-tensor"),
    "headroom-exponent": ("headroom", "exponent-matched"),
    "odds-ratio-tensor": ("mantel-haenszel", "groups"),
    "odds-ratio-exponent": ("mantel-haenszel", "groups"),
}
"""Columns of tables with a line under their title: the figure, and what it is beside."""


def explain(name: str) -> str:
    """The definition of a figure, in one paragraph that begins with its name.

    Raises:
        UsageError: there is no such figure.
    """
    wanted = _plain(name)
    if wanted in COLUMNS:
        return "; ".join(explain(part) for part in COLUMNS[wanted])
    names = {**{_plain(figure): figure for figure in DEFINITIONS}, **ALIASES}
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1)
        raise UsageError(
            f"there is no figure called {name!r}",
            hint=f"maskreg compare --explain {near[0]}" if near else f"one of: {', '.join(DEFINITIONS)}",
        )
    return f"{names[wanted]}: {DEFINITIONS[names[wanted]]}"


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")
