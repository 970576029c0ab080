"""Choices of options equal the code's, which the command line does not import for them."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest
from maskreg_cli import analyze, table

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.matrix import METRICS
from maskreg.analysis.updates import UpdatePair
from maskreg.checkpoint.roles import GROUPS
from maskreg.workspace.verbs.compare import Group


def test_groups_are_those_that_figures_are_grouped_by() -> None:
    assert tuple(GROUPS) == table.GROUPS == get_args(Group)


def test_metrics_are_those_of_an_analysis() -> None:
    assert analyze.METRICS == METRICS


@pytest.mark.parametrize("result", [PairOverlap, UpdatePair])
def test_results_have_figures_of_all_groups(result: type[PairOverlap | UpdatePair]) -> None:
    assert {f"{kind}s" for kind in GROUPS} <= {field.name for field in fields(result)}
