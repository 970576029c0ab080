"""The plots: what they show, and how they fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from maskreg.artifact.manifest import Group
from maskreg.flow.geometry.exponents import BIAS
from maskreg.reports.curve import APART, curve, shown
from maskreg.reports.findings import Findings
from maskreg.reports.heat import heat_map, written
from maskreg.reports.modules import Grid, ink_on, scale
from maskreg.reports.pictures import compact
from maskreg.reports.theme import DARK, LIGHT, NARROW, WIDE, Size, Theme, colored


def test_zero_weights_stand_apart(found: Findings) -> None:
    assert found.exponents is not None
    members = np.zeros(256, np.int64)
    members[[0, BIAS - 8, BIAS - 7, BIAS - 6, 255]] = (500, 1000, 2000, 1, 3000)
    exponents = dataclasses.replace(found.exponents, members=members, moved=members // 2, expected=None)
    view = shown(exponents)
    # Infinities have no magnitude, and few weights are noise; zero has a place of its own whatever there is of it.
    assert view.fields.tolist() == [0, BIAS - 8, BIAS - 7, BIAS - 6]
    assert view.places.tolist() == [-8 - APART, -8, -7, -6]
    labels = [label.get_text() for label in curve(exponents, LIGHT).axes[-1].get_xticklabels()]
    assert labels == ["zero", "2⁻⁶", "2⁻⁷", "2⁻⁸"]
    lines = curve(exponents, LIGHT).axes[0].get_lines()
    assert [len(np.asarray(line.get_xdata())) for line in lines[:2]] == [3, 1]


def test_colors_run_over_what_most_coordinates_have() -> None:
    values = np.array([[0.03, 0.04, 1.0], [0.05, np.nan, 0.0]])
    weights = np.array([[1e6, 1e6, 1e3], [1e6, 0, 1e3]])
    assert scale(values, weights) == (0.03, 0.05)
    assert scale(np.zeros((2, 2)), np.ones((2, 2))) == (0.0, 1.0)
    low, high = scale(np.full((1, 1), 0.5), np.ones((1, 1)))
    assert low < 0.5 < high


@pytest.mark.parametrize(
    ("share", "room", "text"),
    [
        (0.512, (40, 12), "51.2"),
        (0.512, (12, 12), "51"),
        (1.0, (18, 12), "100"),
        (0.0512, (18, 12), "5.1"),
        (0.0, (12, 12), "0"),
        (0.512, (8, 12), None),
        (0.512, (40, 5), None),
    ],
)
def test_numbers_that_fit_their_cells(share: float, room: tuple[float, float], text: str | None) -> None:
    assert written(np.array([share]), room) == (None if text is None else [text])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: size.name)
def test_a_module_of_which_nothing_moved_has_no_color(theme: Theme, size: Size) -> None:
    cells = {("0", "norm"): Group(numel=8, nnz=0), ("0", "up"): Group(numel=100, nnz=40)}
    axes = heat_map(Grid(("0",), ("norm", "up"), cells, {}), theme, size).axes[0]
    (image,) = axes.get_images()
    assert np.asarray(image.get_array())[0, :, 3].tolist() == [0, 1]
    assert [text.get_text() for text in axes.texts] == ["0", "40.0"]


def test_ink_has_the_contrast_that_text_needs() -> None:
    assert ink_on((0.0, 0.13, 0.3, 1)) == "#fffffe"
    assert ink_on((1.0, 0.92, 0.2, 1)) == "#000000"


def test_only_tags_take_the_colors_of_the_page_and_lose_digits() -> None:
    drawn = '<svg>\n<path d="M 1.23456 2" style="fill: #0072b2"/><text x="1.999">#0072b2 1.23456 id="a"</text>\n</svg>'
    assert colored(compact(drawn)) == (
        '<svg><path d="M 1.23 2" style="fill: var(--observed)"/><text x="1.99">#0072b2 1.23456 id="a"</text></svg>'
    )
