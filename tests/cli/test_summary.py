"""The summary that people read and paste."""

from __future__ import annotations

import io
import sys

import pytest
from maskreg_cli.summary import Subject, layers_in_order, summary

from maskreg.artifact.manifest import FfnRatios, Group, Manifest, Part, Side, Totals
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.words import human_bytes

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


def test_it_says_everything() -> None:
    text = _text(present=[], notes=("two tensors are stored whole",))
    for said in (
        "team/x:v1",
        str(DIGEST),
        "exact, on bf16 codes",
        "40.0 %, 400,000 of 1,000,000",
        "400,007 coordinates with other bits",
        "Qwen/Qwen3-8B@abc",
        "target: bf16 cast of a wider checkpoint",
        "qwen3-8b",
        "opd",
        "apache-2.0",
        "First run.",
        "two tensors are stored whole",
        f"parent       {DIGEST}",
        "122.1 KiB in 2 objects, bits, not present",
    ):
        assert said in text
    assert "seed         17" in text


@pytest.mark.parametrize(
    ("label", "value", "share", "lift"),
    [
        ("energy", "90.0 %", "75.0 %", "1.20x"),
        ("density", "50.0 %", "75.0 %", "1.25x"),
        ("share", "93.8 %", "75.0 %", "1.25x"),
    ],
)
def test_each_ffn_ratio_stands_beside_parameter_share_and_lift(label: str, value: str, share: str, lift: str) -> None:
    (line,) = [line for line in _text().splitlines() if line.startswith(f"FFN {label}")]
    assert value in line
    assert f"params {share}" in line
    assert line.endswith(f"lift {lift}")


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


def test_an_inexact_delta_says_so() -> None:
    text = summary(Subject(None, DIGEST, manifest(exact=False, rule="abs:1e-5")))
    assert "the result is not the target" in text
    assert "abs:1e-5" in text


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


def test_sizes_for_people() -> None:
    cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")]
    assert [human_bytes(count) for count, _ in cases] == [text for _, text in cases]
    assert human_bytes((1 << 20) - 1) == "1.0 MiB"
    assert human_bytes(1 << 60) == "1024.0 PiB"
