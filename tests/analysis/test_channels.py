"""MLP channels that two updates move most, against sets, and chance against enumeration."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest

from maskreg.analysis.updates import channel_overlap, expected_jaccard, mlp_of


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("model.layers.3.mlp.down_proj.weight", (8, 4), ("model.layers.3.mlp", 1)),
        ("model.layers.3.mlp.up_proj.weight", (4, 8), ("model.layers.3.mlp", 0)),
        ("model.layers.3.mlp.experts.7.gate_proj.weight", (4, 8), ("model.layers.3.mlp.experts.7", 0)),
        ("layers.1.feed_forward.w2.weight", (8, 4), ("layers.1.feed_forward", 1)),
        ("visual.blocks.0.mlp.fc1.bias", (4,), None),
        ("model.layers.3.mlp.experts.down_proj", (2, 8, 4), None),
        ("model.layers.3.self_attn.o_proj.weight", (8, 8), None),
    ],
)
def test_where_the_channels_of_a_matrix_lie(
    name: str, shape: tuple[int, ...], expected: tuple[str, int] | None
) -> None:
    assert mlp_of(name, shape) == expected


@pytest.mark.parametrize(("size", "count"), [(5, 1), (6, 3), (8, 5), (10, 10)])
def test_chance_is_the_mean_over_all_pairs_of_sets(size: int, count: int) -> None:
    first = set(range(count))
    sets = [set(chosen) for chosen in combinations(range(size), count)]
    truth = sum(Fraction(len(first & other), len(first | other)) for other in sets) / len(sets)
    assert expected_jaccard(size, count) == pytest.approx(float(truth), rel=1e-12)


def test_the_tenth_part_of_the_channels_of_every_mlp() -> None:
    rng = np.random.default_rng(0)
    a = {f"mlp.{n}": rng.random(size) for n, size in enumerate((20, 35, 64))}
    b = {name: rng.random(values.size) * 0.5 + 0.5 * values for name, values in a.items()}
    found = channel_overlap({**a, "still": np.zeros(30)}, {**b, "still": np.ones(30)})
    truth = []
    for name in a:
        count = math.ceil(a[name].size / 10)
        tops = [set(np.argpartition(side[name], -count)[-count:].tolist()) for side in (a, b)]
        truth.append(len(tops[0] & tops[1]) / len(tops[0] | tops[1]))
    assert found.jaccard == pytest.approx(fmean(truth))
    assert list(found.by_mlp.values()) == pytest.approx(truth)
    assert found.expected == pytest.approx(fmean(expected_jaccard(n, math.ceil(n / 10)) for n in (20, 35, 64)))
    assert (found.mlps, found.left_out) == (3, ("still",))
    assert channel_overlap(a, a).jaccard == 1
    assert channel_overlap({}, {}).jaccard is None
