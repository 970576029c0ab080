"""Merging: a new update, or a new checkpoint, of several updates of one source."""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.flow.merge.base import Method
from maskreg.flow.merge.breadcrumbs import METHOD as BREADCRUMBS
from maskreg.flow.merge.consensus import METHOD as CONSENSUS
from maskreg.flow.merge.dare import METHOD as DARE
from maskreg.flow.merge.della import METHOD as DELLA
from maskreg.flow.merge.karcher import METHOD as KARCHER
from maskreg.flow.merge.linear import METHOD as LINEAR
from maskreg.flow.merge.model_stock import METHOD as MODEL_STOCK
from maskreg.flow.merge.multislerp import METHOD as MULTISLERP
from maskreg.flow.merge.nearswap import METHOD as NEARSWAP
from maskreg.flow.merge.negate import METHOD as NEGATE
from maskreg.flow.merge.ram import METHOD as RAM
from maskreg.flow.merge.ram_plus import METHOD as RAM_PLUS
from maskreg.flow.merge.restrict import METHOD as RESTRICT
from maskreg.flow.merge.scale import METHOD as SCALE
from maskreg.flow.merge.sce import METHOD as SCE
from maskreg.flow.merge.slerp import METHOD as SLERP
from maskreg.flow.merge.task_arithmetic import METHOD as TASK_ARITHMETIC
from maskreg.flow.merge.ties import METHOD as TIES
from maskreg.flow.merge.ties_per_tensor import METHOD as TIES_PER_TENSOR
from maskreg.flow.merge.union import METHOD as UNION

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        LINEAR,
        TASK_ARITHMETIC,
        TIES,
        TIES_PER_TENSOR,
        DARE,
        BREADCRUMBS,
        DELLA,
        MODEL_STOCK,
        SLERP,
        MULTISLERP,
        KARCHER,
        SCE,
        NEARSWAP,
        RAM,
        RAM_PLUS,
        UNION,
        CONSENSUS,
        RESTRICT,
        SCALE,
        NEGATE,
    )
}
"""Every method by name."""
