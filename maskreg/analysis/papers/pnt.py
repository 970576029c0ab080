"""The Path Not Taken."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import PATH as TITLE
from maskreg.analysis.papers.base import TEXT, Column, Paper, PaperTable
from maskreg.analysis.papers.figures import sparsity, unavailable
from maskreg.analysis.presets import EXACT

_RUNS = "of several runs, not of one: maskreg compare REF REF REF --by module --json"

_SPARSITY = PaperTable(
    where="table 1",
    seen=TEXT,
    scope="not stated; ours is of all tensors, or of those that --role chose",
    rule=EXACT,
    convention="its definition is rel:0.001, which under bf16 is exact; all coordinates count alike",
    columns=(Column("sparsity", "%", sparsity(EXACT)),),
    rows=(
        ("SFT, first of three", (2.8,)),
        ("SFT, second of three", (0.6,)),
        ("SFT, third of three", (18.8,)),
        ("DeepScaleR", (53.8,)),
        ("DeepCoder-1.5B", (45.5,)),
        ("Archer-Code", (52.5,)),
        ("NV-ProRL", (38.4,)),
        ("ProRL-v2", (36.3,)),
        ("Klear-Reasoner-8B", (69.5,)),
        ("GT-Qwen3-8B", (79.9,)),
        ("its own DAPO run", (79.7,)),
        ("UniReason-14B-RL", (68.3,)),
        ("Polaris-4B", (79.3,)),
        ("Polaris-7B", (61.7,)),
        ("UloRL Qwen3-30B-A3B", (91.7,)),
    ),
)

_JACCARD = PaperTable(
    where="table 2",
    seen=TEXT,
    scope="block 13",
    rule=EXACT,
    convention="mean over the pairs of five RLVR runs; beside it that of independent masks of these densities",
    columns=tuple(Column(title, "", unavailable(_RUNS)) for title in ("Jaccard", "random")),
    rows=(
        ("q_proj", (0.580, 0.430)),
        ("k_proj", (0.580, 0.413)),
        ("v_proj", (0.597, 0.467)),
        ("o_proj", (0.552, 0.373)),
        ("down_proj", (0.585, 0.453)),
        ("up_proj", (0.578, 0.443)),
        ("gate_proj", (0.575, 0.437)),
    ),
)

PNT = Paper("pnt", TITLE, (_SPARSITY, _JACCARD))
