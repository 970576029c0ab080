"""Figures beside published ones: each the figure of the analysis that the column means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from maskreg.analysis.papers import TableBeside, beside
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import extracted, opened

SHAPES = {
    "model.embed_tokens.weight": (90, 72),
    "model.layers.0.self_attn.q_proj.weight": (72, 72),
    "model.layers.0.mlp.up_proj.weight": (80, 72),
    "model.layers.0.mlp.down_proj.weight": (72, 80),
    "model.norm.weight": (72,),
}


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


def mean(figure: str, role: str = "") -> Callable[[Any], float]:
    """The mean of a figure over matrices, of a role or all."""
    return lambda document: (document["roles"][role] if role else document["total"])["figures"][figure]["mean"]


def moved_in(rule: str, *roles: str) -> Callable[[Any], float]:
    """The share of the coordinates of some roles that moved, or of all."""

    def share(document: Any) -> float:
        groups = [document["roles"][role] for role in roles] or [document["total"]]
        return float(sum(group["moved"][rule] for group in groups) / sum(group["numel"] for group in groups))

    return share


def still(rule: str, *roles: str) -> Callable[[Any], float]:
    return lambda document: 1 - moved_in(rule, *roles)(document)


def energy(role: str) -> Callable[[Any], float]:
    return lambda document: document["roles"][role]["energy"]["value"] / document["total"]["energy"]["value"]


EXACT, ABSOLUTE, MLP = "exact", "abs:1e-05", ("attention", "ffn")
BESIDE: dict[tuple[str, str], dict[str, Callable[[Any], float]]] = {
    ("dssu", "main table"): {
        "sparsity": still(ABSOLUTE),
        "relative norm": lambda document: document["total"]["relative_norm"]["value"],
        "energy in the top 16": mean("energy_top_16"),
        "low-magnitude coverage": mean("low_dssu_0.10@abs:1e-05"),
        "principal coverage": mean("principal_dssu_0.10@abs:1e-05"),
    },
    ("dssu", "text on principal projection"): {
        "principal projection": lambda document: document["total"]["figures"]["projection_0.10"]["median"]
    },
    ("dssu", "table 3"): {
        "FFN": energy("ffn"),
        "attention": energy("attention"),
        "embedding": energy("embedding"),
        "other": energy("norm"),
    },
    ("geo", "table 1"): {"sparsity": still(EXACT, *MLP)},
    ("geo", "figure 3"): {
        "update density": moved_in(EXACT, *MLP),
        "low-magnitude overlap": mean("low_geo_0.30@rel:0.001"),
        "principal overlap": mean("principal_geo_0.30@rel:0.001"),
    },
    ("pnt", "table 1"): {"sparsity": still(EXACT)},
    ("sub", "table 1"): {"sparsity": still(ABSOLUTE)},
    ("sub", "table 6"): {"sparsity at 1e-5": still(ABSOLUTE)},
    ("comp", "text on the sparsity of updates"): {"update density": moved_in(EXACT)},
}
"""What stands beside the columns of published tables, in percent."""


@pytest.mark.parametrize(("paper", "where"), BESIDE)
def test_a_column_has_its_figure_beside_it(document: Any, paper: str, where: str) -> None:
    ours = values(paper, where, document)
    expected = {column: pytest.approx(100 * of(document), rel=2e-5) for column, of in BESIDE[paper, where].items()}
    assert {column: value for column, value in ours.items() if column in expected} == expected


def test_figures_in_other_units_and_what_is_missing(document: Any) -> None:
    assert values("dssu", "main table", document)["stable rank"] == pytest.approx(mean("stable_rank")(document))
    where = "text on angles and NSS, and appendix C.3"
    assert values("geo", where, document) == {"NSS": pytest.approx(mean("nss", "attention")(document))}
    assert "angle_max_u_512" in table_of("geo", where, document).missing["largest angle, left"]
    energies = table_of("dssu", "table 3", document)
    assert list(energies.missing) == ["head"] and "lm_head" in energies.missing["head"]
    assert (energies.texts[-2][0], energies.texts[-2][4]) == ("this update", "-")
    assert "--rule abs:1e-7" in table_of("sub", "table 6", document).missing["sparsity at 1e-7"]
