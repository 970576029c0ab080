"""The ladder of nulls: what each rung says, where it is drawn, and as a file of its own."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.evidence import GLOBAL, MATCHED, NULLS, STRIPED, figures_of, sums_from_classes
from maskreg.analysis.verdict import HIDDEN, Asked, null_label
from maskreg.reports import shared
from maskreg.reports.findings import Findings
from maskreg.reports.ladder import ladder, rungs
from maskreg.reports.theme import LIGHT
from maskreg.words import percent


def overlap(found: Findings, both: int, size: int = 4000, start: str = "unknown") -> PairOverlap:
    """Two masks of 4,000 of 10,000 coordinates of one exponent, which would share 1,600 by chance."""
    cells = np.zeros((512, 4), np.int64)
    cells[240] = (10_000 - 2 * size + both, size - both, size - both, both)
    figures = figures_of(sums_from_classes(cells, np.full(512, 0.4), np.full(512, 0.4)))
    asked: Any = Asked(start=start)  # type: ignore[arg-type]
    return dataclasses.replace(found.others[0].overlap, whole=figures, asked=asked)


@pytest.mark.parametrize(
    ("both", "start", "reach"), [(2500, "unknown", 0.4 + HIDDEN * 0.6), (500, "no", HIDDEN * 0.4), (2500, "yes", 0.4)]
)
def test_a_rung_is_what_a_null_expects(found: Findings, both: int, start: str, reach: float) -> None:
    steps = {rung.null: rung for rung in rungs(overlap(found, both, start=start))}
    decide = {MATCHED, STRIPED}
    assert decide < steps.keys()
    for null, rung in steps.items():
        assert rung.share == pytest.approx(0.4)
        assert rung.low < rung.share < rung.high
        assert rung.explained == pytest.approx(reach if null in decide else 0.4)
        assert rung.decides == (null in decide)
    # An independent mask of 4,000 has a standard deviation of 24 shared coordinates; the standard errors are near it.
    assert steps[GLOBAL].high - steps[GLOBAL].share == pytest.approx(1.96 * 24 / 4000, rel=0.05)


def places(drawn: ET.Element, tag: str, attribute: str) -> list[float]:
    return [float(node.attrib[attribute].removesuffix("%")) for node in drawn.iter() if node.tag == tag]


def test_places_are_in_proportion_and_every_figure_is_written(found: Findings) -> None:
    pair = overlap(found, 2500)
    drawn = ET.fromstring(ladder(pair))
    (seen,) = (node for node in drawn.iter("line") if node.get("class") == "seen")
    x = float(seen.attrib["x1"].removesuffix("%"))
    dots = places(drawn, "circle", "cx")
    assert len(dots) == len(rungs(pair)) and max(dots) < x < 100
    # Where one mask would lie in the other, 100 %, is on the axis here: what lies between is in proportion.
    texts = {text: node for node in drawn.iter("text") if (text := "".join(node.itertext()))}
    end = float(texts["100 %"].attrib["x"].removesuffix("%"))
    assert (x - dots[0]) / (end - dots[0]) == pytest.approx((0.625 - 0.4) / 0.6, abs=0.01)
    assert f"observed {percent(0.625)}" in texts
    (axes,) = shared.overlap("AB", pair, LIGHT).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    for null in (GLOBAL, MATCHED):
        label = f"{null_label(null)} {percent(0.4)}"
        assert label in texts and label in labels


def test_on_a_page_it_has_classes_alone_and_says_all_to_a_screen_reader(found: Findings) -> None:
    drawn = str(ladder(overlap(found, 2500)))
    assert "style" not in drawn and "#" not in drawn
    (label,) = re.findall(r'aria-label="([^"]*)"', drawn)
    assert all(null_label(null) in label for null in NULLS)
    assert ladder(overlap(found, 0, size=0)) == ""
