"""The summary that people read and paste."""

from __future__ import annotations

import io
import sys

import pytest
from maskreg_cli.summary import Subject, layers_in_order, summary

from maskreg.artifact.manifest import FfnRatios, Group, Manifest, Part, Side, Totals
from maskreg.digest import Digest
from maskreg.ref import Card, Ref

DIGEST = Digest.of(b"manifest")
ROOT = str(Digest.of(b"root"))


def manifest(**changes: object) -> Manifest:
    ffn = FfnRatios(
        param_share=0.75,
        energy_share=0.9,
        energy_lift=1.2,
        density=0.5,
        density_lift=1.25,
        mask_share=0.9375,
        mask_lift=1.25,
    )
    totals = Totals(
        numel=1_000_000,
        nnz=400_000,
        differing=400_007,
        energy=1.5,
        roles={"ffn": Group(numel=750_000, nnz=375_000), "attention": Group(numel=250_000, nnz=25_000)},
        layers={label: Group(numel=1000, nnz=n) for n, label in enumerate(["", "0", "1", "10", "2", "visual.0"])},
        ffn=ffn,
    )
    source = Side(root=ROOT, hub="Qwen/Qwen3-8B@abc", params=1_000_000, tensors=9, dtypes={"BF16": 1_000_000})
    fields: dict[str, object] = {
        "schema": "maskreg.artifact/1",
        "kind": "delta",
        "encoder": "maskreg-1",
        "rule": "exact",
        "exact": True,
        "source": source,
        "target": Side(root=ROOT, params=1_000_000, tensors=9, dtypes={"F32": 1_000_000}, cast="BF16"),
        "parents": (str(DIGEST),),
        "totals": totals,
        "parts": {"mask": Part(codec="bits", objects=2, size=125_000)},
        "objects": (),
    }
    return Manifest(**{**fields, **changes})  # type: ignore[arg-type]


def _text(*, present: list[str] | None = None, notes: tuple[str, ...] = ()) -> str:
    card = Card("qwen3-8b", "opd", "apache-2.0", "First run.", {"seed": "17"})
    text: str = summary(Subject(Ref.parse("team/x:v1"), DIGEST, manifest(), card), present=present, notes=notes)
    return text


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_bars_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = _text().splitlines()
    bars = lines[lines.index("by role") + 1 : lines.index("by layer") - 1]
    if columns == 20:
        # Label, density and counts do not fit: they are a table.
        assert "density" in bars[0]
        return
    assert len(bars) == 2
    assert max(map(len, bars)) <= columns
    # 40 columns leave no room beside label, density and counts.
    assert all("█" in bar for bar in bars) == (columns >= 80)
    assert any("█" in bar for bar in bars) == (columns >= 80)


def test_bars_are_plain_where_unicode_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    text = _text()
    assert "#" in text
    assert "█" not in text


def test_layers_come_in_model_order() -> None:
    order = layers_in_order(manifest().totals.layers)
    assert list(order) == ["0", "1", "2", "10", "visual.0", ""]


def test_nothing_moved() -> None:
    none = FfnRatios(
        param_share=None,
        energy_share=None,
        energy_lift=None,
        density=None,
        density_lift=None,
        mask_share=None,
        mask_lift=None,
    )
    totals = Totals(numel=0, nnz=0, differing=0, energy=0.0, roles={}, layers={}, ffn=none)
    assert "by role: nothing" in summary(Subject(None, DIGEST, manifest(totals=totals)))
