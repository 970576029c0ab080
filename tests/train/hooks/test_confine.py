"""Training in a channel: gradients, updates, and how much of an update lies there, against plain matrix products."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.train import MaskedAdamW
from maskreg.train.hooks.confine import Channel, Share, confine
from tests.live.models import gpt2, qwen3, qwen3_moe
from tests.train.optim.training import masked

RANK = 3


def ones(model: Any) -> torch.Tensor:
    tokens = torch.arange(12).reshape(2, 6) % 90 + 3
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def leaned(model: Any) -> torch.Tensor:
    """Has gradients of chance in every parameter, whatever the model computes."""
    generator = torch.Generator().manual_seed(4)
    parts = [(p * torch.randn(p.shape, generator=generator)).sum() for p in model.parameters()]
    return torch.stack(parts).sum()


def updates_of(tensors: dict[str, torch.Tensor]) -> Channel:
    generator = torch.Generator().manual_seed(3)
    return Channel.of_updates(
        [(n, torch.randn(t.shape, generator=generator)) for n, t in sorted(tensors.items())], RANK
    )


def checkpoint_of(model: Any) -> dict[str, torch.Tensor]:
    """What saving the model writes."""
    from transformers.core_model_loading import revert_weight_conversion

    own = dict(model.named_parameters())  # tied ones once
    state: dict[str, torch.Tensor] = revert_weight_conversion(model, {n: p.detach() for n, p in own.items()})
    return {name: tensor.contiguous() for name, tensor in state.items()}


def projected(tensor: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    return tensor.double() @ basis.double() @ basis.double().mT


@pytest.mark.parametrize("make", [qwen3, qwen3_moe, gpt2])
def test_gradients_are_those_of_the_checkpoints_matrices_projected(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = make()
    channel = updates_of(checkpoint_of(model))
    leaned(model).backward()  # type: ignore[no-untyped-call]
    free = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    confined = confine(model, channel)
    leaned(model).backward()  # type: ignore[no-untyped-call]
    wanted = _gradients(model, free)
    found = _gradients(model, {n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    changed = 0
    for name, gradient in found.items():
        basis = channel.bases.get(name)
        true = wanted[name].double() if basis is None else projected(wanted[name], basis)
        assert torch.allclose(gradient.double(), true, atol=1e-6), name
        changed += basis is not None and not torch.allclose(wanted[name], gradient, atol=1e-6)
    assert changed > 4
    confined.release()
    model.zero_grad()
    leaned(model).backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(p.grad, free[n]) for n, p in model.named_parameters() if p.grad is not None)


def _gradients(model: Any, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients by the checkpoint's names: what saving a model with these as its weights would write."""
    from transformers.core_model_loading import revert_weight_conversion

    state: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(gradients))
    return state


def test_accumulated_gradients_are_projected_sums() -> None:
    torch.manual_seed(1)
    model = qwen3()
    channel = updates_of(checkpoint_of(model))
    confine(model, channel)
    ones(model).backward()  # type: ignore[no-untyped-call]
    once = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    ones(model).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, 2 * once[name], atol=1e-5)


def test_adam_leaves_the_channel_and_projecting_its_updates_does_not() -> None:
    shares = {}
    for project in ("gradient", "update"):
        torch.manual_seed(2)
        model = qwen3()
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
        channel = updates_of(checkpoint_of(model))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        confined = confine(model, channel, optimizer, project=project)
        for _ in range(4):
            optimizer.zero_grad()
            ones(model).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        shares[project] = confined.total_energy()
        energy = confined.energy()
        now = dict(model.named_parameters())
        name = "model.layers.0.mlp.up_proj.weight"
        change = (now[name] - start[name]).detach()
        inside = projected(change, channel.bases[name]).square().sum().item()
        assert energy[name].inside == pytest.approx(inside, rel=1e-4)
        assert energy[name].whole == pytest.approx(change.double().square().sum().item(), rel=1e-6)
        assert not torch.equal(now["model.norm.weight"], start["model.norm.weight"]), "vectors train freely"
    assert 0.02 < shares["gradient"].share < 0.95
    assert shares["update"].share > 1 - 1e-6
    assert shares["update"].whole > 0


def test_an_update_of_nothing_lies_in_the_channel() -> None:
    model = qwen3()
    assert confine(model, updates_of(checkpoint_of(model))).total_energy().share == 1
    assert Share(1.0, 4.0).share == 0.25


def test_what_a_channel_cannot_do_is_refused() -> None:
    model = qwen3()
    channel = updates_of(checkpoint_of(model))
    with pytest.raises(UsageError, match="needs the optimizer"):
        confine(model, channel, project="update")
    with pytest.raises(UsageError, match="to both a mask and a channel"):
        confine(model, channel, MaskedAdamW(model.named_parameters()), project="update")
    with pytest.raises(WrongCheckpointError, match="missing in this model"):
        confine(model, updates_of({"model.other.weight": torch.zeros(4, 4)}))
    narrow = qwen3().to(torch.bfloat16)
    with pytest.raises(UsageError, match="needs fp32 parameters"):
        confine(narrow, channel, torch.optim.AdamW(narrow.parameters()), project="update")


def test_weights_loaded_outside_the_channel_are_not_moved_back() -> None:
    torch.manual_seed(2)
    model = qwen3()
    channel = updates_of(checkpoint_of(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step() -> None:
        optimizer.zero_grad()
        ones(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    confined = confine(model, channel, optimizer, project="update")
    kept = {}
    for _ in range(3):
        kept = {name: p.detach().clone() for name, p in model.named_parameters()}
        step()
    model.load_state_dict(kept, strict=False)
    step()  # they lie in the channel
    loaded = {name: p + 0.1 * torch.randn(p.shape) for name, p in kept.items()}
    model.load_state_dict(loaded, strict=False)
    with pytest.raises(UsageError, match="was moved out of the channel") as caught:
        step()
    assert "confine" in str(caught.value.hint)
    assert all(torch.equal(p, loaded[name]) for name, p in model.named_parameters())
    confined.release()
    confined = confine(model, channel, optimizer, project="update")
    step()
    assert confined.total_energy().share > 1 - 1e-6
    for name, p in model.named_parameters():
        torch.testing.assert_close(p, loaded[name], rtol=0, atol=0.1)


def test_a_packed_gradient_cannot_be_confined() -> None:
    model = qwen3().to(torch.bfloat16)
    optimizer = MaskedAdamW(model.named_parameters(), mask=masked(model), gradients="packed")
    optimizer.bind(model)
    confine(model, updates_of(checkpoint_of(model)))
    with pytest.raises(UsageError, match="a view of a packed gradient"):
        ones(model).backward()  # type: ignore[no-untyped-call]
