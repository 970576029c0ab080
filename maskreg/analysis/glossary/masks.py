"""Figures of one mask or artifact."""

from __future__ import annotations

from maskreg.glossary import Entry

DSSU = '"Dense Supervision, Sparse Updates", arXiv 2606.13657'
PATH = '"The Path Not Taken", arXiv 2511.08567'
SUBNETWORKS = '"RL Finetunes Small Subnetworks", arXiv 2505.11711'

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
        "variance of the means of its rows over that of independent coordinates with the masks' densities, "
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
