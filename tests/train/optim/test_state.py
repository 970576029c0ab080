from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

from maskreg.errors import DataError
from maskreg.train import Masked, MaskedAdamW
from maskreg.train.optim import MaskedOptimizer
from tests.train.optim.training import masked, model, run

MAKERS: list[tuple[Callable[..., MaskedOptimizer], dict[str, Any]]] = [
    (MaskedAdamW, {}),
    (MaskedAdamW, {"moments": "bf16"}),
    (Masked, {"optimizer": torch.optim.SGD, "momentum": 0.9}),
    (Masked, {"optimizer": torch.optim.NAdam}),
]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file)
    return loaded


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("maker", "options"), MAKERS)
def test_a_run_resumed_from_a_file_is_the_run_that_went_on(
    maker: Callable[..., MaskedOptimizer], options: dict[str, Any], dtype: torch.dtype, named: bool
) -> None:
    whole, parted, other = model(dtype), model(dtype), model(dtype)
    mask = masked(whole, 0.3)
    on = maker(whole.named_parameters(), mask=mask, **options)
    first = maker(parted.named_parameters(), mask=mask, **options)
    run(on, whole)
    run(first, parted)
    for group in [*on.param_groups, *first.param_groups]:
        group["lr"] /= 2
    kept = through_a_file(first.state_dict())
    other.load_state_dict(parted.state_dict())
    second = maker(other.named_parameters() if named else other.parameters(), mask=mask, **options)
    second.load_state_dict(kept)
    assert not second.state
    again = second.state_dict()["state"]
    assert all(torch.equal(again[i][key], value) for i, state in kept["state"].items() for key, value in state.items())
    if not named:
        second.bind(other)
    run(on, whole)
    run(second, other)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), other.parameters(), strict=True))
    for a, b in zip(on.state_dict()["state"].values(), second.state_dict()["state"].values(), strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(value, b[key]) and value.dtype == b[key].dtype for key, value in a.items())


def test_saving_copies_no_state_and_loading_copies_it_and_keeps_it_in_fp32() -> None:
    net = model()
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.3))
    run(optimizer, net, 1)
    own = {value.data_ptr() for state in optimizer.state.values() for value in state.values()}
    kept = optimizer.state_dict()
    saved = [value for state in kept["state"].values() for value in state.values()]
    added = [value for value in saved if value.data_ptr() not in own]
    assert sum(value.nbytes for value in added) == 16 * len(optimizer.state)  # fingerprints of masks
    optimizer.load_state_dict(kept)
    for state, one in zip(kept["state"].values(), optimizer.state.values(), strict=True):
        assert {value.dtype for key, value in one.items() if key != "mask"} == {torch.float32}
        assert all(value.data_ptr() != one[key].data_ptr() for key, value in state.items())


def test_loading_renews_the_groups_that_schedulers_change() -> None:
    net, other = model(torch.float32), model(torch.float32)
    mask = masked(net, 0.3)
    one = MaskedAdamW(net.named_parameters(), mask=mask)
    two = MaskedAdamW(other.named_parameters(), mask=mask)
    run(one, net, 1)
    run(two, other, 1)
    two.load_state_dict(two.state_dict())
    one.param_groups[0]["lr"] = two.param_groups[0]["lr"] = 0.5
    run(one, net, 1)
    run(two, other, 1)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("bound", [True, False])
def test_state_of_another_mask_is_refused(bound: bool) -> None:
    net = model()
    one = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.3))
    run(one, net, 1)
    two = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.3, seed=1))
    if bound:
        run(two, net, 1)
    with pytest.raises(DataError, match=r" 0\.weight "):
        two.load_state_dict(one.state_dict())
        run(two, net, 1)


def test_state_of_a_dense_optimizer_is_refused() -> None:
    net = model()
    dense = torch.optim.AdamW(net.parameters())
    run(dense, net, 1)
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.3))
    optimizer.load_state_dict(dense.state_dict())
    with pytest.raises(DataError, match=r" 0\.weight "):
        run(optimizer, net, 1)
