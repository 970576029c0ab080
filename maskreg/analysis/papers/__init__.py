"""Published tables, each number with its paper and table, and what an analysis has to stand beside them."""

from __future__ import annotations

from maskreg.analysis.papers.base import Paper, TableBeside, beside
from maskreg.analysis.papers.comp import COMP
from maskreg.analysis.papers.dssu import DSSU
from maskreg.analysis.papers.geo import GEO
from maskreg.analysis.papers.pnt import PNT
from maskreg.analysis.papers.sub import SUB
from maskreg.errors import UsageError

__all__ = ["PAPERS", "Paper", "TableBeside", "beside", "get_paper"]

PAPERS = {paper.name: paper for paper in (COMP, DSSU, GEO, PNT, SUB)}
"""By the name that users type."""


def get_paper(name: str) -> Paper:
    """The paper of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in PAPERS:
        raise UsageError(f"unknown paper {name!r}", hint=f"use one of {', '.join(PAPERS)}")
    return PAPERS[name]
