"""Findings about a small model, whose names are as bad as those in a checkpoint can be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.flow.overlap.measure import NamedMask
from maskreg.ref import Card
from maskreg.reports.findings import Findings, gather
from maskreg.reports.geometry import geometry_of, trajectory_of
from maskreg.reports.page import page, plots_of
from maskreg.reports.pictures import Plot
from tests.browser import browser
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import extracted, opened

__all__ = ["browser"]

EVIL = "<script>document.title='owned'</script>&\"'$\\frac{1}{2}$"
"""What must come out as text wherever it is shown."""


def tensors() -> dict[str, Tensor]:
    found = {"model.embed_tokens.weight": bf16((200, 16), 1), f"{EVIL}.weight": bf16((64,), 2)}
    for layer in range(12):
        for number, module in enumerate(("self_attn.q_proj", "mlp.up_proj", f"mlp.{EVIL}")):
            found[f"model.layers.{layer}.{module}.weight"] = bf16((32, 16), 3 + 3 * layer + number)
    return found


def named(folder: Path, name: str, fraction: float, seed: int, **card: Any) -> NamedMask:
    source = tensors()
    target = {n: moved(t, fraction, seed + i) for i, (n, t) in enumerate(source.items())}
    return NamedMask(name, extracted(folder, *opened(folder / str(seed), source, target)), Card(**card))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a registry, and of the checkpoints."""
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def masks(home: Path) -> tuple[NamedMask, NamedMask]:
    """Two independent masks of one source."""
    first = named(home, "team/toy-opd:v1", 0.4, 1, family="toy", description=EVIL)
    return first, named(home, "team/toy-rlvr:v1", 0.3, 100)


def figure(median: float | None, null: float | None = None, chance: float | None = None) -> dict[str, Any]:
    """A figure as a stored analysis has it."""
    mean, null_mean = (None if value is None else 1.5 * value for value in (median, null))
    return {
        "mean": mean,
        "null_mean": null_mean,
        "median": median,
        "null_median": null,
        "chance": chance,
        "matrices": 3,
    }


def analysis() -> dict[str, Any]:
    """Figures as a stored analysis has them, with a note."""
    total = {f"energy_top_{k}": figure(k / 70, k / 700) for k in (16, 1, 2, 4, 64)}
    total |= {"energy_top_512": figure(None), "energy_top_10pct": figure(0.6, 0.2), "stable_rank": figure(5.3, 65.3)}
    total |= {"projection_lift_0.10": figure(13.1, 1.0, 1.0), "low_dssu_0.10@exact": figure(0.2, 0.19, 0.1)}
    total["low_geo_0.30@rel:0.001"] = {**figure(0.5, 0.4, 0.3), "weighted": 0.61, "null_weighted": 0.41}
    layers = {layer: {"figures": {"stable_rank": figure(3.0, 60.0)}} for layer in ("10", "2", "")}
    share, lift = {"value": 0.75, "null": 0.5}, {"value": 1.25, "null": None}
    return {
        "total": {"figures": total, "concentration": {"concentration_1pct": {"value": 0.144, "null": 0.158}}},
        "roles": {"ffn": {"param_share": 0.6, "energy_share": share, "energy_lift": lift}},
        "layers": layers,
        "notes": [f"said by {EVIL}"],
    }


def run_of(*names: str) -> dict[str, Any]:
    """A trajectory over checkpoints of these names."""
    rows = [
        {
            "checkpoint": f"/home/private-name/secret/{name}",
            "density": 0.1 + n / 10,
            "step_density": 0.1,
            "relative_norm": 1e-3 * n,
            "stable_rank": None if n == 0 else 5.0 + n,
            "similarity_to_final": 0.5 + n / 10,
        }
        for n, name in enumerate(names)
    ]
    whole = {"similarity_by_chance": 0.05, "checkpoints": rows}
    return {**whole, "k": 16, "by": "tensor", "groups": {f"model.layers.{layer}.{EVIL}": whole for layer in (10, 2)}}


@pytest.fixture(scope="session")
def found(masks: tuple[NamedMask, NamedMask], home: Path) -> Findings:
    """Everything that can be found about the first."""
    with open_checkpoint(home / "1" / "source") as source:
        gathered = gather(masks[0], masks[1:], source)
    geometry = geometry_of("team/toy-opd-analysis:v1", analysis())
    return dataclasses.replace(
        gathered, geometry=geometry, trajectory=trajectory_of(run_of("step-10", EVIL.replace("/", ""), "step-30"))
    )


@pytest.fixture(scope="session")
def plots(found: Findings) -> dict[str, Plot]:
    """The plots of that page, each drawn once."""
    return plots_of(found)


@pytest.fixture(scope="session")
def html(found: Findings, plots: dict[str, Plot]) -> str:
    """The page about them."""
    return page(found, "1.2.3", plots)
