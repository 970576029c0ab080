"""The UpSet plot: what its bars, lines and dots say, on a page and as a file of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

from maskreg.analysis.comparison import Intersection, intersections_of
from maskreg.flow.overlap.measure import NamedMask
from maskreg.reports.findings import gather
from maskreg.reports.page import page
from maskreg.reports.shared import intersections
from maskreg.reports.theme import LIGHT
from maskreg.reports.upset import MOST_BARS, letters_of, sizes_of, upset
from maskreg.words import percent
from tests.reports.conftest import named


def drawn(masks: int, seed: int = 1) -> tuple[Intersection, ...]:
    rng = np.random.default_rng(seed)
    return intersections_of(rng.integers(1, 1000, 1 << masks), rng.random(1 << masks) * 900)


@pytest.mark.parametrize("masks", [3, 4, 6])
def test_bars_are_in_proportion_and_dots_name_the_masks(masks: int) -> None:
    found = drawn(masks)
    assert {each.masks for each in found} == set(chain(*(combinations(range(masks), n + 1) for n in range(masks))))
    text = upset(found)
    columns = ET.fromstring(text).findall("g")
    heights = [float(column.find("rect").attrib["height"]) for column in columns]  # type: ignore[union-attr]
    shown, rest = found[:MOST_BARS], sum(each.coordinates for each in found[MOST_BARS:])
    counts = [each.coordinates for each in shown] + ([rest] if rest else [])
    scale = max(heights) / max(counts)
    assert heights == pytest.approx([count * scale for count in counts], abs=0.2)
    for column, each in zip(columns, shown, strict=False):
        dots = [circle.get("class") == "in" for circle in column.iter("circle")]
        assert dots == [mask in each.masks for mask in range(masks)]
        # Bars and what independent masks share are on one scale.
        (line,) = (float(line.attrib["y1"]) for line in column.iter("line") if line.get("class") == "chance")
        top, height = (float(column[1].attrib[name]) for name in ("y", "height"))
        assert top + height - line == pytest.approx(each.expected * scale, abs=0.3)
    bars = intersections("ABCDEF", found, LIGHT).axes[1].patches
    assert [bar.get_height() for bar in bars] == pytest.approx([count / sum(counts) for count in counts])  # type: ignore[attr-defined]
    for size in sizes_of(found):
        assert percent(size / sum(each.coordinates for each in found)) in text


def test_empty_masks_have_no_picture() -> None:
    assert upset(intersections_of(np.zeros(8, np.int64), np.zeros(8))) == upset(()) == ""


def test_a_report_of_three_masks_has_it_and_one_of_seven_says_why_not(
    masks: tuple[NamedMask, NamedMask], home: Path
) -> None:
    others = [named(home, f"team/toy-sft:v{seed}", 0.2, 200 * seed) for seed in range(1, 6)]
    three = gather(masks[0], [masks[1], others[0]])
    html = page(three, "1.2.3")
    assert str(upset(three.intersections)) in html
    for each in three.intersections:
        assert f'<th scope="row">{letters_of(each.masks)}</th><td class="n">{each.coordinates:,}</td>' in html
    seven = gather(masks[0], [masks[1], *others])
    assert seven.intersections == () and seven.matrix is not None
    assert 'class="upset"' not in page(seven, "1.2.3", {})
