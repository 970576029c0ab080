from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from maskreg.analysis.evidence import OverlapFigures, figures_of, sums_from_classes, sums_from_counts
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import Asked
from maskreg.artifact.reader import Artifact
from maskreg.flow.masks import combine
from maskreg.flow.overlap.measure import NamedMask
from maskreg.ref import Card
from maskreg.reports.findings import Findings, gather
from maskreg.reports.words import MORE, NOT_MORE, OPEN, answer
from maskreg.store.file import FileStore


def against(found: Findings, *all_figures: OverlapFigures, independent: bool = True) -> Findings:
    one = found.others[0]
    made = []
    for figures in all_figures:
        overlap = dataclasses.replace(one.overlap, whole=figures, asked=Asked(start="yes"))
        made.append(dataclasses.replace(one, overlap=overlap, independent=independent))
    return dataclasses.replace(found, others=tuple(made))


def classes(both: int) -> OverlapFigures:
    cells = np.zeros((512, 4), np.int64)
    cells[240] = (2000 + both, 4000 - both, 4000 - both, both)
    return figures_of(sums_from_classes(cells, np.full(512, 0.4), np.full(512, 0.4)))


@pytest.mark.parametrize(
    ("both", "mark"),
    [
        *(((2500,), MORE), ((1600,), OPEN), ((500,), NOT_MORE)),
        *(((2500, 2600), MORE), ((2500, 1600), OPEN), ((500, 700), NOT_MORE)),
    ],
)
def test_the_answer_is_that_of_all_masks(found: Findings, both: tuple[int, ...], mark: str) -> None:
    assert answer(against(found, *map(classes, both)))[0] == mark


def test_more_than_chance_is_not_more_than_rounding(found: Findings) -> None:
    without_source = figures_of(sums_from_counts(OverlapCounts(10_000, 4_000, 4_000, 3_900)))
    mark, words, *_ = answer(against(found, without_source))
    assert mark == OPEN and words != answer(dataclasses.replace(found, others=()))[1]
    fewer = figures_of(sums_from_counts(OverlapCounts(10_000, 4_000, 4_000, 600)))
    assert answer(against(found, fewer))[0] == NOT_MORE


def test_one_mask_alone_settles_nothing(found: Findings) -> None:
    assert answer(dataclasses.replace(found, others=()))[0] == OPEN


def test_what_was_derived_settles_nothing(masks: tuple[NamedMask, NamedMask], tmp_path: Path) -> None:
    first, second = masks
    digest = combine([first.artifact, second.artifact], tmp_path, how="or")
    both = NamedMask("both", Artifact.open(FileStore(tmp_path), digest), Card())
    found = gather(first, [both, first, second])
    assert [other.independent for other in found.others] == [False, False, True]
    # Neither does a part of which the mask itself was made.
    assert [other.independent for other in gather(both, [first]).others] == [False]
    assert answer(gather(first, [both]))[0] == OPEN
