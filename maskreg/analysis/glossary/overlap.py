"""Figures of the overlap of masks. N coordinates are compared, i are in both A and B, p = |A| / N, q = |B| / N."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import DSSU, PATH, SUBNETWORKS
from maskreg.glossary import Entry

_APPENDIX = f"{SUBNETWORKS}, appendix E"
_TABLE = "the 2x2 contingency table"

COUNTS = (
    Entry(
        "coverage",
        "Share of one mask that lies in another: of A, i / |A|; of B, i / |B|. A uniform random mask covers any other "
        "by its own density. Undefined for an empty mask.",
        f"{DSSU}; {_APPENDIX}",
        ("coverage-a", "coverage-b"),
    ),
    Entry("nnz-both", "Coordinates in both masks: i.", aliases=("in-both",)),
    Entry(
        "jaccard",
        "|A and B| / |A or B|. Two independent random masks are expected at jaccard_random. Undefined when both are "
        "empty.",
        f"{PATH}, table 2",
    ),
    Entry(
        "jaccard_random",
        "pq / (p + q - pq): the Jaccard index of two independent uniform masks of these densities.",
        _APPENDIX,
    ),
    Entry(
        "lift",
        "How many times more coordinates are in both masks than two independent uniform masks would share: i N / "
        "(|A| |B|). Symmetric. It cannot exceed 1 / max(p, q), so lifts are not comparable between masks of different "
        "densities: see lift_max, phi and odds_ratio. Undefined when a mask is empty.",
        f"coverage over its random baseline, {_APPENDIX}",
    ),
    Entry(
        "lift_max",
        "1 / max(p, q): the lift of masks of these densities when the smaller lies in the larger.",
        aliases=("of-at-most", "maximum"),
    ),
    Entry("lift_share", "Share of the smaller mask that lies in the larger: lift / lift_max = i / min(|A|, |B|)."),
    Entry(
        "phi",
        "Correlation of the two masks as 0/1 variables: (i/N - pq) / sqrt(p (1 - p) q (1 - q)). 0 for independent "
        "masks, 1 for equal ones. Undefined when a mask is empty or full.",
        f"Pearson's phi coefficient of {_TABLE}",
    ),
    Entry("phi_max", "The largest phi that masks of these densities can have: phi with i = min(|A|, |B|)."),
    Entry(
        "odds_ratio",
        "Odds of being in B for coordinates of A, over the same odds for coordinates outside A: a d / (b c), with a in "
        "both, b in A only, c in B only, d in neither. Unlike lift it does not saturate. 1 for independent masks; "
        "undefined when none is in A only, or none in B only. Not stratified: whatever makes both masks prefer the "
        "same weights raises it.",
        f"odds ratio of {_TABLE}",
        ("odds",),
    ),
    Entry(
        "mantel-haenszel",
        "The odds ratio that remains within strata: sum over strata k of a_k d_k / n_k, over the sum of b_k c_k / n_k. "
        "Strata are tensors (by-tensor), exponents of the source's bf16 code (by-exponent), or exponents within each "
        "tensor (by-tensor-and-exponent). 1 means: given the stratum, the masks are independent.",
        "Mantel and Haenszel, J. Natl. Cancer Inst. 22 (1959)",
        ("mh", "by-tensor", "by-exponent", "by-tensor-and-exponent"),
    ),
)

NULLS = (
    Entry(
        "null",
        "A model of updates that know nothing of the weights, and what it predicts for a figure. An overlap has seven: "
        "random-global, random-per-tensor, exponent-matched, row-column-matched, rounding-null, "
        "rounding-null-a and rounding-null-b; its verdict has to hold under each of the finest that apply. A figure of "
        "geometry has one, the rounding-null.",
        aliases=("nulls",),
    ),
    Entry(
        "random-global",
        "Null: one mask redrawn with as many coordinates, anywhere in the group. Expected overlap pqN; hypergeometric "
        "variance.",
        _APPENDIX,
        ("uniform-random",),
    ),
    Entry(
        "random-per-tensor",
        "Null: one mask redrawn with as many coordinates in every tensor, anywhere in it. Expected overlap: sum over "
        "tensors of n_t p_t q_t. It accounts for tensors that hardly move, such as norms.",
        aliases=("per-tensor",),
    ),
    Entry(
        "exponent-matched",
        "Null: one mask redrawn with as many coordinates in every class of every tensor, a class being an exponent of "
        "the source's bf16 code, with mantissa 0 apart. Expected overlap: sum over tensors and classes of a b / n. "
        "Small weights flip their code more easily, so any two updates share them; this null removes that effect, "
        "whatever its cause. Needs the source.",
        aliases=("exponent", "exponent-matched-random"),
    ),
    Entry(
        "row-column-matched",
        "Null: both masks have their rates by exponent class, by row and by column of every matrix, and nothing else "
        "in common. The model of a mask is rounding of Gaussian noise whose size is that of its class, times that of "
        "its row, times that of its column, fitted to its counts. Updates are striped, because activations and second "
        "moments are: this null removes what two masks share by having the same busy rows and columns, or the same "
        "that never move. Without the source it is matched by tensor, row and column.",
        aliases=("the-same-by-row-and-column",),
    ),
    Entry(
        "start",
        "Whether training of one run or more started at the source, bit for bit. Else both can have begun at the same "
        "weights off the bf16 grid: within a run, after resuming, or from full precision. How near a weight is to the "
        "border of its rounding cell does not show in its code, but both runs share it, so both flip what is near. "
        "Whatever the sizes of their steps, that explains at most half of the headroom, up or down. A verdict has to "
        "hold beyond that half unless the start is known: start=yes in the metadata of a card, or --start yes.",
        aliases=("off-the-grid", "off-grid"),
    ),
    Entry(
        "rounding-null",
        "Null: what rounding alone makes of noise as strong as the update. The update is Gaussian noise, independent "
        "of the weights, of one scale s for each tensor, fitted to the number of coordinates that moved. A code flips "
        "when the noise exceeds half the distance to the next bf16 number: P = Q(up / s) + Q(down / s), by class. Of "
        "an overlap: both masks are made so, and the expectation is the sum over tensors and classes of n P_A P_B. Of "
        "a figure of geometry: the same figure of w1 = b(w0 + s z), z standard normal, not rounded where the target is "
        "a full-precision master. Undefined when the source is not stored in bf16, for rules other than exact, and "
        "when more moved than are finite numbers. A tensor of which nothing or everything moved counts as it is. Needs "
        "the source.",
        aliases=("rounding", "rounding-alone", "rounding-alone-in-both"),
    ),
    Entry(
        "rounding-null-a",
        "Null: A alone redrawn by the rounding null. Expected overlap: sum over tensors and classes of P_A times the "
        "coordinates in B.",
        aliases=("rounding-alone-in-a",),
    ),
    Entry(
        "rounding-null-b",
        "Null: B alone redrawn by the rounding null. Expected overlap: sum over tensors and classes of P_B times the "
        "coordinates in A.",
        aliases=("rounding-alone-in-b",),
    ),
    Entry(
        "expected",
        "E: coordinates in both masks that a null expects. Also given as the lift over uniform random that it amounts "
        "to. In a consensus, coordinates in exactly k of independent masks.",
    ),
    Entry(
        "ratio",
        "Observed over expected: i / E. 1 is chance under that null. It cannot exceed min(|A|, |B|) / E, so a ratio "
        "near 1 may still fill much of the headroom.",
        aliases=("observed/expected",),
    ),
    Entry(
        "headroom",
        "Share of the room above a null's expectation that the overlap fills: (i - E) / (min(|A|, |B|) - E). 0 is "
        "chance under that null, 1 is containment. Where the overlap is smaller than expected, the room is that below: "
        "(i - E) / (E - max(0, |A| + |B| - N)), and -1 is the smallest overlap of masks of these sizes. Undefined when "
        "the null already expects the bound.",
        aliases=("smallest-effect", "smallest"),
    ),
    Entry(
        "interval",
        "95 % interval of a headroom, a ratio or an odds ratio, if coordinates of one row or of one column may depend "
        "on each other in any way, and those of one channel of the residual stream in all tensors: 1.96 two-way "
        "clustered standard errors on each side, of the logarithm for odds ratios. Given for two or three masks.",
        "Cameron, Gelbach and Miller, J. Bus. Econ. Stat. 29 (2011)",
        ("95-%-interval", "ratio_interval", "headroom_interval", "mantel_haenszel_intervals"),
    ),
    Entry(
        "sd",
        "Standard deviation of the overlap under a null if coordinates are independent, in coordinates. Random nulls: "
        "hypergeometric, the square root of ab (n - a)(n - b) / (n^2 (n - 1)) summed over strata. Rounding nulls: "
        "coordinates flip independently, and the number of flips is fixed.",
    ),
    Entry(
        "standard_error",
        "Standard error of the difference between the overlap and a null's expectation, if rows and columns may move "
        "together, in coordinates: what the interval is made of.",
    ),
    Entry(
        "deviations",
        "Standard errors between the overlap and a null's expectation: (i - E) / standard error, or / sd where that is "
        "larger or rows and columns were not counted. It grows with the number of coordinates, so read headroom and "
        "odds ratios for the size of an effect.",
        aliases=("chance_of_more", "chance_of_less"),
    ),
    Entry(
        "verdict",
        "Whether an overlap is more or less than rounding, by enough to matter: under each null that decides, the 95 % "
        "interval of the headroom lies above the smallest effect that matters (1 % unless --smallest-effect says "
        "otherwise), or below its negative, and chance alone is rarer than 1 in 10,000, exactly so where counts are "
        "small. No difference that matters: the interval lies between. Otherwise it cannot be told, nor with fewer "
        "than 10 shared coordinates. The nulls that decide are exponent-matched and row-column-matched; half of the "
        "headroom counts as chance unless the start is known. Without the source they are random-per-tensor and "
        "row-column-matched, and the verdict is about chance. Why it cannot be told is its reason. A mask beside "
        "itself, its parent or its child has none.",
        aliases=("pair", "outcome", "sentence", "reason", "asked"),
    ),
    Entry(
        "p",
        "How often an answer of this strength is given where it does not hold: the p value of the border that the 95 % "
        "interval of the headroom must not cross, from both sides; the largest of the nulls that decide. At most .05 "
        "where there is an answer.",
    ),
)

SEVERAL = (
    Entry(
        "matrix",
        "Headrooms of every pair of several masks, all over the strictest null that decides about each of them. An "
        "answer has to hold under each null of its pair. Masks are ordered by average linkage, so "
        "that similar ones are neighbors.",
        aliases=("headrooms", "order", "nearest", "nearest_headroom"),
    ),
    Entry(
        "p_corrected",
        "p for all pairs together: the chance that any answer of that strength or a greater one is wrong is at most "
        "this. The k-th smallest of n values of p is multiplied by n - k + 1. Answers above .05 become: cannot tell. "
        "Pairs that follow from each other or from their sizes are not counted.",
        "Holm, Scand. J. Stat. 6 (1979), 65-70",
        aliases=("holm", "answer", "answers", "alone", "correction", "level", "tested"),
    ),
    Entry(
        "relation",
        "How one of two masks follows from the other, whatever was trained: the same artifact or coordinates, made "
        "from it, all of it inside; or how both follow from a third.",
        aliases=("related",),
    ),
    Entry(
        "consensus",
        "How many coordinates are in exactly k of the masks, against independent masks of these densities. Their "
        "number is Poisson binomial in each tensor and summed over tensors. The mean over masks of the 0/1 values is "
        "the consensus ratio of the source.",
        PATH,
        ("in-exactly", "masks", "independent", "over-independent"),
    ),
    Entry(
        "seed-overlap",
        "Recorded lift between two runs of one recipe that differ in their seed: the ceiling for other overlaps. "
        "Recorded when the cards of both masks give the same family and method and different seeds.",
        aliases=("ceiling",),
    ),
    Entry(
        "rlvr-overlap",
        "Recorded lift against the reference mask: the one that the tag rlvr-reference of the same source pointed at.",
    ),
    Entry(
        "groups",
        "Tensors taken together: by role, layer or module, or one by one; all figures are over these tensors alone. In "
        "tables of groups and of pairs the line under a figure names its null: tensor is random-per-tensor, exponent "
        "is exponent-matched, rounding is the rounding null of both masks. The odds ratio there is Mantel-Haenszel "
        "within tensors, or within exponents of each tensor.",
        aliases=("scope",),
    ),
)

OVERLAP = (*COUNTS, *NULLS, *SEVERAL)
"""Definitions."""

COLUMNS = {
    "ratio-tensor": ("ratio", "random-per-tensor"),
    "ratio-exponent": ("ratio", "exponent-matched"),
    "ratio-rounding": ("ratio", "rounding-null"),
    "headroom-tensor": ("headroom", "random-per-tensor"),
    "headroom-exponent": ("headroom", "exponent-matched"),
    "odds-ratio-tensor": ("mantel-haenszel", "groups"),
    "odds-ratio-exponent": ("mantel-haenszel", "groups"),
}
"""Table columns with a second title line: the figure and its null."""
