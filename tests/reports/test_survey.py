"""The survey of a report: where it replaces comparisons, and what 200 masks look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.analysis.evidence import MATCHED
from maskreg.analysis.survey import Survey
from maskreg.reports import findings as module
from maskreg.reports.findings import Findings, NamedMask, gather
from maskreg.reports.page import plots_of
from maskreg.reports.words import OPEN, answer
from tests.reports.conftest import EVIL, named


def run(count: int) -> Survey:
    at = np.arange(count)
    both = 1000 + 100 * np.minimum(at[:, None], at) - 2 * np.abs(at[:, None] - at)
    names = tuple(f"team/run:step-{10 * number}{EVIL if number == 1 else ''}" for number in range(count))
    return Survey(names, 100_000, both, both / 2, MATCHED)


@pytest.fixture(scope="module")
def surveyed(masks: tuple[NamedMask, NamedMask], home: Path) -> Findings:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "MOST_COMPARED", 2)
        return gather(masks[0], [masks[1], named(home, "team/third:v1", 0.2, 300)])


def test_many_masks_are_surveyed_and_have_no_answers(surveyed: Findings) -> None:
    assert surveyed.survey is not None
    assert surveyed.survey.sizes[0] == surveyed.manifest.totals.nnz
    assert (surveyed.others, surveyed.matrix) == ((), None)
    mark, _, sentence = answer(surveyed)
    assert mark == OPEN
    assert sentence.startswith("2 masks stand beside this one")
    assert "survey" in plots_of(surveyed)
