"""What loops do with ``parameter.grad`` works on gradients of which only masked entries are stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch

from maskreg.errors import DataError, UsageError
from maskreg.mask.packed import TensorMask
from maskreg.train import MaskedAdamW
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optim.gradients import PackedGradient
from tests.train.optim.training import KINDS, masked, model, run

Parameters = Iterable[torch.nn.Parameter]


def accelerate_s(parameters: Parameters, norm: float) -> torch.Tensor:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    result: torch.Tensor = accelerate.Accelerator(cpu=True).clip_grad_norm_(parameters, norm)
    return result


def verl_s(parameters: Parameters, norm: float) -> torch.Tensor:
    """verl 0.9.1, verl/utils/fsdp_utils.py: fsdp2_clip_grad_norm_."""
    from torch.nn.utils.clip_grad import _clip_grads_with_norm_, _get_total_norm

    parameters = list(parameters)
    total = _get_total_norm([p.grad for p in parameters if p.grad is not None], 2.0, False, None)
    total = total.to("cpu", non_blocking=True)
    _clip_grads_with_norm_(parameters, norm, total, None)
    return total


# Lightning clips as PyTorch does: lightning/pytorch/plugins/precision/precision.py, clip_grad_by_norm.
TORCH_S = torch.nn.utils.clip_grad_norm_
CLIPS: list[Callable[[Parameters, float], torch.Tensor]] = [
    TORCH_S, partial(TORCH_S, foreach=True), accelerate_s, verl_s,
]  # fmt: skip


def packed(dtype: torch.dtype = torch.bfloat16, **options: Any) -> tuple[torch.nn.Module, MaskedOptimizer]:
    net = model(dtype)
    return net, MaskedAdamW(net.named_parameters(), lr=1e-2, mask=masked(net), gradients="packed", **options)


def backward(net: torch.nn.Module, broken: bool = False) -> None:
    x = torch.randn(4, 300, generator=torch.Generator().manual_seed(4))
    x[0, 0] = torch.nan if broken else 1.0
    net(x.to(next(net.parameters()).dtype)).float().square().sum().backward()


def gradients(net: torch.nn.Module) -> list[PackedGradient]:
    return [p.grad for p in net.parameters() if isinstance(p.grad, PackedGradient)]


def outside_is_zero(net: torch.nn.Module, mask: dict[str, TensorMask]) -> None:
    for name, p in net.named_parameters():
        assert p.grad is not None
        p.grad.masked_fill_(~torch.from_numpy(mask[name].to_bool()), 0)


def bits(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def same(net: torch.nn.Module, before: list[torch.Tensor]) -> bool:
    return all(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("limit", [1e-2, 1e9])
def test_others_clip_packed_gradients_by_the_norm_of_their_entries(
    clip: Callable[[Parameters, float], torch.Tensor], limit: float
) -> None:
    net, optimizer = packed(torch.float32)
    other, mask = model(torch.float32), masked(net)
    dense = MaskedAdamW(other.named_parameters(), lr=1e-2, mask=mask)
    for _ in range(2):
        backward(net)
        backward(net)
        backward(other)
        backward(other)
        outside_is_zero(other, mask)
        before = [one.entries.clone() for one in gradients(net)]
        norm, wanted = clip(net.parameters(), limit), clip(other.parameters(), limit)
        torch.testing.assert_close(norm, wanted, rtol=1e-6, atol=0)
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)
        for one, was in zip(gradients(net), before, strict=True):
            assert torch.equal(one.entries, was * factor)
        optimizer.step()
        dense.step()
        optimizer.zero_grad()
        dense.zero_grad()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", CLIPS)
def test_others_see_a_gradient_that_is_not_a_number(clip: Callable[[Parameters, float], torch.Tensor]) -> None:
    net, optimizer = packed()
    run(optimizer, net)
    before, state = bits(net), copy.deepcopy(optimizer.state_dict()["state"])
    backward(net, broken=True)
    assert clip(net.parameters(), 1.0).isnan()
    with pytest.raises(DataError, match=" nan"):
        optimizer.step()
    optimizer.zero_grad()  # as verl does where the norm is not finite
    optimizer.step()
    assert same(net, before)
    for one, other in zip(state.values(), optimizer.state_dict()["state"].values(), strict=True):
        assert all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_not_finite_raises_or_is_skipped_or_is_taken(
    kind: Any, limit: float | None, value: float
) -> None:
    net = model()
    mask = masked(net)
    first = next(iter(net.parameters()))
    inside = torch.from_numpy(mask["0.weight"].to_bool())
    one = inside.nonzero()[3]

    def breaking(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.index_put(tuple(one[:, None]), torch.tensor(value).to(gradient))

    def broken() -> None:
        register: Any = first.register_hook
        handle = register(breaking)
        try:
            backward(net)
        finally:
            handle.remove()

    def made(nonfinite: Any) -> MaskedOptimizer:
        net.zero_grad()
        optimizer = MaskedAdamW(
            net.named_parameters(), lr=1e-2, mask=mask, gradients=kind, max_grad_norm=limit, nonfinite=nonfinite
        )
        optimizer.bind(net)
        return optimizer

    before = bits(net)
    optimizer = made("raise")
    with pytest.raises(DataError, match=r" (nan|inf)\b"):
        broken()
        optimizer.step()
    assert same(net, before)
    before = bits(net)
    optimizer = made("skip")
    with pytest.warns(RuntimeWarning, match=r" (nan|inf)\b"):
        broken()
        optimizer.step()
    assert torch.equal(first, before[0])
    assert optimizer.skipped == 1
    optimizer.zero_grad()
    backward(net)
    optimizer.step()
    assert not torch.equal(first, before[0])
    assert optimizer.skipped == 1
    optimizer = made("propagate")
    broken()
    optimizer.step()
    assert first[tuple(one)].isnan()
    assert not first[~inside].isnan().any()
    if limit and value != value:  # the coefficient is NaN, as PyTorch's is
        assert first[inside].isnan().all()


@pytest.mark.parametrize("of_the_model", [True, False])
def test_what_is_discarded_is_not_stepped_with(of_the_model: bool) -> None:
    net, optimizer = packed()
    run(optimizer, net, 1)
    before = bits(net)
    backward(net)
    (net if of_the_model else optimizer).zero_grad()
    optimizer.step()
    assert same(net, before)


@pytest.mark.parametrize("of_the_model", [True, False])
def test_gradients_set_to_zero_are_zero_and_accumulate_again(of_the_model: bool) -> None:
    nets = [packed(), packed()]
    for number, (net, optimizer) in enumerate(nets):
        if number:
            backward(net, broken=True)
            (net if of_the_model else optimizer).zero_grad(set_to_none=False)
            assert not any(one.entries.any() for one in gradients(net))
        backward(net)
        optimizer.step()
    assert same(nets[0][0], bits(nets[1][0]))


def test_a_group_added_after_the_backward_pass_loses_no_gradient() -> None:
    nets = model(), model()
    mask = masked(nets[0])
    for number, net in enumerate(nets):
        named = list(net.named_parameters())
        first = named[:2] if number else named
        optimizer = MaskedAdamW(first, lr=1e-2, mask=mask, gradients="packed")
        optimizer.bind(net)
        backward(net)
        if number:
            optimizer.add_param_group({"params": named[2:]})
        optimizer.step()
    assert same(nets[0], bits(nets[1]))
    assert not same(nets[0], bits(model()))


def test_gradients_of_another_mask_are_refused() -> None:
    net, optimizer = packed()
    backward(net)
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, seed=5), gradients="packed")
    with pytest.raises(UsageError, match=r" 0\.weight "):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_packed_gradient_computes_like_the_dense_one(dtype: torch.dtype) -> None:
    net, _ = packed()
    for p in net.parameters():
        p.grad_dtype = dtype
    backward(net)
    for (name, p), mask in zip(net.named_parameters(), masked(net).values(), strict=True):
        assert isinstance(p.grad, PackedGradient)
        inside = torch.from_numpy(mask.to_bool())
        dense = torch.zeros(p.shape)
        dense[inside] = p.grad.entries
        assert torch.equal(p.grad + 0, dense.to(dtype)), name
        assert torch.equal(p.grad.float().cpu(), dense.to(dtype).float())
        for order in (0.5, 1, 2, 3, torch.inf):
            torch.testing.assert_close(p.grad.norm(order).float(), dense.norm(order), rtol=1e-4, atol=0)
        assert float(p.grad.norm(-torch.inf)) == 0
        torch.nn.utils.clip_grad_value_([p], 1e-2)
        assert torch.equal(p.grad.entries, dense[inside].clamp(-1e-2, 1e-2))
        p.grad.div_(2.0)
        for local in (p.grad.view(-1), p.grad.view_as(p), p.grad.data):
            before = p.grad.entries.clone()
            local.mul_(0.5)
            assert torch.equal(p.grad.entries, before * 0.5)
            local.mul_(2)
        with pytest.raises(UsageError, match=r"aten\.select"):
            p.grad[0].mul_(2)
        twice: Any = p.grad.clone()
        twice.copy_(torch.ones_like(p)).add_(twice)
        assert torch.equal(twice.entries, torch.full_like(twice.entries, 2.0))
        assert torch.equal(p.grad.entries, dense[inside].clamp(-1e-2, 1e-2) / 2)
        assert "masked entries" in repr(p.grad)
        changes: list[Callable[[torch.Tensor], object]] = [
            lambda one: one.add_(1),
            lambda one: one.clamp_(min=1.0),
            lambda one: one.mul_(torch.ones(30, 1)),
        ]
        for change in changes:
            with pytest.raises(UsageError, match=r"aten\."):
                change(p.grad.detach())


def test_a_compiled_step_is_the_step() -> None:
    nets = [packed(), packed()]
    torch.compiler.reset()
    compiled: Any = torch.compile(nets[1][1].step, backend="eager")
    for (net, _), step in zip(nets, (nets[0][1].step, compiled), strict=True):
        for _ in range(2):
            backward(net)
            step()
    assert same(nets[0][0], bits(nets[1][0]))


@pytest.mark.parametrize("option", ["amsgrad", "capturable", "differentiable", "momentun"])
def test_options_that_there_are_not_are_refused_by_name(option: str) -> None:
    net = model()
    given: dict[str, Any] = {option: True}
    with pytest.raises(UsageError, match=rf" {option}\b") as caught:
        MaskedAdamW(net.named_parameters(), mask=masked(net), **given)
    assert caught.value.hint
    if option != "momentun":
        given = {option: False, "foreach": True, "fused": None}
        MaskedAdamW(net.named_parameters(), mask=masked(net), **given)


@pytest.mark.parametrize("kind", KINDS)
def test_maximizing_is_minimizing_the_opposite(kind: Any) -> None:
    nets = model(), model()
    for net, sign in zip(nets, (-1, 1), strict=True):
        options: dict[str, Any] = {"maximize": sign > 0, "gradients": kind, "mask": masked(net), "lr": 1e-2}
        optimizer = MaskedAdamW(net.named_parameters(), **options)
        for _ in range(2):
            (sign * net(torch.ones(4, 300, dtype=torch.bfloat16)).float().square().sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert same(nets[0], bits(nets[1]))
    assert not same(nets[0], bits(model()))
