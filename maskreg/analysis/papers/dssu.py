"""Dense Supervision, Sparse Updates."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import DSSU as TITLE
from maskreg.analysis.papers.base import NOTE, Column, Paper, PaperTable
from maskreg.analysis.papers.figures import PERCENT, energy_share, mean, relative_norm, sparsity, unavailable
from maskreg.analysis.presets import ABSOLUTE

_TWO_MASKS = "of two masks, not of one; extract both with --rule abs:1e-5: maskreg compare REF REF --verbose"

_MAIN = PaperTable(
    where="main table",
    seen=NOTE,
    scope="all floating tensors that both checkpoints have, embeddings, norms and biases included; spectra and "
    "coverage: matrices whose smaller side is at most 4096",
    rule=ABSOLUTE,
    convention="coverage of the top 10 % of coordinates, with as many directions as 10 % of the smaller side; how "
    "matrices are averaged is not said, ours are unweighted means; the norm is of all tensors together",
    columns=(
        Column("relative norm", "%", relative_norm),
        Column("sparsity", "%", sparsity(ABSOLUTE)),
        Column("energy in the top 16", "%", mean("energy_top_16", "rank", PERCENT)),
        Column("stable rank", "", mean("stable_rank", "rank")),
        Column("principal coverage", "%", mean(f"principal_dssu_0.10@{ABSOLUTE}", "coverage", PERCENT)),
        Column("low-magnitude coverage", "%", mean(f"low_dssu_0.10@{ABSOLUTE}", "coverage", PERCENT)),
    ),
    rows=(
        ("Qwen2.5-Math-1.5B, offline distillation", (11.936, 3.06, 8.57, 82.74, 9.95, 10.10)),
        ("DS-Qwen-1.5B, RLVR (DeepScaleR)", (0.073, 77.89, 19.62, 16.07, 5.29, 31.26)),
        ("DS-Qwen-1.5B, RLVR (JustRL)", (0.497, 34.68, None, None, 8.34, None)),
        ("DS-Qwen-1.5B, OPD (teacher DeepScaleR)", (0.047, 82.58, 26.92, 9.97, 4.81, 38.04)),
        ("DS-Qwen-1.5B, OPD (teacher JustRL)", (0.108, 70.43, 40.94, 7.25, 5.46, 23.04)),
        ("MiniCPM5-1B-SFT, OPD", (0.069, 81.65, 26.81, 12.32, 5.39, 39.42)),
        ("Qwen2.5-VL-3B-Instruct, OPD", (0.142, 66.72, 30.52, 12.58, 5.23, 24.99)),
        ("Qwen3-1.7B-Base, OPD", (0.045, 79.03, 19.69, 20.31, 4.45, 34.69)),
        ("Qwen3-4B, self-distillation", (0.036, 89.50, 26.19, 7.77, 4.39, 48.57)),
    ),
)

_ENERGY = PaperTable(
    where="table 3",
    seen=NOTE,
    scope="all floating tensors that both checkpoints have",
    rule="none: sums of squares of the update",
    convention="a share says little beside the share of parameters that the same tensors have: see energy_lift; the "
    "paper takes routers and fused attention for other tensors",
    columns=(
        Column("FFN", "%", energy_share("ffn")),
        Column("attention", "%", energy_share("attention")),
        Column("embedding", "%", energy_share("embedding")),
        Column("head", "%", energy_share("lm_head")),
        Column("other", "%", energy_share("norm", "router", "other")),
    ),
    rows=(
        ("DS-Qwen-1.5B, RLVR (DeepScaleR)", (83.89, 11.41, 2.06, 2.64, 0.0)),
        ("DS-Qwen-1.5B, OPD", (85.88, 11.11, 0.55, 2.46, 0.0)),
        ("MiniCPM, OPD", (65.06, 21.01, 4.69, 9.23, 0.0)),
        ("Qwen2.5-VL, OPD", (81.40, 10.52, 3.48, None, 4.60)),
        ("Qwen3-1.7B, OPD", (69.70, 27.03, 3.27, None, 0.0)),
        ("Qwen3-4B, self-distillation", (62.31, 37.36, 0.33, None, 0.0)),
    ),
)

_PROJECTION = PaperTable(
    where="text on principal projection",
    seen=NOTE,
    scope="matrices whose smaller side is at most 4096",
    rule="none: energy of the update within the leading 10 % of the source's directions, left and right",
    convention="median over matrices. An update that knows nothing of the source has k^2 / (m n), 1 % of a square "
    "matrix and less of others: see projection_lift",
    columns=(Column("principal projection", "%", mean("projection_0.10", "projection", PERCENT, key="median")),),
    rows=(("Qwen2.5-Math-1.5B, offline distillation", (2.22,)), ("every OPD", ("below 1",))),
)

_OVERLAP = PaperTable(
    where="overlap table",
    seen=NOTE,
    scope="all floating tensors that both checkpoints have",
    rule=ABSOLUTE,
    convention="coverage of each mask by the other; a uniform random mask covers by its density",
    columns=tuple(
        Column(title, "%", unavailable(_TWO_MASKS))
        for title in ("density of A", "density of B", "coverage of A", "coverage of B")
    ),
    rows=(
        ("A DeepScaleR (RLVR), B DS-Qwen OPD", (22.11, 17.50, 53.21, 67.20)),
        ("A Qwen2.5-VL GRPO, B its OPD", (13.44, 33.28, 73.53, 29.69)),
        ("A OPD (teacher DeepScaleR), B OPD (teacher JustRL)", (17.50, 29.57, 80.17, 47.45)),
    ),
)

DSSU = Paper("dssu", TITLE, (_MAIN, _ENERGY, _PROJECTION, _OVERLAP))
