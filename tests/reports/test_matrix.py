"""The heat map of many masks, and its table: what each cell shows, in every size and theme, and with many masks."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from maskreg.analysis.evidence import STRIPED
from maskreg.analysis.pairwise import PairAnswer, PairMatrix
from maskreg.analysis.verdict import Outcome
from maskreg.flow.overlap.measure import NamedMask
from maskreg.reports.findings import Findings, gather
from maskreg.reports.heat import headroom_map
from maskreg.reports.page import matrix_plot, page, plots_of
from maskreg.reports.pictures import svg
from maskreg.reports.theme import DARK, LIGHT, NARROW, WIDE, Size, Theme
from tests.reports.conftest import EVIL, named

OUTCOMES = (Outcome.MORE, Outcome.OPEN, Outcome.SAME, Outcome.RELATED, Outcome.LESS, Outcome.OPEN)
HEADROOMS = (0.5, 0.021, -0.0001, 1.0, -0.25, None)


def matrix(count: int = 4) -> PairMatrix:
    pairs = []
    for at, masks in enumerate(combinations(range(count), 2)):
        outcome, headroom = OUTCOMES[at % 6], HEADROOMS[at % 6]
        ends = None if headroom is None else (headroom - 0.01, headroom + 0.01)
        relation = "b lies in a" if outcome is Outcome.RELATED else ""
        p = None if outcome in (Outcome.OPEN, Outcome.RELATED) else 0.001
        pairs.append(PairAnswer(masks, "yes", headroom, ends, STRIPED, headroom, outcome, outcome, p, p, relation))
    names = tuple(f"team/{chr(97 + mask % 26)}{EVIL if mask == 1 else mask}" for mask in range(count))
    return PairMatrix(names, STRIPED, 0.01, len(pairs), tuple(pairs), tuple(reversed(range(count))))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: size.name)
def test_every_pair_is_a_cell_on_either_side_of_the_diagonal(theme: Theme, size: Size) -> None:
    axes = headroom_map(matrix(), theme, size).axes[0]
    (image,) = axes.get_images()
    opacity = np.asarray(image.get_array())[..., 3]
    assert opacity == pytest.approx(opacity.T)
    # Masks stand in their order, here the last first. Pairs 0-1, 0-3 and 1-3 have an answer, 2-3 has no headroom.
    assert (opacity[2, 3], opacity[1, 3], opacity[0, 3], opacity[0, 1]) == pytest.approx((1, 0.3, 1, 0))
    assert np.diag(opacity).tolist() == [0, 0, 0, 0]
    texts = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert texts[3.5, 2.5] == texts[2.5, 3.5] == "50.0"
    assert texts[3.5, 0.5] == "0.0"
    assert texts[2.5, 0.5] == "−25.0"
    assert [label.get_text()[-2:] for label in axes.get_yticklabels()][-1] == "a0"


def test_a_hundred_masks_fit() -> None:
    many = matrix(100)
    axes = headroom_map(many, LIGHT).axes[0]
    assert len(axes.texts) == 0
    assert 20 <= len(axes.get_yticklabels()) <= 40
    drawn = svg(matrix_plot(many), LIGHT)
    assert float(ET.fromstring(drawn).attrib["height"].removesuffix("pt")) <= 11 * 72
    assert len(drawn) < 200_000


@pytest.fixture(scope="module")
def several(masks: tuple[NamedMask, NamedMask], home: Path) -> Findings:
    third = named(home, "team/third:v1", 0.2, 300)
    return gather(masks[0], [masks[1], dataclasses.replace(third, start="yes")])


def test_a_report_on_several_masks_has_all_pairs(several: Findings, masks: tuple[NamedMask, NamedMask]) -> None:
    assert several.matrix is not None
    assert [pair.masks for pair in several.matrix.pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [pair.outcome for pair in several.matrix.pairs[:2]] == [other.outcome for other in several.others]
    # Each is what two masks alone give.
    assert several.others[0].overlap.to_json() == gather(masks[0], masks[1:]).others[0].overlap.to_json()
    assert "matrix" in plots_of(several)
    assert gather(masks[0], masks[1:]).matrix is None


def test_the_table_has_what_the_map_shows(several: Findings) -> None:
    html = page(dataclasses.replace(several, matrix=matrix()), "1.2.3")
    start = html.index("<table>", html.index('id="plot-matrix"'))
    table = ET.fromstring(html[start : html.index("</table>", start) + len("</table>")].replace("<wbr>", ""))
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert len(rows) == 1 + 6
    assert rows[1] == ["team/a0, team/b" + EVIL, "50.0\xa0%", "49.0 to 51.0\xa0%", "more"]
    assert rows[4][1::2] == ["100\xa0%", "related (b lies in a)"]
    assert rows[6][1:] == ["-", "-", "cannot tell"]
    assert all(cell.attrib["scope"] in ("col", "row") for cell in table.iter("th"))
    corrected = dataclasses.replace(several.others[0], corrected=Outcome.LESS)
    first, again = (page(dataclasses.replace(several, others=(one,)), "1") for one in (several.others[0], corrected))
    assert first != again
