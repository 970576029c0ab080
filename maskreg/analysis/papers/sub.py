"""RL Finetunes Small Subnetworks."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import SUBNETWORKS as TITLE
from maskreg.analysis.papers.base import TEXT, Column, Paper, PaperTable
from maskreg.analysis.papers.figures import sparsity, unavailable
from maskreg.analysis.presets import ABSOLUTE

_SCOPE = "all parameters, a tied head once, vectors included"
_TWO_MASKS = "of two masks, not of one; extract both with --rule abs:1e-5: maskreg compare REF REF --verbose"


def _other(tolerance: str) -> Column:
    reason = f"an analysis has exact and {ABSOLUTE}: maskreg extract SOURCE TARGET --rule abs:{tolerance} --name NAME"
    return Column(f"sparsity at {tolerance}", "%", unavailable(reason))


_SPARSITY = PaperTable(
    where="table 1",
    seen=TEXT,
    scope=_SCOPE,
    rule=ABSOLUTE,
    convention="all coordinates count alike; its script prints an unweighted mean of the densities of tensors",
    columns=(Column("sparsity", "%", sparsity(ABSOLUTE)),),
    rows=(
        ("Tulu-3-8B, DPO", (81.4,)),
        ("Tulu-3-70B, DPO", (95.2,)),
        ("DeepSeek-R1-Zero", (86.0,)),
        ("ORPO", (76.9,)),
        ("PRIME", (77.0,)),
        ("SFT", ("6 to 15",)),
    ),
)

_TOLERANCES = PaperTable(
    where="table 6",
    seen=TEXT,
    scope=_SCOPE,
    rule="abs, at four tolerances",
    convention="one ULP step of weights below 0.002 is less than 1e-5, so the last column hides them",
    columns=(*map(_other, ("1e-8", "1e-7", "1e-6")), Column("sparsity at 1e-5", "%", sparsity(ABSOLUTE))),
    rows=(
        ("Tulu-3-8B-DPO", (76.04, 76.04, 76.14, 81.38)),
        ("Tulu-3-70B-DPO", (87.58, 87.59, 87.79, 95.24)),
        ("deepseek-math-7b-rl (GRPO)", (68.14, 68.14, 68.14, 68.53)),
        ("Eurus-7b-kto", (71.78, 71.79, 73.14, 95.98)),
        ("math-shepherd-mistral-7b-rl (PPO)", (52.45, 52.47, 53.21, 80.77)),
        ("Eurus-2-7B-PRIME", (75.26, 75.27, 75.36, 77.04)),
        ("Mistral-7B-Instruct-SimPO", (59.37, 59.40, 60.31, 89.07)),
    ),
)

_OVERLAP = PaperTable(
    where="table 4",
    seen=TEXT,
    scope=_SCOPE,
    rule=ABSOLUTE,
    convention="share of each mask that lies in the other; beside it the other's density, which a random mask has",
    columns=tuple(
        Column(title, "%", unavailable(_TWO_MASKS))
        for title in ("coverage of A", "random A", "coverage of B", "random B")
    ),
    rows=(
        ("two seeds (DPO)", (60.5, 36.7, 60.6, 36.7)),
        ("A and B on other data (Tulu, PRIME)", (26.7, 14.6, 67.1, 36.7)),
        ("other seed, data and algorithm (DPO, PRIME)", (59.1, 23.0, 33.2, 12.9)),
    ),
)

SUB = Paper("sub", TITLE, (_SPARSITY, _TOLERANCES, _OVERLAP))
