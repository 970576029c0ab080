from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from maskreg.errors import DataError, UsageError
from maskreg.mask.packed import TensorMask
from maskreg.train import Masked, MaskedAdamW
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optim.backends import Plain
from maskreg.train.optim.gradients import PackedGradient
from tests.train.optim.training import KINDS, masked, model, run

NADAM = partial(Masked, optimizer=torch.optim.NAdam)
BF16 = partial(MaskedAdamW, moments="bf16")
SGD = partial(Masked, optimizer=torch.optim.SGD)


def reference(
    net: torch.nn.Module, mask: dict[str, TensorMask], kind: str, clip: bool, make: Callable[..., torch.optim.Optimizer]
) -> list[torch.Tensor]:
    """Torch's own optimizer on an fp32 copy that gets the same gradients, masked, the weights cast from it."""
    wide = [p.detach().clone().float() for p in net.parameters()]
    optimizer = make(wide)

    def take() -> None:
        for one, p in zip(wide, net.parameters(), strict=True):
            assert p.grad is not None
            one.grad = p.grad.float()
        for one, (name, _) in zip(wide, net.named_parameters(), strict=True):
            assert one.grad is not None
            one.grad *= torch.from_numpy(mask[name].to_bool())
        if clip:
            torch.nn.utils.clip_grad_norm_(wide, 0.5, foreach=False)

    class Both(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__(list(net.parameters()), {})

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            optimizer.step()
            for one, (name, p) in zip(wide, net.named_parameters(), strict=True):
                p.copy_(torch.where(torch.from_numpy(mask[name].to_bool()), one.to(p.dtype), p))

    run(Both(), net, before_step=take)
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("density", [1.0, 0.4, 0.02])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        pytest.param(MaskedAdamW, torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}, id="adamw"),
        pytest.param(SGD, torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}, id="momentum"),
        pytest.param(NADAM, torch.optim.NAdam, {"lr": 1e-3, "weight_decay": 0.1}, id="nadam"),
    ],
)
def test_it_is_torch_bit_for_bit_on_the_mask_and_nothing_elsewhere(
    dtype: torch.dtype,
    density: float,
    kind: str,
    ours: Callable[..., MaskedOptimizer],
    theirs: type[torch.optim.Optimizer],
    options: dict[str, Any],
) -> None:
    net, other = model(dtype), model(dtype)
    mask = masked(net, density)
    before = [p.detach().clone() for p in net.parameters()]
    clip = {"max_grad_norm": 0.5} if kind == "packed" else {}
    run(ours(net.named_parameters(), mask=mask, gradients=kind, backend=Plain(), **clip, **options), net)
    expected = reference(other, mask, kind, bool(clip), lambda p: theirs(p, foreach=False, **options))  # type: ignore[call-arg]
    for (name, p), was, wanted in zip(net.named_parameters(), before, expected, strict=True):
        inside = torch.from_numpy(mask[name].to_bool())
        assert torch.equal(p[~inside], was[~inside])
        if density == 1 and not clip:
            assert torch.equal(p[inside], wanted[inside])
        else:  # the norm of packed entries is summed in another order, and what is vectorised depends on where it lies
            torch.testing.assert_close(p[inside], wanted[inside], rtol=0, atol=5e-5 if dtype == torch.float32 else 4e-3)
    assert any(not torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


def test_state_is_packed() -> None:
    net = model()
    mask = masked(net, 0.25)
    optimizer = MaskedAdamW(net.named_parameters(), mask=mask)
    run(optimizer, net, 1)
    for name, p in net.named_parameters():
        sizes = {key: tuple(value.shape) for key, value in optimizer.state[p].items()}
        packed = (mask[name].nnz,)
        assert sizes == {"step": (), "mask": (16,), "exp_avg": packed, "exp_avg_sq": packed, "master": packed}


def test_bf16_moments_fade_as_those_of_fp32_do() -> None:
    weights, first = torch.nn.Parameter(torch.ones(4096)), torch.linspace(1, 2, 4096)
    optimizer = BF16([("w", weights)], lr=0.0, mask=masked(torch.nn.ParameterDict({"w": weights}), 1.0))
    for step in range(500):
        weights.grad = first * (step == 0)
        optimizer.step()
    now = optimizer.state[weights]["exp_avg_sq"]
    assert optimizer.state[weights]["exp_avg"].dtype == now.dtype == torch.bfloat16
    assert float((now / (first.square() * 1e-3 * 0.999**499)).mean()) == pytest.approx(1, abs=1e-2)


def test_packed_gradients_accumulate_in_fp32_and_free_dense_ones() -> None:
    net, wide = model(), model(torch.float32)
    wide.load_state_dict({k: v.float() for k, v in net.state_dict().items()})
    mask = masked(net, 0.3)
    optimizer = MaskedAdamW(net.named_parameters(), mask=mask, gradients="packed", max_grad_norm=1e9)
    sums = {name: torch.zeros(mask[name].nnz) for name in mask}
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(4, 300, dtype=torch.bfloat16)
        copy = model()
        copy(x).float().square().sum().backward()
        for name, p in copy.named_parameters():
            assert p.grad is not None
            sums[name] += p.grad[torch.from_numpy(mask[name].to_bool())].float()
        net(x).float().square().sum().backward()
        for name, p in net.named_parameters():
            assert isinstance(p.grad, PackedGradient)
            assert p.grad.entries.shape == (mask[name].nnz,)
    optimizer.step()
    assert all(p.grad is None for p in net.parameters())
    assert optimizer.grad_norm is not None
    expected = torch.stack([s.double().square().sum() for s in sums.values()]).sum().sqrt()
    assert float(optimizer.grad_norm) == pytest.approx(float(expected), rel=1e-5)


def test_options_that_exclude_each_other_are_refused() -> None:
    net = model()
    with pytest.raises(UsageError, match="dense"):
        MaskedAdamW(net.named_parameters(), mask=masked(net, 0.5), gradients="packed", clip="dense", max_grad_norm=1.0)


@pytest.mark.parametrize(("dtype", "master"), [(torch.float16, True), (torch.float32, False), (torch.float64, False)])
def test_what_a_step_does_not_move_keeps_its_bits_in_every_dtype(dtype: torch.dtype, master: bool) -> None:
    net = model(dtype)
    with torch.no_grad():
        for p in net.parameters():
            # More digits than fp32 has, where there is room.
            p.add_(torch.randn(p.shape, dtype=torch.float64).to(dtype))
            p.grad = torch.full_like(p, 1e-3)
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = MaskedAdamW(net.named_parameters(), lr=0.0, mask=masked(net, 0.5))
    for lr, moved in ((0.0, False), (1e-2, True)):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        assert all(torch.equal(p, was) != moved for p, was in zip(net.parameters(), before, strict=True))
    assert all(("master" in state) == master for state in optimizer.state.values())


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1.0}, {"lr": math.nan}, {"lr": math.inf}, {"betas": (0.9, 1.0)}, {"betas": (math.nan, 0.9)},
        {"betas": (0.9,)}, {"eps": -1.0}, {"weight_decay": math.nan}, {"max_grad_norm": -1.0}, {"max_grad_norm": 0.0},
        {"max_grad_norm": math.nan}, {"gradients": "pack"}, {"clip": "mask"}, {"lr": "fast"}, {"moments": "fp16"},
        {"lr": 1e300}, {"lr": 3e38}, {"lr": 1e-60}, {"eps": 1e39}, {"weight_decay": 1e39},
        {"lr": 1e20, "weight_decay": 1e20}, {"lr": None}, {"lr": torch.ones(2)}, {"lr": 10**400}, {"betas": 0.9},
        {"betas": None}, {"betas": "ab"}, {"max_grad_norm": "1"}, {"eps": 0}, {"eps": 1e-46}, {"weight_decay": "0"},
    ],
)  # fmt: skip
def test_options_that_would_ruin_the_weights_are_refused(options: dict[str, Any]) -> None:
    net = model()
    with pytest.raises(UsageError, match=f"^{next(iter(options))} ") as caught:
        MaskedAdamW(net.named_parameters(), mask=masked(net, 0.5), **options)
    assert caught.value.hint


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", math.nan), ("lr", torch.tensor(-1.0)), ("eps", 0.0), ("betas", (0.9, 1.0)), ("weight_decay", None)],
)
def test_numbers_that_would_ruin_the_weights_are_refused_at_each_step(kind: Any, name: str, value: Any) -> None:
    net = model()
    weights, biases = [[item for item in net.named_parameters() if item[0].endswith(end)] for end in ("weight", "bias")]
    groups = [{"params": weights}, {"params": biases}]
    optimizer = MaskedAdamW(groups, mask=masked(net, 0.5), gradients=kind)
    run(optimizer, net, 1)
    before = [p.detach().clone() for p in biases_of(net)]
    optimizer.param_groups[1][name] = value
    with pytest.raises(UsageError, match=rf"{name} .*param_groups\[1\]"):
        run(optimizer, net, 1)
    assert all(torch.equal(p, was) for p, was in zip(biases_of(net), before, strict=True))


def biases_of(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p for name, p in net.named_parameters() if name.endswith("bias")]


def test_schedules_may_end_in_rates_too_small_for_fp32() -> None:
    net = model()
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.5))
    optimizer.param_groups[0]["lr"] = 1e-60
    before = [p.detach().clone() for p in net.parameters()]
    run(optimizer, net, 1)
    assert all(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 1])
def test_a_parameter_of_another_shape_is_refused_though_it_has_as_many_elements(kind: Any, steps: int) -> None:
    net = torch.nn.Linear(8, 8, bias=False)
    net.weight = torch.nn.Parameter(torch.ones(16, 4))
    optimizer = SGD(net.named_parameters(), lr=1.0, mask=masked(net, 0.5), gradients=kind)
    optimizer.bind(net)
    for _ in range(steps):
        net.weight.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    net.weight.data = net.weight.data.reshape(4, 16).clone()
    net.weight.grad = None
    before = net.weight.detach().clone()
    with pytest.raises(UsageError, match=r"weight .*\[4, 16\], .*\[16, 4\]"):
        net.weight.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert torch.equal(net.weight, before)


def test_complex_parameters_are_refused() -> None:
    net = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))})
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 1.0))
    net["w"].abs().sum().backward()
    with pytest.raises(UsageError, match=r"^w .*complex") as caught:
        optimizer.step()
    assert "view_as_real" in caught.value.hint


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])  # noqa: S301
@pytest.mark.parametrize(("maker", "steps"), [(MaskedAdamW, 0), (BF16, 2), (MaskedAdamW, 2), (NADAM, 2)])
def test_a_copy_goes_on_alone_where_the_original_would(
    kind: str, copied: Callable[..., Any], maker: Callable[..., MaskedOptimizer], steps: int
) -> None:
    net = model()
    mask = masked(net, 0.5)
    optimizer = maker(net.named_parameters(), lr=1e-2, mask=mask, gradients=kind)
    if steps:
        run(optimizer, net, steps)
    other_net, other = copied((net, optimizer))
    before = [p.detach().clone() for p in net.parameters()]
    run(other, other_net)
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))
    run(optimizer, net)
    for p, q, old in zip(net.parameters(), other_net.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert not torch.equal(p, old)


def test_sparse_gradients_are_refused_by_name() -> None:
    net = torch.nn.Embedding(20, 4, sparse=True)
    optimizer = MaskedAdamW(net.named_parameters(), mask=masked(net, 0.5))
    net(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(UsageError, match=r" weight .*sparse"):
        optimizer.step()


def test_state_of_another_kind_of_optimizer_is_refused() -> None:
    net = model()
    mask = masked(net, 0.5)
    sgd = SGD(net.named_parameters(), momentum=0.9, mask=mask)
    run(sgd, net)
    with pytest.raises(DataError, match=r"betas.* MaskedAdamW"):
        MaskedAdamW(net.named_parameters(), mask=mask).load_state_dict(sgd.state_dict())


@pytest.mark.parametrize("optimizer", [torch.optim.Adafactor, torch.optim.Muon, torch.optim.LBFGS])
def test_an_optimizer_that_does_not_step_coordinates_alone_is_refused(optimizer: type[torch.optim.Optimizer]) -> None:
    with pytest.raises(UsageError) as caught:
        Masked(model().named_parameters(), optimizer, mask=masked(model()), lr=1e-3)
    assert "attach" in (caught.value.hint or "")
