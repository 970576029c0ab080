"""Any optimizer that works coordinate by coordinate, on the coordinates of a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from maskreg.errors import UsageError
from maskreg.train.optim.masked import MaskedOptimizer, Params, flat_of
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.state import MASK, begin_master

_OWN = (MASK, "master")
_ATTACH = "maskreg.train.attach(model, optimizer, mask), which keeps the frozen coordinates of any optimizer"


class PackedOptimizer(MaskedOptimizer):
    """An optimizer of any class on vectors of the masked coordinates, so that its state has no others.

    Each parameter's masked coordinates are one fp32 vector, the master; the optimizer steps it as if it were the
    parameter, and what it rounds to is written to the weights. So it has to treat every coordinate alike, by its own
    gradients: Lion, RMSprop, Adagrad, NAdam and 8-bit AdamW do. Whether one does is tried on a few numbers first.
    """

    def __init__(
        self,
        params: Params,
        make: Callable[..., torch.optim.Optimizer],
        *,
        resolve: Callable[[Any], Any],
        own: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        """Take the optimizer's class and options, and the masked optimizer's ``own`` options."""
        self._make, self._options = make, options
        defaults = _tried(make, options)
        super().__init__(params, defaults, resolve=resolve, maximize=defaults.get("maximize", False), **own)
        self._inner: torch.optim.Optimizer | None = None
        self._vectors_of: list[MaskedParameter] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """See :class:`MaskedOptimizer`."""
        return {**super().__getstate__(), "_make": self._make, "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See :class:`MaskedOptimizer`."""
        super().__setstate__(state)
        if "_make" in state:
            self._inner = self._vectors_of = None

    def _update(self, parameters: Iterable[MaskedParameter], factor: float) -> None:
        """Give the optimizer the masters and packed gradients of these parameters alone, and let it step."""
        inner = self._optimizer()
        for outer, group in zip(self.param_groups, inner.param_groups, strict=True):
            group.update({key: value for key, value in outer.items() if key in group and key != "params"})
        stepped: list[tuple[MaskedParameter, torch.nn.Parameter, torch.Tensor]] = []
        for item in parameters:
            gradient = self._store.of(item)
            if gradient is None:
                continue
            state, weights = self._state_of(item), item.weights
            flat = flat_of(weights)
            backend = self._backend_of(flat)
            begin_master(item, state, flat, backend)
            vector = self._vector[item.parameter]
            vector.data = state["master"]
            _take_loaded(vector.data, flat, item)
            values = gradient.values if gradient.packed else torch.zeros_like(vector.data)
            if not gradient.packed:
                backend.accumulate(values, gradient.values, item.bits)
            vector.grad = values if factor == 1.0 else values * factor
            inner.state[vector] = {key: value for key, value in state.items() if key not in _OWN}
            stepped.append((item, vector, flat))
        inner.step()
        for item, vector, flat in stepped:
            self.state[item.parameter].update(inner.state.pop(vector), master=vector.data)
            vector.grad = None
            for part, offsets in item.bits.masked_slices():
                flat[part.coordinates].scatter_(0, offsets, vector.data[part.entries].to(flat.dtype))
            if not item.weights.is_contiguous():
                item.weights.copy_(flat.reshape(item.weights.shape))
        # Some count their steps in a group; those numbers are saved with ours.
        for outer, group in zip(self.param_groups, inner.param_groups, strict=True):
            outer.update({key: value for key, value in group.items() if key != "params"})

    def _optimizer(self) -> torch.optim.Optimizer:
        """The optimizer over one vector for each parameter; made anew where parameters were bound anew."""
        if self._inner is None or self._vectors_of is not self._bound:
            self._vectors_of = self._bound
            self._vector = {
                item.parameter: torch.nn.Parameter(torch.empty(0, device=item.weights.device))
                for item in self._bound or ()
            }
            vectors = [[self._vector[p] for p in group["params"]] for group in self.param_groups]
            given = [{**_without_names(g), "params": p} for g, p in zip(self.param_groups, vectors, strict=True)]
            self._inner = self._make(given, **self._options)
        return self._inner


def _without_names(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "param_names"}


def _take_loaded(master: torch.Tensor, flat: torch.Tensor, item: MaskedParameter) -> None:
    """Take over weights that are not what their masters round to: they were loaded since the last step."""
    for part, offsets in item.bits.masked_slices():
        now, kept = flat[part.coordinates].index_select(0, offsets), master[part.entries]
        kept.copy_(torch.where(kept.to(now.dtype) == now, kept, now.float()))


def _tried(make: Callable[..., torch.optim.Optimizer], options: dict[str, Any]) -> dict[str, Any]:
    """The defaults of an optimizer that treats coordinates alike: it steps one vector as it steps its two halves."""
    name = getattr(make, "__name__", type(make).__name__)
    try:
        (whole, optimizer), (halves, _) = (_steps(make, options, n) for n in (1, 2))
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, AssertionError) as error:
        raise UsageError(f"{name} does not step a vector with these options: {error}", hint=_ATTACH) from error
    if not torch.equal(whole, halves):
        raise UsageError(f"{name} does not step each coordinate by itself", hint=_ATTACH)
    if hasattr(optimizer, "eval"):
        raise UsageError(f"{name} swaps the weights in eval()", hint=_ATTACH)
    return dict(optimizer.defaults)


@torch.enable_grad()
def _steps(
    make: Callable[..., torch.optim.Optimizer], options: dict[str, Any], parts: int
) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """A few numbers after three steps, as so many parameters."""
    numbers = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.125, 1.5, 3.0, -0.75])
    parameters = [torch.nn.Parameter(part.clone()) for part in numbers.chunk(parts)]
    optimizer = make(parameters, **options)
    for step in range(3):
        for parameter, gradient in zip(parameters, numbers.roll(step + 1).chunk(parts), strict=True):
            parameter.grad = gradient * (step + 1)
        optimizer.step()
    return torch.cat([parameter.detach() for parameter in parameters]), optimizer
