from __future__ import annotations

import dataclasses
from pathlib import Path

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.evidence import OverlapFigures, figures_of, sums_from_classes, sums_from_counts
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import Asked
from maskreg.flow.masks import combine
from maskreg.ref import Card
from maskreg.reports.findings import Findings, NamedMask, gather
from maskreg.reports.words import MORE, NOT_MORE, OPEN, answer


def against(found: Findings, *all_figures: OverlapFigures, independent: bool = True) -> Findings:
    """The findings with other figures in place of the comparisons'."""
    one = found.others[0]
    made = []
    for figures in all_figures:
        overlap = dataclasses.replace(one.overlap, whole=figures, asked=Asked(start="yes"))
        assert isinstance(overlap, PairOverlap)
        made.append(dataclasses.replace(one, overlap=overlap, independent=independent))
    return dataclasses.replace(found, others=tuple(made))


def classes(both: int) -> OverlapFigures:
    """Masks of 4,000 of 10,000 coordinates of one class; 1,600 are expected in both."""
    import numpy as np

    cells = np.zeros((512, 4), np.int64)
    cells[240] = (2000 + both, 4000 - both, 4000 - both, both)
    return figures_of(sums_from_classes(cells, np.full(512, 0.4), np.full(512, 0.4)))


def test_one_other_mask_settles_it(found: Findings) -> None:
    assert answer(against(found, classes(2500)))[0] == MORE
    assert answer(against(found, classes(2500)))[2].startswith("Yes: the overlap of ")
    assert answer(against(found, classes(1600)))[0] == OPEN
    assert answer(against(found, classes(500)))[0] == NOT_MORE
    assert answer(against(found, classes(500)))[2].startswith("No, it is less:")


def test_several_masks_are_counted(found: Findings) -> None:
    mark, _, sentence = answer(against(found, classes(2500), classes(2600)))
    assert (mark, "2 of 2" in sentence) == (MORE, True)
    mark, _, sentence = answer(against(found, classes(2500), classes(1600)))
    assert (mark, "1 of 2" in sentence) == (OPEN, True)
    assert answer(against(found, classes(500), classes(700)))[0] == NOT_MORE


def test_more_than_chance_is_not_more_than_rounding(found: Findings) -> None:
    without_source = figures_of(sums_from_counts(OverlapCounts(10_000, 4_000, 4_000, 3_900)))
    mark, heading, sentence = answer(against(found, without_source))
    assert (mark, heading) == (OPEN, "More than chance")
    assert "cannot be said without the source" in sentence
    fewer = figures_of(sums_from_counts(OverlapCounts(10_000, 4_000, 4_000, 600)))
    assert answer(against(found, fewer))[0] == NOT_MORE


def test_one_mask_alone_settles_nothing(found: Findings) -> None:
    mark, _, sentence = answer(dataclasses.replace(found, others=()))
    assert (mark, "--against" in sentence) == (OPEN, True)


def test_what_was_derived_settles_nothing(masks: tuple[NamedMask, NamedMask], tmp_path: Path) -> None:
    from maskreg.artifact.reader import Artifact
    from maskreg.store.file import FileStore

    first, second = masks
    digest = combine([first.artifact, second.artifact], tmp_path, how="or")
    both = NamedMask("both", Artifact.open(FileStore(tmp_path), digest), Card())
    found = gather(first, [both, first, second])
    assert [other.independent for other in found.others] == [False, False, True]
    # Neither does a part of which the mask itself was made.
    assert [other.independent for other in gather(both, [first]).others] == [False]
    assert answer(gather(first, [both]))[0] == OPEN
