"""Names by which an optimizer finds the masks of its parameters, for a model in any wrapper and any part that runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from maskreg.errors import WrongCheckpointError
from maskreg.mask.packed import TensorMask
from maskreg.train import MaskedAdamW
from tests.train.optim.training import masked, model
from tests.train.optim.world import processes

X = torch.randn(8, 300, generator=torch.Generator().manual_seed(3)).bfloat16()


class Wrapper(torch.nn.Module):
    """A model within a module, as Lightning's modules and classes of one's own have it."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Runs the inner model alone."""
        result: torch.Tensor = self.net(x).float().square().sum()
        return result


def prefixed(mask: dict[str, TensorMask], prefix: str) -> dict[str, TensorMask]:
    return {f"{prefix}{name}": TensorMask(f"{prefix}{name}", each.shape, each.packed) for name, each in mask.items()}


def called(run: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    result: torch.Tensor = run(X).float().square().sum()
    return result


def compiled(net: torch.nn.Module) -> torch.nn.Module:
    made: Any = torch.compile(net, backend="eager")
    assert isinstance(made, torch.nn.Module)
    return made


def adapted(net: torch.nn.Module) -> torch.nn.Module:
    """A model as PEFT wraps it, its base trained."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    wrapped: torch.nn.Module = peft.get_peft_model(net, peft.LoraConfig(target_modules=["0"], r=2))
    for name, parameter in wrapped.named_parameters():
        parameter.requires_grad_("lora" not in name)
    return wrapped


def trained(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


WAYS: dict[str, Callable[[torch.nn.Module], tuple[Any, Callable[[], torch.Tensor], str]]] = {
    "root": lambda net: (net.named_parameters(), lambda: called(net), ""),
    "root without names": lambda net: (net.parameters(), lambda: called(net), ""),
    "wrapper": lambda net: ((w := Wrapper(net)).named_parameters(), lambda: called(w), "net."),
    "wrapper without names": lambda net: ((w := Wrapper(net)).parameters(), lambda: called(w), "net."),
    "loss method, own names": lambda net: ((w := Wrapper(net)).named_parameters(), lambda: w.loss(X), "net."),
    "loss method, inner names": lambda net: ((w := Wrapper(net)).named_parameters(), lambda: w.loss(X), ""),
    "loss method without names": lambda net: ((w := Wrapper(net)).parameters(), lambda: w.loss(X), ""),
    "inner parameters, outer runs": lambda net: (net.named_parameters(), lambda: called(Wrapper(net)), ""),
    "wrapper of wrappers": lambda net: (
        (w := Wrapper(Wrapper(net))).named_parameters(), lambda: w.net.loss(X), "net.net.",  # type: ignore[operator]
    ),
    "no module runs": lambda net: (
        net.named_parameters(), lambda: called(lambda x: x @ net[0].weight.T[:, :30] + net[2].bias), ""  # type: ignore[index]
    ),
    "compiled": lambda net: ((c := compiled(net)).named_parameters(), lambda: called(c), ""),
    "DataParallel": lambda net: ((d := DataParallel(net)).named_parameters(), lambda: called(d), ""),
    "DistributedDataParallel": lambda net: (
        (d := DistributedDataParallel(net)).named_parameters(), lambda: called(d), ""
    ),
    "PEFT": lambda net: (trained(p := adapted(net)), lambda: called(p), ""),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_mask_by_the_names_of_what_is_given_is_found(way: str, tmp_path: Path) -> None:
    net = model()
    mask = masked(net, 0.4)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    own = dict(net.named_parameters())
    with processes(0, 1, tmp_path / "meet") if way == "DistributedDataParallel" else nullcontext():
        params, loss, prefix = WAYS[way](net)
        optimizer = MaskedAdamW(params, mask=prefixed(mask, prefix), lr=1e-2, weight_decay=0.1)
        torch.autograd.backward(loss())
        optimizer.step()
    moved = {name: torch.from_numpy(mask[name].to_bool()) & (p != before[name]) for name, p in own.items()}
    assert any(each.any() for each in moved.values())
    for name, p in own.items():
        assert torch.equal(p.detach() != before[name], moved[name])


def test_where_no_name_fits_the_error_has_both() -> None:
    wrapper = Wrapper(model())
    optimizer = MaskedAdamW(wrapper.named_parameters(), mask=prefixed(masked(wrapper.net), "other."))
    with pytest.raises(WrongCheckpointError) as raised:
        wrapper.loss(X)
    assert "net.0.weight" in str(raised.value)
    assert " 0.weight" in str(raised.value).replace("(", " ")
    assert not optimizer.state
