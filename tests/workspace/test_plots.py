"""Plots as figures of Matplotlib, and what a notebook shows of results."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import maskreg
from maskreg.extras import install_command
from maskreg.workspace.storing import Stored
from tests.reports.conftest import run_of
from tests.workspace.conftest import Lab


@pytest.fixture
def beside(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> maskreg.Workspace:
    """A workspace that has a second mask, drawn at random."""
    maskreg.baseline("toy:v1", "random-global", "drawn:v1", workspace=ada)
    return ada


def test_every_plot_is_a_figure(lab: Lab, beside: maskreg.Workspace) -> None:
    density = maskreg.plots.density("toy:v1", workspace=beside)
    assert [label.get_text() for label in density.axes[0].get_xticklabels()] == ["self_attn.q_proj", "mlp.up_proj"]
    magnitude = maskreg.plots.magnitude("toy:v1", source=lab.source, theme="dark", workspace=beside)
    assert magnitude.get_facecolor()[:3] == pytest.approx((0x14 / 255, 0x18 / 255, 0x1D / 255))
    overlap = maskreg.plots.overlap("toy:v1", "drawn:v1", source=lab.source, workspace=beside)
    assert "observed" in [label.get_text() for label in overlap.axes[0].get_yticklabels()]
    consensus = maskreg.plots.consensus("toy:v1", "drawn:v1", roles=["up_proj"], layers="0", workspace=beside)
    (image,) = consensus.axes[0].get_images()
    assert np.asarray(image.get_array()).ndim == 3
    growth = maskreg.plots.trajectory(run_of("step-1", "step-2"))
    assert len(growth.axes) == 4
    # A notebook shows them without pyplot.
    assert growth._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_what_cannot_be_drawn_is_said(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.extract(lab.source, lab.source, "still", workspace=ada)
    with pytest.raises(maskreg.UsageError, match="is empty, so there is no overlap to draw"):
        maskreg.plots.overlap("still", "toy:v1", workspace=ada)
    with pytest.raises(maskreg.UsageError, match="no theme is called 'pink'") as raised:
        maskreg.plots.density("toy:v1", theme="pink", workspace=ada)
    assert raised.value.hint == "theme: light or dark"
    with pytest.raises(maskreg.UsageError, match="two masks or more"):
        maskreg.plots.consensus("toy:v1", workspace=ada)
    with pytest.raises(maskreg.UsageError, match="not one matrix") as raised:
        maskreg.plots.consensus("still", "toy:v1", workspace=ada)
    assert raised.value.hint == "choose one: roles=['q_proj'], layers='0'"
    with pytest.raises(maskreg.UsageError, match="without checkpoints"):
        maskreg.plots.trajectory(run_of())


def test_without_the_libraries_plots_name_the_extra(
    ada: maskreg.Workspace, toy: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draws: list[Callable[[], object]] = [
        lambda: maskreg.plots.density(toy, workspace=ada),
        lambda: maskreg.plots.magnitude(toy, workspace=ada),
        lambda: maskreg.plots.overlap(toy, toy, workspace=ada),
        lambda: maskreg.plots.consensus(toy, toy, workspace=ada),
        lambda: maskreg.plots.trajectory(run_of("step-1")),
    ]
    for draw in draws:
        with pytest.raises(maskreg.ConfigError, match="matplotlib") as raised:
            draw()
        assert raised.value.hint == install_command("report")
