"""How frameworks make, wrap, save and move optimizers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.nn.modules.module import _global_forward_pre_hooks

from maskreg.errors import UsageError
from maskreg.train import MaskedAdamW
from tests.train.optim.training import KINDS, masked, model, run


def test_verl_makes_it_without_names_and_the_model_gives_them() -> None:
    net, other = model(), model()
    mask = masked(net, 0.4)
    # As verl 0.9.1 makes it: verl/workers/config/optimizer.py.
    optimizer = MaskedAdamW(net.parameters(), lr=1e-3, weight_decay=0.1, betas=[0.9, 0.999], mask=mask)  # type: ignore[arg-type]
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(UsageError, check=lambda error: "optimizer.bind(" in error.hint):
        optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        model()(torch.randn(1, 300, dtype=torch.bfloat16))  # the reference
    run(optimizer, net)
    named = MaskedAdamW(other.named_parameters(), mask=mask, lr=1e-3, weight_decay=0.1)
    run(named, other)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_state_moves_as_offloading_moves_it() -> None:
    net = model()
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4))
    run(optimizer, net, 1)
    held = [weakref.ref(value) for state in optimizer.state.values() for value in state.values()]
    for state in optimizer.state.values():
        state.update({key: value.clone() for key, value in state.items()})
    gc.collect()
    assert held
    assert all(one() is None for one in held)
    run(optimizer, net, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_state_made_by_a_step_of_nothing_changes_no_bits(kind: Any) -> None:
    net = model()
    with torch.no_grad():
        net[0].weight[0] = -0.0  # type: ignore[index]
    before = [p.detach().clone().view(torch.int16) for p in net.parameters()]
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4), gradients=kind)
    state: dict[str, Any] = get_optimizer_state_dict(net, optimizer)
    assert state["state"].keys() == dict(net.named_parameters()).keys()
    assert all(torch.equal(p.view(torch.int16), was) for p, was in zip(net.parameters(), before, strict=True))


def test_saving_amid_accumulation_takes_nothing_from_packed_gradients() -> None:
    net, other = model(), model()
    mask = masked(net, 0.4)
    x = torch.randn(4, 300, dtype=torch.bfloat16)
    for one, saves in ((net, True), (other, False)):
        optimizer = MaskedAdamW(one.named_parameters(), mask=mask, gradients="packed")
        one(x).float().sum().backward()
        if saves:
            get_optimizer_state_dict(one, optimizer)
        one(x * 2).float().sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_a_learning_rate_may_be_a_tensor_and_options_for_torch_are_taken() -> None:
    nets = model(), model()
    mask = masked(nets[0], 0.4)
    run(MaskedAdamW(nets[0].named_parameters(), lr=torch.tensor(2.0**-10), mask=mask, foreach=True), nets[0])  # type: ignore[arg-type]
    run(MaskedAdamW(nets[1].named_parameters(), lr=2.0**-10, mask=mask, fused=True), nets[1])
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))


@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_grad_scaler_works_on_dense_and_packed_gradients(kind: Any) -> None:
    net = model(torch.float32)
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4), gradients=kind)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    x = torch.randn(4, 300)
    scaler.scale(net(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(state["step"] == 1 for state in optimizer.state.values())
    other = model(torch.float32)
    plain = MaskedAdamW(other.named_parameters(), mask=masked(net, 0.4))
    other(x).sum().backward()
    plain.step()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))
    scaler.scale(net(x).sum() * torch.inf).backward()
    scaler.step(optimizer)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))


def test_accelerate_s_wrapper_steps_saves_and_loads() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    net, other = model(), model()
    mask = masked(net, 0.4)
    plain = MaskedAdamW(other.named_parameters(), mask=mask)
    ready = accelerate.Accelerator(cpu=True)
    inner, wrapped = ready.prepare(net, MaskedAdamW(net.named_parameters(), mask=mask))
    run(wrapped, inner)
    wrapped.load_state_dict(wrapped.state_dict())
    run(wrapped, inner)
    run(plain, other)
    run(plain, other)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_hooks_go_with_the_optimizer() -> None:
    gc.collect()
    hooks = len(_global_forward_pre_hooks)
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    unbound = MaskedAdamW(model().parameters(), mask=masked(net, 0.4))
    net(torch.randn(1, 300, dtype=torch.bfloat16))
    assert len(_global_forward_pre_hooks) == hooks + 1
    bound = MaskedAdamW(net.parameters(), mask=masked(net, 0.4), gradients="packed")
    net(torch.randn(1, 300, dtype=torch.bfloat16))
    assert len(_global_forward_pre_hooks) == hooks + 1
    del unbound, bound
    gc.collect()
    assert len(_global_forward_pre_hooks) == hooks
    net(torch.randn(1, 300, dtype=torch.bfloat16)).float().sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert all(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


class TestRefused:
    @pytest.mark.parametrize(
        ("attribute", "value", "said", "hint"),
        [
            ("_is_flat_param", True, "FlatParameter", "strategy=fsdp2"),
            ("_fsdp_flattened", True, "FlatParameter", "strategy=fsdp2"),
            ("ds_id", 7, "is DeepSpeed's", "fully_shard"),
            ("_hp_mapping", 7, "is DeepSpeed's", "fully_shard"),
        ],
    )
    def test_fsdp1_and_deepspeed(self, attribute: str, value: object, said: str, hint: str) -> None:
        net = model()
        setattr(next(net.parameters()), attribute, value)
        with pytest.raises(UsageError, match=said) as caught:
            run(MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4)), net, 1)
        assert hint in caught.value.hint

    @pytest.mark.parametrize("named", [True, False])
    def test_parameters_put_together_to_fewer(self, named: bool) -> None:
        net = model()
        optimizer = MaskedAdamW(net.named_parameters() if named else net.parameters(), mask=masked(net, 0.4))
        optimizer.param_groups[0]["params"] = [torch.zeros(sum(p.numel() for p in net.parameters()))]
        with pytest.raises(UsageError, match=r"\b4 .*\b1\b.* DeepSpeed"):
            optimizer.step()

    def test_meta_tensors(self) -> None:
        net = model().to("meta")
        optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.4))
        with pytest.raises(UsageError, match=" meta "):
            optimizer.step()
