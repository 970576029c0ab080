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
    shares = {"param_share": 1 / 2, "energy_share": 2 / 3, "density": 1 / 2, "mask_share": 5 / 6}
    lifts = {"energy_lift": 4 / 3, "density_lift": 5 / 3, "mask_lift": 5 / 3}
    assert ffn_shares(Counts(100, 50, 50, 2.0), Counts(200, 60, 60, 3.0)) == pytest.approx(shares | lifts)


def test_nothing_moved_has_no_ratio() -> None:
    known = {name: share for name, share in ffn_shares(Counts(100), Counts(200)).items() if share is not None}
    assert known == {"param_share": 0.5, "density": 0.0}
    assert ffn_shares(Counts(), Counts())["param_share"] is None
