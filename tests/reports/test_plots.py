"""The plots: what they show, and how they fit."""

from __future__ import annotations

import dataclasses

import numpy as np

from maskreg.flow.geometry.exponents import BIAS
from maskreg.reports.curve import APART, curve, shown
from maskreg.reports.findings import Findings
from maskreg.reports.theme import LIGHT


def test_zero_weights_stand_apart(found: Findings) -> None:
    assert found.exponents is not None
    members = np.zeros(256, np.int64)
    members[[0, BIAS - 8, BIAS - 7, BIAS - 6, 255]] = (500, 1000, 2000, 1, 3000)
    exponents = dataclasses.replace(found.exponents, members=members, moved=members // 2, expected=None)
    view = shown(exponents)
    # Infinities have no magnitude, and few weights are noise; zero has a place of its own, even if there is none of it.
    assert view.fields.tolist() == [0, BIAS - 8, BIAS - 7, BIAS - 6]
    assert view.places.tolist() == [-8 - APART, -8, -7, -6]
    labels = [label.get_text() for label in curve(exponents, LIGHT).axes[-1].get_xticklabels()]
    assert labels == ["zero", "2⁻⁶", "2⁻⁷", "2⁻⁸"]
    lines = curve(exponents, LIGHT).axes[0].get_lines()
    assert [len(np.asarray(line.get_xdata())) for line in lines[:2]] == [3, 1]
