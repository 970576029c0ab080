"""Models that ``torch.compile`` compiles in place, whose hooks it traces."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.modules.module import _global_forward_pre_hooks

from maskreg.errors import UsageError
from maskreg.mask.packed import TensorMask
from maskreg.train import MaskedAdamW
from tests.train.optim.training import masked

GLOBAL_HOOKS = pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
X = torch.linspace(-1, 1, 32).reshape(4, 8)


class Outer(torch.nn.Module):
    def __init__(self, during_trace: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        self.during_trace = during_trace

    def forward(self, x: torch.Tensor) -> Any:
        y = self.body(x)
        self.during_trace()
        return y


class Counting:
    """A backend that runs graphs as they are."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Callable[..., Any], _: Any) -> Callable[..., Any]:
        self.graphs += 1
        return graph


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    gc.collect()
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def trained(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    for _ in range(2):
        net(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in net.parameters()]


def made(net: torch.nn.Module, mask: dict[str, TensorMask], named: bool, **options: Any) -> MaskedAdamW:
    return MaskedAdamW(net.named_parameters() if named else net.parameters(), lr=1e-2, mask=mask, **options)


@pytest.mark.parametrize(("kind", "compiled_first", "named"), [("dense", True, True), ("packed", False, False)])
def test_a_model_compiled_in_place_trains_as_one_that_is_not(kind: Any, compiled_first: bool, named: bool) -> None:
    plain, net, backend = Outer(), Outer(), Counting()
    mask = masked(plain, 0.5)
    expected = trained(plain, made(plain, mask, named, gradients=kind))
    if compiled_first:
        net.compile(backend=backend, fullgraph=True)
    optimizer = made(net, mask, named, gradients=kind)
    if not compiled_first:
        net.compile(backend=backend, fullgraph=True)
    assert all(torch.equal(p, q) for p, q in zip(trained(net, optimizer), expected, strict=True))
    assert backend.graphs == 1


def test_a_sequential_compiled_in_place_trains() -> None:
    net = Outer().body
    before = [p.detach().clone() for p in net.parameters()]
    net.compile(backend="eager")
    after = trained(net, made(net, masked(net, 0.5), named=True))
    assert not any(torch.equal(p, q) for p, q in zip(after, before, strict=True))


def test_a_mask_that_does_not_fit_is_refused_in_a_compiled_model_too() -> None:
    net = Outer()
    net.compile(backend="eager", fullgraph=True)
    optimizer = made(net, {"body.0.weight": masked(net, 0.5)["body.0.weight"]}, named=True)
    with pytest.raises(UsageError, match=r" body\.0\.bias, body\.2\.weight, body\.2\.bias,"):
        trained(net, optimizer)


@GLOBAL_HOOKS
def test_an_optimizer_that_waits_breaks_no_graph_of_another_model() -> None:
    net, teacher, backend = Outer(), Outer(), Counting()
    waiting = made(teacher, masked(teacher, 0.5), named=False)
    net.compile(backend=backend, fullgraph=True)
    trained(net, made(net, masked(net, 0.5), named=False))
    assert backend.graphs == 1
    trained(teacher, waiting)
    assert waiting.state


@GLOBAL_HOOKS
def test_an_optimizer_may_be_collected_amid_a_compilation() -> None:
    hooks = len(_global_forward_pre_hooks)
    teacher = Outer()
    waiting = [made(teacher, masked(teacher, 0.5), named=False)]

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def collect() -> None:
        waiting.clear()
        gc.collect()

    net = Outer(collect)
    net.compile(backend="eager")
    optimizer = made(net, masked(net, 0.5), named=True)
    optimizer.bind(net)
    trained(net, optimizer)
    assert not waiting
    assert len(_global_forward_pre_hooks) <= hooks
