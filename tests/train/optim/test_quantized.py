from __future__ import annotations

import copy

import pytest
import torch

from maskreg.errors import DataError
from maskreg.train import Masked
from tests.train.optim.quantizing import QuantizedMomentum
from tests.train.optim.test_state import through_a_file
from tests.train.optim.training import KINDS, masked, model, run


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_run_that_went_on(kind: str) -> None:
    net, before = model(), model()
    mask = masked(net, 0.3)
    on = Masked(net.named_parameters(), QuantizedMomentum, mask=mask, lr=1e-2, gradients=kind)  # type: ignore[arg-type]
    run(on, net)
    on.param_groups[0]["lr"] = 5e-3
    other, (third, copied) = copy.deepcopy(net), copy.deepcopy((net, on))
    again = Masked(other.named_parameters(), QuantizedMomentum, mask=mask, lr=1e-2, gradients=kind)  # type: ignore[arg-type]
    again.load_state_dict(through_a_file(on.state_dict()))
    for optimizer, each in ((on, net), (again, other), (copied, third)):
        run(optimizer, each)
    assert again.param_groups[0]["lr"] == 5e-3
    for (name, p), was in zip(net.named_parameters(), before.parameters(), strict=True):
        inside = torch.from_numpy(mask[name].to_bool())
        assert torch.equal(p[~inside], was[~inside])
        assert not torch.equal(p[inside], was[inside])
        for each, optimizer in ((other, again), (third, copied)):
            q = each.get_parameter(name)
            assert torch.equal(p, q)
            assert on.state[p].keys() == optimizer.state[q].keys()
            assert all(torch.equal(value, optimizer.state[q][key]) for key, value in on.state[p].items())
        state = {key: value for key, value in on.state[p].items() if key.startswith("momentum")}
        assert {str(value.dtype) for value in state.values()} == {"torch.int8", "torch.float32"}


def test_state_in_other_blocks_is_refused() -> None:
    net = model()
    mask = masked(net, 0.3)
    optimizer = Masked(net.named_parameters(), QuantizedMomentum, mask=mask)
    run(optimizer, net)
    other = Masked(net.named_parameters(), QuantizedMomentum, mask=mask, block_size=32)
    other.load_state_dict(optimizer.state_dict())
    with pytest.raises(DataError):
        run(other, net)
