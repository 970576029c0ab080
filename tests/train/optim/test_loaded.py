"""Weights that something else wrote between two steps stay as written: masters follow them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from maskreg.train import Masked, MaskedAdamW
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optim.backends import Cpu, Plain
from maskreg.train.optim.step import Backend
from tests.train.hooks.test_attach import Net
from tests.train.optim.tensors import steps, task, written
from tests.train.optim.training import KINDS, masked, model, run

State = dict[str, torch.Tensor]


def load(net: torch.nn.Module, state: State) -> None:
    net.load_state_dict(state)


def through_data(net: torch.nn.Module, state: State) -> None:
    """Without a new version of the tensor."""
    for name, p in net.named_parameters():
        p.data.copy_(state[name])


def new_data(net: torch.nn.Module, state: State) -> None:
    for name, p in net.named_parameters():
        p.data = state[name].clone()


def through_memory(net: torch.nn.Module, state: State) -> None:
    """As another library writes that shares the memory."""
    for name, p in net.named_parameters():
        p.detach().view(torch.int16).numpy()[...] = state[name].view(torch.int16).numpy()


WAYS: list[Callable[[torch.nn.Module, State], None]] = [load, through_data, new_data, through_memory]

MAKERS: dict[str, Callable[..., MaskedOptimizer]] = {
    "adamw": lambda p, **options: MaskedAdamW(p, weight_decay=0.0, **options),
    "momentum": lambda p, **options: Masked(p, torch.optim.SGD, momentum=0.9, **options),
}


def weights(net: torch.nn.Module) -> State:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def elsewhere() -> State:
    """Other weights of the model, in the mask and outside it."""
    net = model()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.5)
            p.view(-1)[::7] = 2.0
    return weights(net)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("maker", "kind", "backend"),
    [("adamw", KINDS[0], None), ("adamw", KINDS[1], Plain()), ("momentum", KINDS[0], Plain())],
)
def test_a_step_of_nothing_leaves_loaded_weights(
    maker: str, kind: str, backend: Backend | None, way: Callable[[torch.nn.Module, State], None]
) -> None:
    net, loaded = model(), elsewhere()
    optimizer = MAKERS[maker](net.named_parameters(), lr=1e-2, mask=masked(net), gradients=kind, backend=backend)
    run(optimizer, net)
    way(net, loaded)
    optimizer.param_groups[0]["lr"] = 0.0
    run(optimizer, net, 1)
    for name, p in net.named_parameters():
        assert torch.equal(p.detach().view(torch.int16), loaded[name].view(torch.int16)), name


@pytest.mark.parametrize("backend", [Cpu(), Plain()], ids=["cpu", "plain"])
@pytest.mark.parametrize(
    ("numel", "density", "packed", "slopes"),
    [(63, 0.5, False, torch.float32), (9001, 0.02, True, torch.bfloat16), (9001, 1.0, False, torch.bfloat16)],
)
def test_written_weights_are_new_masters_and_no_other_is_touched(
    numel: int, density: float, packed: bool, backend: Backend, slopes: torch.dtype
) -> None:
    got = task(numel, density, 5, (torch.bfloat16, slopes))
    steps(got, backend, packed)
    wanted = written(got, masters_too=False), written(got, masters_too=True)
    for one in wanted:
        steps(one, backend, packed)
    for left, right in zip((wanted[0].weights, *wanted[0].state), (wanted[1].weights, *wanted[1].state), strict=True):
        assert left is not None
        assert right is not None
        assert torch.equal(left.nan_to_num(7), right.nan_to_num(7))
        assert torch.equal(left.isnan(), right.isnan())


def test_training_goes_on_from_loaded_weights_as_torch_would() -> None:
    net, loaded = model(), elsewhere()
    optimizer = MAKERS["adamw"](net.named_parameters(), lr=1e-2, mask=masked(net, 1.0), backend=Plain())
    run(optimizer, net)
    load(net, loaded)
    optimizer.refresh()
    wide = [p.detach().float() for p in net.parameters()]
    theirs = torch.optim.AdamW(wide, lr=1e-2, weight_decay=0.0, foreach=False)
    for p, one in zip(wide, optimizer.state.values(), strict=True):
        kept = {key: value.clone().view(p.shape) for key, value in one.items() if key.startswith("exp_avg")}
        theirs.state[p] = {"step": one["step"].clone(), **kept}
    for _ in range(2):
        net(torch.ones(4, 300, dtype=torch.bfloat16)).float().square().sum().backward()
        for p, own in zip(wide, net.parameters(), strict=True):
            assert own.grad is not None
            p.grad = own.grad.float()
        optimizer.step()
        theirs.step()
        optimizer.zero_grad()
        for p, own in zip(wide, net.parameters(), strict=True):
            assert torch.equal(own, p.bfloat16())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_swapped_in_and_out_between_steps_change_nothing(kind: str) -> None:
    nets = model(), model()
    for number, net in enumerate(nets):
        optimizer = MaskedAdamW(net.named_parameters(), lr=1e-3, mask=masked(net), gradients=kind)
        for _ in range(3):
            run(optimizer, net, 1)
            if number:
                own = weights(net)
                load(net, elsewhere())
                net(torch.ones(4, 300, dtype=torch.bfloat16))
                load(net, own)
    assert all(torch.equal(p, q) for p, q in zip(*(net.parameters() for net in nets), strict=True))


@pytest.mark.parametrize("first", ["model", "optimizer"])
@pytest.mark.parametrize("bound", [True, False])
def test_a_run_resumes_in_either_order_and_with_other_weights_from_those(first: str, bound: bool) -> None:
    net, other = model(), model()
    mask = masked(net)
    one = MaskedAdamW(net.named_parameters(), lr=1e-2, mask=mask)
    run(one, net)
    kept, saved = weights(net), copy.deepcopy(one.state_dict())
    run(one, net)
    two = MaskedAdamW(other.named_parameters(), lr=1e-2, mask=mask)
    if bound:
        run(two, other)
    for part in (first, "optimizer" if first == "model" else "model"):
        two.load_state_dict(saved) if part == "optimizer" else load(other, kept)
    run(two, other)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))
    two.load_state_dict(saved)
    load(other, elsewhere())
    two.param_groups[0]["lr"] = 0.0
    run(two, other, 1)
    assert all(torch.equal(p, elsewhere()[name]) for name, p in other.named_parameters())


@pytest.mark.parametrize("bound", [True, False])
def test_refreshing_drops_the_digits_that_weights_do_not_have(bound: bool) -> None:
    net = model()
    mask = masked(net)
    optimizer = MaskedAdamW(net.named_parameters(), lr=1e-5, mask=mask)
    run(optimizer, net)
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    if not bound:
        saved = copy.deepcopy(optimizer.state_dict())
        optimizer = MaskedAdamW(net.named_parameters(), lr=1e-5, mask=mask)
        optimizer.load_state_dict(saved)
        assert any("master" in state for state in saved["state"].values())
    optimizer.refresh()
    if bound:
        for (name, p), state in zip(net.named_parameters(), optimizer.state.values(), strict=True):
            assert torch.equal(state["master"], p.detach()[torch.from_numpy(mask[name].to_bool())].float())
    optimizer.param_groups[0]["lr"] = 0.0
    before = weights(net)
    optimizer.bind(net)
    assert all(torch.equal(s["exp_avg"], m) for s, m in zip(optimizer.state.values(), moments, strict=True))
    run(optimizer, net, 1)
    for (name, p), state in zip(net.named_parameters(), optimizer.state.values(), strict=True):
        assert torch.equal(p, before[name])
        assert torch.equal(state["master"], p.detach()[torch.from_numpy(mask[name].to_bool())].float())


def test_tied_and_transposed_weights_are_taken_too() -> None:
    net = Net(torch.bfloat16)
    loaded = {key: value * 3 for key, value in net.state_dict().items()}
    optimizer = MaskedAdamW(net.named_parameters(), lr=1e-2, mask=masked(net, 0.5), weight_decay=0.0)
    for rate in (1e-2, 0.0):
        optimizer.param_groups[0]["lr"] = rate
        net(torch.arange(37)).float().square().sum().backward()
        optimizer.step()
        net.load_state_dict(loaded)
    assert all(torch.equal(value, loaded[key]) for key, value in net.state_dict().items())
    net(torch.arange(37)).float().square().sum().backward()
    optimizer.step()
    assert all(torch.equal(value, loaded[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_may_change_their_dtype_between_steps(kind: Any) -> None:
    """Masters go where parameters become fp32; new ones begin at the weights where they become bf16 again."""
    net = model()
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4), lr=1e-3, gradients=kind)
    run(optimizer, net, 1)
    net.float()
    other, fresh = copy.deepcopy((net, optimizer))
    fresh.refresh()
    for one, own in ((optimizer, net), (fresh, other)):
        run(one, own, 1)
        assert not any("master" in state for state in one.state.values())
        own.bfloat16()
        run(one, own, 1)
        assert all(state["step"] == 3 for state in one.state.values())
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(optimizer.state[p]["master"], fresh.state[q]["master"])
