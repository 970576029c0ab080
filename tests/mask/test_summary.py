"""Densities and FFN ratios."""

import pytest

from maskreg.mask import Counts, ffn_shares, summarize


def test_sums_by_role_and_layer() -> None:
    rows = [
        ("ffn", "0", Counts(100, 50, 51, 2.0)),
        ("attention", "0", Counts(50, 10, 10, 1.0)),
        ("embedding", "", Counts(50, 0, 0, 0.0)),
        ("norm", "1", Counts(0, 0, 0, 0.0)),
    ]
    summary = summarize(rows)
    assert summary.all == Counts(200, 60, 61, 3.0)
    assert set(summary.roles) == {"ffn", "attention", "embedding"}
    assert summary.layers == {"0": Counts(150, 60, 61, 3.0)}


def test_ffn_ratios_stand_beside_share_and_lift() -> None:
    shares = ffn_shares(Counts(100, 50, 50, 2.0), Counts(200, 60, 60, 3.0))
    assert shares.param_share == 0.5
    assert shares.energy_share == pytest.approx(2 / 3)
    assert shares.energy_lift == pytest.approx(4 / 3)
    assert shares.density == 0.5
    assert shares.density_lift == pytest.approx(0.5 / 0.3)
    assert shares.mask_share == pytest.approx(5 / 6)
    assert shares.mask_lift == pytest.approx(shares.density_lift)


def test_nothing_moved_has_no_ratio() -> None:
    shares = ffn_shares(Counts(100), Counts(200))
    assert shares.param_share == 0.5
    assert shares.density == 0.0
    assert shares.energy_share is shares.mask_share is shares.density_lift is None
    assert ffn_shares(Counts(), Counts()).param_share is None
