"""The heat map of a consensus, its table, and the page that it is on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from maskreg.analysis.comparison import ConsensusPicture
from maskreg.checkpoint.roles import Selection
from maskreg.flow.overlap.measure import NamedMask, OverlapSpec
from maskreg.reports.findings import Findings, gather
from maskreg.reports.heat import consensus_heat
from maskreg.reports.page import consensus_plot, page
from maskreg.reports.theme import DARK, LIGHT, NARROW, WIDE, Size, Theme
from tests.reports.conftest import named

MASKS = 3


def picture(shape: tuple[int, int]) -> tuple[ConsensusPicture, np.ndarray]:
    rng = np.random.default_rng(1)
    masks = rng.random((MASKS, *shape)) < np.linspace(0.1, 0.9, shape[0])[:, None]
    nnz = [int(mask.sum()) for mask in masks]
    return ConsensusPicture.of("w", shape, masks.sum(0, dtype=np.uint8).reshape(-1), nnz), masks.mean(0)


@pytest.mark.parametrize("shape", [(5, 7), (130, 64), (64, 200)])
def test_a_cell_is_the_mean_of_the_published_ratio_over_its_block(shape: tuple[int, int]) -> None:
    result, ratios = picture(shape)
    height, width = result.runs
    for row, cells in enumerate(result.ratios):
        for column, cell in enumerate(cells):
            block = ratios[row * height : (row + 1) * height, column * width : (column + 1) * width]
            assert cell == pytest.approx(block.mean())
    assert max(result.ratios.shape) <= 64
    assert result.to_json()["ratios"][0][0] == pytest.approx(result.ratios[0, 0], abs=1e-6)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: size.name)
def test_blocks_lie_where_their_coordinates_are(theme: Theme, size: Size) -> None:
    result, _ = picture((130, 100))
    axes = consensus_heat(result, theme, size).axes[0]
    (image,) = axes.get_images()
    assert np.asarray(image.get_array()).shape[:2] == result.ratios.shape == (44, 50)
    # 44 blocks of 3 rows are 132 rows: what lies beyond the matrix is cut off.
    assert tuple(image.get_extent()) == (0, 100, 132, 0)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 100), (130, 0))
    bright = np.asarray(image.get_array())[..., :3].mean(2).mean(1)
    assert bright[-1] > bright[0]


@pytest.fixture(scope="module")
def three(masks: tuple[NamedMask, NamedMask], home: Path) -> tuple[NamedMask, ...]:
    return *masks, named(home, "team/toy-sft:v1", 0.2, 200)


@pytest.fixture(scope="module")
def selected(three: tuple[NamedMask, ...]) -> Findings:
    return gather(three[0], three[1:], spec=OverlapSpec(Selection.parse(["q_proj"], "3,5")))


def test_a_selection_of_few_matrices_is_mapped(three: tuple[NamedMask, ...], selected: Findings) -> None:
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (3, 5)]
    assert [each.name for each in selected.consensus] == names
    for each in selected.consensus:
        bits = np.stack([mask.artifact.mask[each.name].to_bool() for mask in three])
        assert each.ratios == pytest.approx(bits.mean(0).reshape(32, 16))
    # Of two masks, or of many matrices, there is no map.
    assert gather(three[0], three[1:2], spec=OverlapSpec(selected.selection)).consensus == ()
    assert gather(three[0], three[1:]).consensus == ()
    assert dataclasses.replace(selected, consensus=()).totals.numel == 2 * 32 * 16


def test_a_page_has_a_picture_of_every_matrix(selected: Findings) -> None:
    plots = {plot.name: plot for plot in (consensus_plot(n, p) for n, p in enumerate(selected.consensus, start=1))}
    html = page(selected, "1.2.3", plots)
    for plot in plots.values():
        assert html.count(plot.alt) == 1
