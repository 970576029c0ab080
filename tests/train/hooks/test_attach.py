from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.errors import CorruptError, UsageError, WrongCheckpointError
from maskreg.mask.packed import TensorMask, pack
from maskreg.train import LostUpdateWarning, MaskedAdamW, attach
from tests.train.counting import changed, copies
from tests.train.optim.training import masked

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, weight_decay=0.1, centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2, weight_decay=0.1),
    "masked": lambda p: MaskedAdamW(p, lr=1e-2, weight_decay=0.1),
}


class Net(torch.nn.Module):
    """Odd sizes, a scalar, a tied weight, a transposed one, a buffer."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(37, 19, dtype=dtype)
        self.layer = torch.nn.Linear(19, 19, dtype=dtype)
        self.layer.weight = torch.nn.Parameter(torch.randn(19, 19, dtype=dtype).t())
        self.scale = torch.nn.Parameter(torch.ones((), dtype=dtype))
        self.head = torch.nn.Linear(19, 37, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.tanh(self.layer(self.embed(ids))) * self.scale)
        return logits


def optimizer_of(kind: str, named: Iterable[tuple[str, torch.Tensor]]) -> torch.optim.Optimizer:
    """A masked optimizer gets names, any other only parameters."""
    return OPTIMIZERS[kind](named if kind == "masked" else [p for _, p in named])


def train(
    net: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3, accumulate: int = 1, clip: float = 0.0
) -> None:
    for step in range(steps * accumulate):
        ids = torch.randint(37, (5, 4), generator=torch.Generator().manual_seed(step))
        net(ids).float().square().mean().backward()
        if (step + 1) % accumulate == 0:
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("kind", OPTIMIZERS)
@settings(max_examples=6, deadline=None)
@given(
    density=st.sampled_from([0.05, 0.3, 1.0]),
    accumulate=st.integers(1, 2),
    clip=st.sampled_from([0.0, 1e-3]),
    resumed=st.booleans(),
)
def test_frozen_coordinates_keep_their_bits(
    kind: str, density: float, accumulate: int, clip: float, resumed: bool
) -> None:
    net = Net()
    mask = masked(net, density)
    optimizer = optimizer_of(kind, net.named_parameters())
    if resumed and kind != "masked":  # momentum everywhere, from before there was a mask
        train(net, optimizer)
    before = copies(net)
    attachment = attach(net, optimizer, mask)
    train(net, optimizer, 3, accumulate, clip)
    attachment.check()
    outside, inside = changed(net, before, mask)
    assert outside == 0 < inside


def test_clipping_sees_masked_gradients_even_where_they_are_not_numbers() -> None:
    net = Net()
    mask = masked(net)
    attach(net, torch.optim.AdamW(net.parameters()), mask)
    frozen = torch.from_numpy(~mask["layer.weight"].to_bool())
    before: Any = net.layer.weight.register_hook
    before(lambda grad: grad + torch.where(frozen, torch.nan, 0.0))
    net(torch.arange(20)).square().mean().backward()
    assert torch.isfinite(torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0))
    assert net.layer.weight.grad is not None
    assert not net.layer.weight.grad[frozen].any()


@pytest.mark.parametrize("kind", ["sgd", "masked"])
def test_check_names_what_was_written_behind_its_back(kind: str) -> None:
    net = Net()
    mask = masked(net)
    optimizer = optimizer_of(kind, net.named_parameters())
    attachment = attach(net, optimizer, mask)
    frozen = np.argwhere(~mask["layer.weight"].to_bool())[5]
    trained = np.argwhere(mask["layer.weight"].to_bool())[5]
    with torch.no_grad():
        net.layer.weight[tuple(trained)] += 1
        attachment.check()
        net.layer.weight[tuple(frozen)] *= -1
    with pytest.raises(CorruptError, match=r"layer\.weight: ") as caught:
        attachment.check()
    if kind == "sgd":
        assert str([int(i) for i in frozen]) in str(caught.value)


def test_a_zero_that_changes_its_sign_has_changed() -> None:
    net = Net()
    mask = masked(net)
    row, column = np.argwhere(~mask["embed.weight"].to_bool())[0].tolist()
    with torch.no_grad():
        net.embed.weight[row, column] = 0.0
    attachment = attach(net, torch.optim.SGD(net.parameters()), mask)
    with torch.no_grad():
        net.embed.weight[row, column] = -0.0
    with pytest.raises(CorruptError, match=r"embed\.weight"):
        attachment.check()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_what_is_loaded_outside_the_mask_stays_and_is_reported(kind: str) -> None:
    net = Net()
    mask = masked(net)
    optimizer = optimizer_of(kind, net.named_parameters())
    attachment = attach(net, optimizer, mask)
    train(net, optimizer)
    loaded = {name: value + 1 for name, value in copies(net).items()}
    net.load_state_dict(loaded, strict=False)
    train(net, optimizer)
    assert changed(net, loaded, mask)[0] == 0
    with pytest.raises(CorruptError, match=r"^scale: "):
        attachment.check()
    attachment.detach()
    again = attach(net, optimizer, mask)
    train(net, optimizer)
    again.check()


def test_a_dense_optimizer_of_narrow_parameters_is_warned_about() -> None:
    net = Net(torch.bfloat16)
    with pytest.warns(LostUpdateWarning, match=r"bfloat16 without fp32 masters.*MaskedAdamW"):
        attach(net, torch.optim.AdamW(net.parameters()), masked(net))
    net = Net(torch.bfloat16)
    attach(net, MaskedAdamW(net.named_parameters()), masked(net))


# An optimizer that no longer has a model to wait for, in an earlier test, might not have been collected yet.
@pytest.mark.filterwarnings("ignore:Using `torch.compile", "ignore::maskreg.train.LostUpdateWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wrap", [lambda net: net, partial(torch.compile, backend="eager")], ids=["plain", "compiled"])
def test_narrow_parameters_and_compiled_models_keep_their_bits_too(dtype: torch.dtype, wrap: Any) -> None:
    net = Net(dtype)
    trained = wrap(net)
    mask, before = masked(net), copies(net)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    attachment = attach(trained, optimizer, mask)
    train(trained, optimizer)
    attachment.check()
    outside, inside = changed(net, before, mask)
    assert outside == 0 < inside


def test_after_detaching_everything_trains() -> None:
    net = Net()
    mask, before = masked(net), copies(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    attach(net, optimizer, mask).detach()
    train(net, optimizer)
    assert changed(net, before, mask)[0] > 0


@pytest.mark.parametrize("kind", ["sgd", "masked"])
class TestOtherParameters:
    def test_a_resized_embedding(self, kind: str) -> None:
        net = Net()
        optimizer = optimizer_of(kind, net.named_parameters())
        attachment = attach(net, optimizer, masked(net))
        net.embed = torch.nn.Embedding(40, 19)
        net.head.weight = net.embed.weight
        with pytest.raises(UsageError, match=r"embed\.weight, \[37, 19\] .* \[40, 19\]"):
            optimizer.step()
        with pytest.raises(UsageError, match=r"embed\.weight"):
            attachment.check()

    def test_a_group_added_later(self, kind: str) -> None:
        net = Net()
        named = dict(net.named_parameters())
        scale = named.pop("scale")
        optimizer = optimizer_of(kind, named.items())
        attach(net, optimizer, masked(net))
        optimizer.add_param_group({"params": [("scale", scale)] if kind == "masked" else [scale]})
        with pytest.raises(UsageError, check=lambda error: "add_param_group" in error.hint):
            optimizer.step()

    def test_a_mask_that_does_not_fit(self, kind: str) -> None:
        net = Net()
        mask = masked(net)
        scale = mask.pop("scale")
        other = {"lm_head.bias": TensorMask("lm_head.bias", (1,), np.zeros(8, np.uint8))}
        for wrong, error in (
            (None, UsageError),
            (mask, UsageError),
            ({**mask, "scale": scale} | other, WrongCheckpointError),
        ):
            with pytest.raises(error):
                attach(net, optimizer_of(kind, net.named_parameters()), wrong)

    def test_those_of_another_model(self, kind: str) -> None:
        net, other = Net(), Net()
        named = [(f"other.{name}", p) for name, p in other.named_parameters()]
        optimizer = optimizer_of(kind, named)
        with pytest.raises(UsageError):
            attach(net, optimizer, masked(net))

    def test_a_mask_of_more_than_is_trained(self, kind: str) -> None:
        net = Net()
        net.layer.requires_grad_(False)
        named = {name: p for name, p in net.named_parameters() if p.requires_grad}
        mask = masked(net) | {"seen": TensorMask("seen", (3,), pack(np.ones(3, bool)))}
        before = copies(net)
        optimizer = optimizer_of(kind, named.items())
        attach(net, optimizer, mask)
        train(net, optimizer)
        assert changed(net, before, mask)[0] == 0
        assert torch.equal(net.layer.weight, before["layer.weight"])


class FailsToSwap(torch.optim.SGD):
    """Moves all weights before it fails, as an optimizer that swaps weights for evaluation could."""

    @torch.no_grad()
    def eval(self) -> None:
        for p in (p for group in self.param_groups for p in group["params"]):
            p.mul_(0.5)
        raise RuntimeError("out of memory")


def test_frozen_weights_are_restored_when_an_optimizer_fails_to_swap() -> None:
    net = Net()
    mask, before = masked(net), copies(net)
    optimizer = FailsToSwap(net.parameters(), lr=1e-2)
    attach(net, optimizer, mask)
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.eval()
    outside, inside = changed(net, before, mask)
    assert outside == 0 < inside
