"""No Task Vector is an Island."""

from __future__ import annotations

from maskreg.analysis.glossary.updates import COMP as TITLE
from maskreg.analysis.papers.base import TEXT, Column, Paper, PaperTable
from maskreg.analysis.papers.figures import density, unavailable
from maskreg.analysis.presets import EXACT

_TWO_UPDATES = "of two updates, not of one: maskreg compare REF REF --updates"

_DENSITY = PaperTable(
    where="text on the sparsity of updates",
    seen=TEXT,
    scope="not stated; ours is of all tensors, or of those that --role chose",
    rule=EXACT,
    convention="the share of an update that is not zero, of checkpoints saved as bf16; all coordinates count alike",
    columns=(Column("update density", "%", density(EXACT)),),
    rows=(
        ("SmolLM3-3B, OPD on mathematics", (1.27,)),
        ("SmolLM3-3B, RL on mathematics", (21.04,)),
        ("SmolLM3-3B, OPD on code", (1.31,)),
        ("SmolLM3-3B, RL on code", (27.98,)),
    ),
)

_CHANNELS = PaperTable(
    where="text on MLP channels",
    seen=TEXT,
    scope="the channels of every MLP",
    rule="none: squared updates",
    convention="Jaccard's index of the top 10 % of the channels of two tasks, mean over 10 pairs of tasks",
    columns=(Column("Jaccard", "", unavailable(_TWO_UPDATES)),),
    rows=(("Qwen3-4B, RL", (0.15368,)), ("Qwen3-4B, OPD", (0.11064,))),
)

COMP = Paper("comp", f"{TITLE} (2026)", (_DENSITY, _CHANNELS))
