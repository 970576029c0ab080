"""Figures beside published ones: each from the paper's own formula, on dense arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from maskreg.analysis.papers import PAPERS, TableBeside, beside
from maskreg.errors import UsageError
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.geometry.test_analysis import numbers
from tests.flow.making import extracted, opened

SHAPES = {
    "model.embed_tokens.weight": (90, 72),
    "model.layers.0.self_attn.q_proj.weight": (72, 72),
    "model.layers.0.mlp.up_proj.weight": (80, 72),
    "model.layers.0.mlp.down_proj.weight": (72, 80),
    "model.norm.weight": (72,),
}
ATTENTION = ("model.layers.0.self_attn.q_proj.weight",)


def near(value: Any) -> Any:
    """A figure as an analysis stores it, with six digits."""
    return pytest.approx(value, rel=2e-5)


@pytest.fixture(scope="module")
def pair() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    source = {name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}
    return source, {name: moved(tensor, 0.3, 10 + seed) for seed, (name, tensor) in enumerate(source.items())}


@pytest.fixture(scope="module")
def document(pair: tuple[dict[str, Tensor], dict[str, Tensor]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("papers")
    before, after = opened(folder, *pair)
    artifact = extracted(folder, before, after)
    return dict(analyze(artifact, before, None, folder, analysis_spec(presets=("dssu", "geo"))).document)


@pytest.fixture(scope="module")
def sides(pair: tuple[dict[str, Tensor], dict[str, Tensor]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Both sides as float64 arrays."""
    return {name: (numbers(pair[0][name]), numbers(pair[1][name])) for name in SHAPES}


def values(paper: str, where: str, document: Any) -> dict[str, float]:
    """Our figures beside a table."""
    table = table_of(paper, where, document)
    return {
        column.title: ours.value
        for column, ours in zip(table.table.columns, table.ours, strict=True)
        if ours.value is not None
    }


def table_of(paper: str, where: str, document: Any) -> TableBeside:
    (table,) = (each for each in beside(paper, document) if each.table.where == where)
    return table


def is_ffn(name: str) -> bool:
    return "mlp" in name


def moved_beyond(before: np.ndarray, after: np.ndarray, tolerance: float) -> np.ndarray:
    return np.abs(after.astype(np.float32) - before.astype(np.float32)) > np.float32(tolerance)


def coverage(mask: np.ndarray, before: np.ndarray, after: np.ndarray, tolerance: float) -> float:
    """|M and U| / |U|."""
    update = moved_beyond(before, after, tolerance)
    return float((mask & update).sum() / update.sum())


def smallest(scores: np.ndarray, alpha: float) -> np.ndarray:
    """The ``ceil(alpha n)`` lowest, the earlier of equals first."""
    chosen = np.zeros(scores.size, bool)
    chosen[np.argsort(scores.reshape(-1), kind="stable")[: int(np.ceil(alpha * scores.size))]] = True
    return chosen.reshape(scores.shape)


def principal(before: np.ndarray, rank: int) -> np.ndarray:
    """|U_r S_r V_r^T|."""
    u, s, v = np.linalg.svd(before, full_matrices=False)
    scores: np.ndarray = np.abs((u[:, :rank] * s[:rank]) @ v[:rank])
    return scores


def test_the_main_table_of_dssu(document: Any, sides: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    ours = values("dssu", "main table", document)
    numel = sum(before.size for before, _ in sides.values())
    still = numel - sum(moved_beyond(*both, 1e-5).sum() for both in sides.values())
    assert ours["sparsity"] == near(100 * still / numel)
    update = sum(((after - before) ** 2).sum() for before, after in sides.values())
    weights = sum((before**2).sum() for before, _ in sides.values())
    assert ours["relative norm"] == near(100 * np.sqrt(update / weights))
    matrices = [both for both in sides.values() if both[0].ndim == 2]
    energies = [np.linalg.svd(after - before, compute_uv=False) ** 2 for before, after in matrices]
    assert ours["energy in the top 16"] == near(100 * np.mean([s[:16].sum() / s.sum() for s in energies]))
    assert ours["stable rank"] == near(np.mean([s.sum() / s[0] for s in energies]))
    low = [coverage(smallest(np.abs(before), 0.1), before, after, 1e-5) for before, after in matrices]
    assert ours["low-magnitude coverage"] == near(100 * np.mean(low))
    ranked = [smallest(-principal(before, max(1, int(0.1 * min(before.shape)))), 0.1) for before, _ in matrices]
    high = [coverage(mask, *both, 1e-5) for mask, both in zip(ranked, matrices, strict=True)]
    assert ours["principal coverage"] == pytest.approx(100 * np.mean(high), rel=0.02)


def test_the_principal_projection_of_dssu(document: Any, sides: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    shares = []
    for before, after in (both for both in sides.values() if both[0].ndim == 2):
        k = max(1, int(0.1 * min(before.shape)))
        u, _, v = np.linalg.svd(before, full_matrices=False)
        inside = u[:, :k].T @ (after - before) @ v[:k].T
        shares.append((inside**2).sum() / ((after - before) ** 2).sum())
    ours = values("dssu", "text on principal projection", document)
    assert ours == {"principal projection": near(100 * np.median(shares))}


def test_the_energy_of_dssu(document: Any, sides: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    table = table_of("dssu", "table 3", document)
    ours = values("dssu", "table 3", document)
    energy = {name: ((after - before) ** 2).sum() for name, (before, after) in sides.items()}
    whole = sum(energy.values())
    assert ours["FFN"] == near(100 * sum(e for name, e in energy.items() if is_ffn(name)) / whole)
    assert ours["attention"] == near(100 * energy["model.layers.0.self_attn.q_proj.weight"] / whole)
    assert ours["embedding"] == near(100 * energy["model.embed_tokens.weight"] / whole)
    assert ours["other"] == near(100 * energy["model.norm.weight"] / whole)
    assert sum(ours.values()) == near(100)
    assert table.missing == {"head": "the update has no tensor of lm_head; a tied head is the embedding"}
    assert table.texts[-2][0] == "this update"
    assert table.texts[-2][4] == "-"


def test_geo_is_of_attention_and_ffn(document: Any, sides: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    matrices = {name: both for name, both in sides.items() if is_ffn(name) or name in ATTENTION}
    numel = sum(before.size for before, _ in matrices.values())
    flips = sum((before != after).sum() for before, after in matrices.values())
    assert values("geo", "table 1", document)["sparsity"] == near(100 * (1 - flips / numel))
    ours = values("geo", "figure 3", document)
    assert ours["update density"] == near(100 * flips / numel)
    low = [coverage(smallest(np.abs(before), 0.3), before, after, 0) for before, after in matrices.values()]
    assert ours["low-magnitude overlap"] == near(100 * np.mean(low))
    high = [coverage(smallest(-principal(before, 64), 0.3), before, after, 0) for before, after in matrices.values()]
    assert ours["principal overlap"] == pytest.approx(100 * np.mean(high), rel=0.02)
    where = "text on angles and NSS, and appendix C.3"
    before, after = sides[ATTENTION[0]]
    spectra = [np.linalg.svd(side, compute_uv=False) for side in (before, after)]
    shift = np.linalg.norm(spectra[1] - spectra[0]) / np.linalg.norm(spectra[0])
    assert values("geo", where, document) == {"NSS": near(shift)}
    assert "angle_max_u_512 is undefined" in table_of("geo", where, document).missing["largest angle, left"]


def test_sparsity_of_the_others(document: Any, sides: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    numel = sum(before.size for before, _ in sides.values())
    exact = sum((before != after).sum() for before, after in sides.values())
    beyond = sum(moved_beyond(*both, 1e-5).sum() for both in sides.values())
    assert values("pnt", "table 1", document) == {"sparsity": near(100 * (1 - exact / numel))}
    assert values("sub", "table 1", document) == {"sparsity": near(100 * (1 - beyond / numel))}
    where = "text on the sparsity of updates"
    assert values("comp", where, document) == {"update density": near(100 * exact / numel)}
    tolerances = table_of("sub", "table 6", document)
    assert values("sub", "table 6", document) == {"sparsity at 1e-5": near(100 * (1 - beyond / numel))}
    assert "--rule abs:1e-7" in tolerances.missing["sparsity at 1e-7"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_cell_has_a_figure_or_says_why(document: Any, paper: str) -> None:
    for table in beside(paper, document):
        assert all(len(numbers) == len(table.table.columns) for _, numbers in table.table.rows)
        assert all((ours.value is None) == bool(ours.reason) for ours in table.ours)
        assert re.search(r"arXiv \d{4}\.\d{5}|\(\d{4}\)", table.cite)
        assert table.cite.endswith(table.table.where)
        assert all(table.terms.values())
        plain = table.to_json()
        assert len(plain["published"]) == len(table.table.rows)
        assert plain["ours"].keys() == plain["units"].keys() == plain["published"][0]["values"].keys()


def test_what_was_not_measured_says_how_to_measure_it(document: Any) -> None:
    total, recipe = {**document["total"], "figures": {}}, {**document["recipe"], "metrics": ["norm"]}
    without = {**document, "total": total, "recipe": recipe}
    table = {each.table.where: each for each in beside("dssu", without)}["main table"]
    assert table.missing["stable rank"] == "stable_rank was not measured: analyze with --metrics rank"
    assert table.missing["low-magnitude coverage"].endswith("analyze with --metrics coverage")
    with pytest.raises(UsageError, match="unknown paper 'dsu'"):
        beside("dsu", document)
