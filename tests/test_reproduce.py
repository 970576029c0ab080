"""What the comparison of masked retraining with its controls refuses, splits and infers."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

import pytest
import torch

from scripts.reproduce import losses
from scripts.reproduce.arms import COMPARISONS
from scripts.reproduce.origins import OPD, SFT
from scripts.reproduce.setting import TRAINED_SHARE, Problem, problems
from scripts.reproduce.statistics import Estimate, Results


def commuted(problem: Problem) -> Problem:
    """``# 5+3=`` of ``# 3+5=``; a difference as it is."""
    left, plus, right = problem.prompt.removeprefix("# ").removesuffix("=").partition("+")
    return Problem(f"# {right}+{left}=", problem.answer) if plus else problem


def test_no_held_out_sum_was_trained_the_other_way_round() -> None:
    training, held_out = problems()
    assert not set(map(commuted, held_out)) & set(training)
    every = {*training, *held_out}
    assert len(every) == len(training) + len(held_out) == 20 * 20 + 20 * 21 // 2
    assert len(training) / len(every) == pytest.approx(TRAINED_SHARE, abs=0.005)
    assert min(sum("+" in problem.prompt for problem in side) for side in (training, held_out)) > 100


KEYS: list[list[tuple[int | None, int]]] = [[(None, n) for n in range(25)], [(100 + n, n) for n in range(25)]]


@pytest.mark.parametrize("keys", KEYS)
def test_intervals_are_those_of_a_paired_t(keys: list[tuple[int | None, int]]) -> None:
    values = [1.1 + math.sin(n) for n in range(25)]
    estimate = Estimate.of(dict(zip(keys, values, strict=True)))
    assert estimate.mean == pytest.approx(mean(values))
    assert estimate.half == pytest.approx(2.063899 * stdev(values) / 5, rel=1e-6)
    assert (estimate.masks, estimate.seeds) == (len({mask for mask, _ in keys}), 25)
    assert estimate.p is not None and estimate.p < 1e-6


def test_comparisons_are_within_mask_and_seed() -> None:
    def run(mask_seed: int | None, seed: int, kl: float) -> dict[str, Any]:
        return {"mask_seed": mask_seed, "seed": seed, "held_out": {"kl": kl, "p": 1 - kl}, "visible_density": kl / 2}

    seeds, masks = (0, 1, 2), (100, 103)
    matched, visible = f"{OPD}: exponent-matched", f"{OPD}: random, as visible"
    runs = {
        "full": [run(None, seed, 0.5 + 0.1 * seed) for seed in seeds],
        OPD: [run(mask, seed, 0.6 + 0.1 * seed + 0.001 * (mask - 100)) for seed in seeds for mask in masks],
        matched: [run(mask, seed, 0.7 + 0.1 * seed) for mask in masks for seed in seeds],
        visible: [run(None, seed, 0.61 + 0.1 * seed) for seed in seeds],
        SFT: [run(100, seed, 0.8 + 0.1 * seed) for seed in seeds],
    }
    ends = {"held_out": {"kl": 1.0, "p": 0.0}}
    results = Results(ends, ends, runs)
    cells = {mask: [(mask, seed) for seed in seeds] for mask in (None, *masks)}
    expected = dict.fromkeys(cells[100], 0.1) | dict.fromkeys(cells[103], 0.103)
    assert results.paired(OPD, "full", "kl") == pytest.approx(expected)
    expected = dict.fromkeys(cells[100], 0.1) | dict.fromkeys(cells[103], 0.097)
    assert results.paired(OPD, matched, "p") == pytest.approx(expected)
    assert results.paired("full", OPD, "kl").keys() == expected.keys()
    assert results.paired(OPD, SFT, "kl") == pytest.approx(dict.fromkeys(cells[100], -0.2))
    assert results.paired(visible, "full", "kl") == pytest.approx(dict.fromkeys(cells[None], 0.11))
    shares = results.cells(OPD, "share")
    assert [shares[cell] for cell in cells[100]] == pytest.approx([0.4 / 0.5, 0.3 / 0.4, 0.2 / 0.3])
    by_pair = {(c.first, c.second): c for c in results.comparisons()}
    assert list(by_pair) == [pair for pair in COMPARISONS if set(pair) <= runs.keys()]
    assert by_pair[OPD, SFT].visible == pytest.approx((0.35, 0.45)), "of the runs on the shared mask alone"
    tested = by_pair[OPD, "full"]
    assert (tested.differences["kl"].masks, tested.differences["kl"].seeds) == (2, 3)
    for comparison in by_pair.values():
        for endpoint, estimate in comparison.differences.items():
            assert estimate.p is not None
            assert comparison.corrected[endpoint] >= estimate.p
    single = Results(ends, ends, {arm: [run(None, 0, 0.5)] for arm in ("full", OPD)})
    assert [comparison.corrected for comparison in single.comparisons()] == [{}]
    apart = Results(ends, ends, {**single.runs, OPD: [run(100, 0, 0.5)], matched: [run(103, 1, 0.5)]})
    assert [(c.first, c.second) for c in apart.comparisons()] == [(OPD, "full")]


def logits(seed: int) -> torch.Tensor:
    return torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(seed)) * 2


def test_divergences_and_likelihoods_are_those_written_out() -> None:
    ours, theirs, counted = logits(1), logits(2), logits(3)[..., 0] > 0
    p, q = ours.softmax(-1), theirs.softmax(-1)
    torch.testing.assert_close(losses.kl(ours, theirs, counted), (p * (p / q).log()).sum(-1)[counted].mean())
    tokens = torch.randint(0, 5, (3, 4), generator=torch.Generator().manual_seed(4))
    likelihood = torch.where(counted, p.log().gather(-1, tokens[..., None]).squeeze(-1), 0.0)
    torch.testing.assert_close(losses.log_probabilities(ours, tokens, counted), likelihood)
