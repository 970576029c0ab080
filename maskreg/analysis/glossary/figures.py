"""Definitions of all figures: of a mask, an overlap, an update's geometry, two updates, Adam's state."""

from __future__ import annotations

from maskreg.glossary import OWN, Entry

DSSU = '"Dense Supervision, Sparse Updates", arXiv 2606.13657'
PATH = '"The Path Not Taken", arXiv 2511.08567'
SUBNETWORKS = '"RL Finetunes Small Subnetworks", arXiv 2505.11711'
COMP = '"No Task Vector is an Island"'

MOMENTS = (
    Entry(
        "v_spread",
        "Coefficient of variation of sqrt(v) over the coordinates of a weight: standard deviation over mean. 0 if Adam "
        "scales all coordinates alike, as SGD does.",
        DSSU,
    ),
    Entry("v_zero", "Share of coordinates with v = 0: no gradient has reached them."),
    Entry(
        "m_gradient",
        "Cosine of the first moment and the gradient, -1 to 1. Undefined unless the gradient was saved (grad).",
        DSSU,
    ),
    Entry(
        "m_update",
        "Cosine of -m and the update d = W1 - W0: whether the run ends in the direction that it went in all.",
    ),
    Entry(
        "step_update",
        "Cosine of the next step's direction, -m / (sqrt(v) + 1e-8), and the update; without bias corrections, which "
        "change no direction, and without weight decay.",
    ),
)
"""Definitions, in the order of tables."""


UPDATES = (
    Entry(
        "cosine",
        "<a, b> / (|a| |b|) of two updates, -1 to 1: over all coordinates as one vector, or over a group of tensors. 0 "
        "is no common direction.",
        COMP,
    ),
    Entry(
        "cosine_sd",
        "Standard deviation of the cosine if the sign of every difference were random: sqrt(sum a^2 b^2) / (|a| |b|). "
        "A cosine within two of these says nothing.",
    ),
    Entry(
        "orthogonal",
        "Share of an update's energy that is orthogonal to the other: 1 - cosine^2, the same for both. "
        "orthogonal_by_tensor takes each tensor as a vector of its own and adds up energies: of a, and of b.",
        COMP,
        ("orthogonal_by_tensor", "orthogonal_by_tensor_a", "orthogonal_by_tensor_b", "by tensor"),
    ),
    Entry("energy_a", "Sum of the squares of update a; energy_b of b.", aliases=("energy_b",)),
    Entry(
        "top channels",
        "Jaccard's index of the ceil(channels / 10) MLP channels of largest squared update, mean over the MLPs that "
        "both updates moved, whose number is mlps. A channel is a row of gate_proj and up_proj and the column of "
        "down_proj: one neuron. By chance (expected) is the mean of random sets of that size.",
        COMP,
        ("channels", "by chance", "by_mlp", "mlps"),
    ),
)
"""Definitions, in the order of tables."""


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

SUMMARIES = (
    Entry("value", "The figure as measured.", aliases=("figure",)),
    Entry("chance", "The figure's expectation for an update that knows nothing, not even of rounding."),
    Entry("pooled", "One number over all compared tensors, not a mean of theirs."),
    Entry("mean", "Over matrices, each counting alike; median and max likewise.", OWN, ("median", "max")),
    Entry("weighted", "Mean over matrices weighted by their moved coordinates, which is the pooled share.", DSSU),
)

GEOMETRY = (*NORMS, *SPECTRUM, *DIRECTIONS, *COVERAGE, *SUMMARIES)
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
        "undefined when none is in A only, or none in B only. Not stratified: each cause of both masks preferring the "
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
        "in common. The model of a mask is rounding of Gaussian noise whose size is a product of three: its class's, "
        "its row's and its column's, fitted to its counts. Updates are striped, because activations and second "
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
        "on each other in any way, and so can coordinates of one channel of the residual stream in all tensors: 1.96 "
        "two-way clustered standard errors on each side, of the logarithm for odds ratios. Given for two or three "
        "masks.",
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


MASKS = (
    Entry(
        "rule",
        "What counts as moved. Both checkpoints are cast to bf16 first. exact: the codes differ, with -0.0 equal to "
        "+0.0. abs:TAU: the fp32 difference of the codes exceeds TAU. rel:ETA: it exceeds ETA < 2^-8 "
        "times the larger magnitude, which every change of a code does: rel equals exact. abs hides changes of small "
        "weights, whose ULP step is less than 1e-5. Masks of different rules are not comparable.",
        f"exact: maskreg; abs: {SUBNETWORKS}; rel: On the Geometry of On-Policy Distillation, section 3.1",
        ("rules",),
    ),
    Entry("numel", "Coordinates that were compared.", aliases=("coordinates",)),
    Entry("nnz", "Coordinates in a mask: those that moved under the rule.", aliases=("nnz-a", "nnz-b")),
    Entry(
        "density",
        "Share of the compared coordinates that moved: nnz / numel. Over a group of tensors, the group's nnz over its "
        "numel. In an overlap, p = |A| / N and q = |B| / N over the N coordinates that both masks cover. In an "
        "analysis or a trajectory, under the rule exact.",
        DSSU,
        ("q", "a", "b", "density-a", "density-b"),
    ),
    Entry(
        "sparsity",
        "Share of the compared coordinates that did not move: 1 - density. Pooled over all tensors, vectors included; "
        "sparsity abs:1e-05 and others name their rule.",
        f"exact and rel: On the Geometry of On-Policy Distillation, section 3.1; abs: {SUBNETWORKS}; {DSSU}",
        family=True,
    ),
    Entry(
        "differing",
        "Coordinates whose stored bits differ. The delta holds these; under the rule exact they exceed nnz by the "
        "changes between +0 and -0.",
    ),
    Entry(
        "energy",
        "Sum of squared fp32 differences of the bf16 values, over finite pairs. 0 for masks that were not made by "
        "extracting checkpoints, whose energy is unknown.",
    ),
    Entry(
        "nonfinite",
        "Compared pairs of which a side is NaN or infinite in bf16. The energy leaves them out.",
    ),
    Entry("nan", "Compared coordinates of the target that are NaN."),
    Entry("inf", "Compared coordinates of the target that are infinite in bf16."),
    Entry(
        "param-share",
        "A group's share of the compared coordinates; of the FFN, if none is named. If the group moved like the rest, "
        "its shares of the energy and of the mask would equal it.",
    ),
    Entry(
        "energy-share",
        "Share of the energy that lies in a group of tensors: the group's energy / energy.",
        f"{DSSU}, table 3",
    ),
    Entry("energy-lift", "energy-share over param-share; 1 is no preference."),
    Entry("ffn-energy", "The energy-share of the FFN.", f"{DSSU}, table 3", ("ffn",)),
    Entry("ffn-density", "Share of the FFN's coordinates that moved: FFN nnz / FFN numel.", DSSU),
    Entry("ffn-share", "Share of the moved coordinates that lies in the FFN: FFN nnz / nnz.", DSSU, ("mask-share",)),
    Entry(
        "ffn-lift",
        "ffn-share over the FFN's share of the parameters; 1 is no preference. The keys mask_lift and density_lift "
        "(ffn-density over density) are this same number.",
        aliases=("mask-lift", "density-lift"),
    ),
    Entry("ffn-energy-lift", "ffn-energy over param-share; 1 is no preference."),
    Entry(
        "density-by-exponent",
        "Density of the weights whose magnitude in the source lies between 2^e and 2^(e+1). bf16 keeps 8 significant "
        "bits, so the ULP step, and with it the smallest update that shows, is proportional to the magnitude: small "
        "weights move under any update.",
    ),
    Entry(
        "elsewhere",
        "Share of the mask that lies in other classes of weights than rounding alone would choose: half the sum, over "
        "tensors and classes, of |mask's count - rounding null's count|, over nnz. elsewhere_by_chance is the same for "
        "a mask that rounding did make. It tells where the mask lies by magnitude, not which of the weights of one "
        "magnitude it takes; only a second mask shows whether that choice is more than noise.",
    ),
    Entry(
        "consensus map",
        "C_ij = (1/R) sum_r M_ij of R masks: the share of masks that hold a coordinate. row_dispersion is the "
        "variance of the means of its rows over the variance of independent coordinates with the masks' densities, "
        "sum_r p_r (1 - p_r) / (R^2 n); column_dispersion likewise. Far above 1: masks agree by rows or columns.",
        PATH,
        ("C", "row_dispersion", "column_dispersion", "rows var/indep", "columns var/indep", "in none", "in all"),
    ),
    Entry(
        "stripes",
        "Rows and columns of a matrix that move together. Shares of the rows (columns) that are full and empty, and "
        "dispersion: the variance of their densities over binomial = p (1 - p) / length, the variance of independent "
        "coordinates. Far above 1 means stripes.",
        f"row and column ratios, {PATH}",
        (
            *("rows", "columns", "full", "empty", "full-rows", "empty-rows", "full-columns", "empty-columns", "count"),
            *("rows-var/binomial", "columns-var/binomial", "dispersion", "variance", "binomial"),
        ),
    ),
)
"""Figures of a mask."""

ARTIFACTS = (
    Entry("size", "Bytes of all objects together, the manifest left out."),
    Entry("objects", "Number of stored files."),
    Entry("params", "Elements over all tensors of a checkpoint, compared or not."),
    Entry("dtypes", "Elements of a checkpoint by storage dtype."),
    Entry("tensors", "Number of tensors. In a comparison's groups, the figures of each tensor."),
    Entry("n", "Position of an entry in a tag's log, from 1 on."),
)
"""Numbers of an artifact, its checkpoints and its tag."""
