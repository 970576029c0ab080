"""On the Geometry of On-Policy Distillation."""

from __future__ import annotations

from maskreg.analysis.papers.base import NOTE, TEXT, Column, Paper, PaperTable
from maskreg.analysis.papers.figures import PERCENT, density, mean, sparsity, unavailable
from maskreg.analysis.presets import RELATIVE

TITLE = '"On the Geometry of On-Policy Distillation", arXiv 2606.07082'

_MATRICES = ("attention", "ffn")

_SPARSITY = PaperTable(
    where="table 1",
    seen=TEXT,
    scope="the weight matrices of attention and FFN",
    rule=RELATIVE,
    convention="all coordinates count alike; under bf16 the rule is that of exact",
    columns=(Column("sparsity", "%", sparsity(RELATIVE, _MATRICES)),),
    rows=(
        ("Qwen3-8B-Base, SFT", (8.1,)),
        ("8B, OPD (teacher 32B)", (51.6,)),
        ("8B, GRPO", (77.2,)),
        ("4B, OPD (teacher 8B)", (50.3,)),
        ("4B, OPD (teacher 14B)", (51.1,)),
        ("4B, OPD (teacher 32B)", (51.7,)),
        ("14B, OPD (teacher 32B)", (56.6,)),
        ("8B, OPD on code (teacher 32B)", (57.1,)),
        ("8B, OPD (teacher 30B-A3B)", (48.6,)),
        ("Klear, SFT", (0.6,)),
        ("UniReason-14B, SFT", (18.8,)),
    ),
)

_OVERLAP = PaperTable(
    where="figure 3",
    seen=TEXT,
    scope="the weight matrices of attention and FFN, a fused QKV split in three",
    rule=RELATIVE,
    convention="alpha .3, which follows from the random baseline of 30 % (appendix C.3 says .5); 64 directions; "
    "unweighted mean over matrices; its density is not 1 - sparsity of its table 1, so matrices or means differ. A "
    "fused QKV is split here with --role qkvo",
    columns=(
        Column("update density", "%", density(RELATIVE, _MATRICES)),
        Column("principal overlap", "%", mean(f"principal_geo_0.30@{RELATIVE}", "coverage", PERCENT)),
        Column("low-magnitude overlap", "%", mean(f"low_geo_0.30@{RELATIVE}", "coverage", PERCENT)),
    ),
    rows=(
        ("SFT", (92.73, 29.66, 31.88)),
        ("OPD", (46.28, 27.31, 53.59)),
        ("RLVR", (27.76, 26.65, 73.48)),
    ),
)

_SPECTRA = PaperTable(
    where="text on angles and NSS, and appendix C.3",
    seen=TEXT,
    scope="144 matrices: those of attention in 36 layers",
    rule="none: float64 spectra",
    convention="the largest of 512 principal angles; orders of magnitude are published, not values; unweighted mean "
    "over matrices. A fused QKV is split here with --role qkvo",
    columns=(
        Column("largest angle, left", "degrees", mean("angle_max_u_512", "angles", role="attention")),
        Column("largest angle, right", "degrees", mean("angle_max_v_512", "angles", role="attention")),
        Column("NSS", "", mean("nss", "shift", role="attention")),
    ),
    rows=(
        ("SFT", ("above 10", "above 10", "order of 1e-3")),
        ("OPD", ("about 1", "about 1", "order of 1e-4")),
        ("RLVR", ("below 0.5", "below 0.5", "order of 1e-5")),
    ),
)

_TRAJECTORY = PaperTable(
    where="text on the trajectory",
    seen=NOTE,
    scope="144 matrices: those of attention in 36 layers, at five checkpoints of a run",
    rule="none: the leading 16 right directions of the update",
    convention="what the first checkpoint's directions have in common with those of the last; by chance 16 / n",
    columns=(
        Column(
            "similarity to the final update",
            "",
            unavailable("of a run's checkpoints, not of its end: maskreg analyze --trajectory SOURCE CHECKPOINT..."),
        ),
    ),
    rows=(("OPD, first checkpoint", ("about 0.8",)),),
)

GEO = Paper("geo", TITLE, (_SPARSITY, _OVERLAP, _SPECTRA, _TRAJECTORY))
