"""Optimizers on the coordinates of a mask: state for those alone, and the bits of all others left as they are."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._compile import _disable_dynamo

from maskreg.errors import DataError, UsageError
from maskreg.mask.packed import Mask
from maskreg.train.optim.backends import backend_of
from maskreg.train.optim.binding import await_forward, await_no_more, bind_parameters, in_order, own_names
from maskreg.train.optim.gradients import GradientMode, GradientStore
from maskreg.train.optim.options import (
    Clip,
    Clipping,
    NonFinite,
    check_group,
    check_modes,
    check_names,
    check_numbers,
    total_norm,
)
from maskreg.train.optim.parameter import MaskedParameter, refuse_fewer, refuse_replicas
from maskreg.train.optim.state import MASK, begin_master, fingerprint_of, restored, saved
from maskreg.train.optim.step import Backend

Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]

_COPIED = ("_resolve", "_clipping", "_mode", "_backend", "_given")


class MaskedOptimizer(torch.optim.Optimizer):
    """What optimizers on a mask have in common.

    Coordinates outside the mask keep their bits: they take part in no operation, so neither weight decay nor clipping,
    foreign state or rounding can move them. State is fp32 and packed to the masked coordinates; for weights narrower
    than fp32 it includes a master copy of the masked ones.

    A parameter finds its mask by name, at the first step or before: by the names given with the parameters, or else
    by the model's, given to :meth:`bind` or seen in its first forward pass. Without either before the first
    backward pass (a loss that calls no module with all parameters), gradients of the first step are dense in every
    mode; :meth:`bind` prevents that. Parameters can be sharded by ``fully_shard`` before or after; each process masks
    its own part. They can change their dtype between steps: masters of those that become fp32 are dropped.

    Args:
        params: parameters, named parameters (``model.named_parameters()``) or groups.
        defaults: of the optimizer.
        resolve: turns what is given as ``mask`` into masks by tensor name, without this package knowing a registry.
        mask: what ``resolve`` takes.
        max_grad_norm: clip gradients to this norm; None does not clip. The norm covers the whole model, over all
            processes.
        clip: take the norm of the ``masked`` entries, which are what is trained, or of ``dense`` gradients, as loops do
            that clip before the step (Accelerate, verl).
        nonfinite: what a gradient does that is infinite or NaN at a masked coordinate (with ``clip="dense"``, at any):
            ``raise`` an error before anything changes; ``skip`` the step with a warning; or ``propagate`` it into
            the weights, as PyTorch does.
        gradients: ``dense`` or ``packed``, see :class:`maskreg.train.optim.gradients.GradientStore`.
        backend: does the arithmetic; by default the fastest for each tensor.
        maximize: step along the gradient instead of against it.
        foreach: accepted and ignored, because frameworks pass it; the backend decides.
        fused: likewise.
        others: options of PyTorch's optimizers that are refused, unless they are switched off.

    Attributes:
        grad_norm: fp32, 0-D, in main memory: norm before clipping at the last step; None if none is taken.
        skipped: steps that ``nonfinite="skip"`` has left out.
    """

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        *,
        resolve: Callable[[Any], Mask],
        mask: Any = None,
        max_grad_norm: float | None = None,
        clip: Clip = "masked",
        nonfinite: NonFinite = "raise",
        gradients: GradientMode = "dense",
        backend: Backend | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        **others: Any,
    ) -> None:
        check_names(others)
        check_numbers({**defaults, "max_grad_norm": max_grad_norm})
        check_modes(gradients, clip, nonfinite, max_grad_norm)
        super().__init__(params, {**defaults, "maximize": maximize})
        self._resolve = resolve
        self._mask = None if mask is None else resolve(mask)
        self._clipping = Clipping(None if max_grad_norm is None else float(max_grad_norm), clip, nonfinite)
        self._mode = gradients
        self._backend = backend
        self._loaded: dict[int, dict[str, Any]] = {}
        self._given = len(in_order(self.param_groups))
        self._start()

    def _start(self) -> None:
        self._bound: list[MaskedParameter] | None = None
        self._store = GradientStore(self._mode, self._backend)
        self.grad_norm: torch.Tensor | None = None
        self.skipped = 0
        await_forward(self)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle needs; it binds its own parameters anew."""
        own = {name: getattr(self, name) for name in _COPIED}
        # An artifact's mask is read lazily from files, which a copy elsewhere might lack.
        own |= {"_mask": None if self._mask is None else dict(self._mask), "_loaded": self._saved()}
        return {**super().__getstate__(), **own, "state": defaultdict(dict)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy. PyTorch's ``load_state_dict`` calls this too, with groups and state alone."""
        super().__setstate__(state)
        if "_loaded" in state:
            self._start()

    # -- masks

    def bind(self, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Any = None) -> list[MaskedParameter]:
        """Find the mask of every parameter now, by the names that a model gives them; returns each with its mask.

        Parameters that were sharded after the optimizer was made are replaced, if it knows their names. State stays.

        Args:
            named: the model, or its parameters by name, which do not tell tied and joined parameters.
            mask: replaces the one given when the optimizer was made.

        Raises:
            DataError: the mask is of another model, or there is state of another mask.
            UsageError: a parameter has no name, no mask, or is of a kind that cannot be masked.
        """
        mask = self._mask if mask is None else self._resolve(mask)
        if mask is None:
            raise UsageError("there is no mask to train", hint="give the optimizer mask=..., or attach one")
        refuse_fewer(self._given, len(in_order(self.param_groups)))
        kept = self._saved()
        bound = bind_parameters(self.param_groups, named, mask)
        self._restore(bound, kept)
        self._bound, self._mask = bound, mask
        if self._mode == "dense":
            await_no_more(self)  # in the other modes, the model is still checked for DistributedDataParallel
        self._store.watch(bound, weakref.WeakMethod(self._on_gradient))
        return bound

    def awaits_model(self) -> bool:
        """Whether there is a mask to bind."""
        return self._mask is not None

    def meet(self, model: torch.nn.Module) -> None:
        """Bind the parameters to the outermost module that has all of them, which is about to run."""
        if self._mode != "dense":
            refuse_replicas(model, self._mode)
        if self._bound is None:
            self.bind(model)

    def _bound_parameters(self) -> list[MaskedParameter]:
        """Every parameter with its mask; bound again if a framework has replaced parameters."""
        parameters = in_order(self.param_groups)
        if self._bound is None or [id(item.parameter) for item in self._bound] != [id(p) for _, p in parameters]:
            refuse_fewer(self._given, len(parameters))
            self.bind(own_names(self.param_groups))
        assert self._bound is not None
        for item, (group, _) in zip(self._bound, parameters, strict=True):
            item.group = group  # loading state makes new ones
        return self._bound

    # -- gradients

    @torch.no_grad()
    def _on_gradient(self, item: MaskedParameter) -> None:
        """Pack a gradient as soon as it is there."""
        item.check_shape()
        if self._store.pack(item) is not None:
            self._state_of(item)

    def _clip_factor(self, parameters: list[MaskedParameter]) -> float | None:
        """What gradients are multiplied by; None if the step is to be skipped."""
        if not self._clipping.needs_norm:
            return 1.0
        masked = self._clipping.norm_of == "masked"
        squares = self._store.square_sums(parameters, masked=masked)
        self.grad_norm = total_norm(zip((item.layout for item in parameters), squares, strict=True))
        if not self._clipping.admits(float(self.grad_norm)):
            self.skipped += 1
            return None
        return self._clipping.factor(self.grad_norm)

    # -- steps

    @_disable_dynamo  # traced, it would enter loops that are compiled already
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every masked coordinate whose parameter has a gradient.

        Returns:
            What ``closure`` returned.

        Raises:
            UsageError: a parameter has no name, no mask, or another shape than its mask; or a number of a group, such
                as the learning rate, would ruin the weights. Nothing has changed.
            DataError: gradients are not finite; nothing has changed, and they are still there.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            check_group(group, self.defaults, f"param_groups[{number}]")
        parameters = self._bound_parameters()
        for item in parameters:
            item.check_shape()
            item.follow_device()
        factor = self._clip_factor(parameters)
        if factor is not None:
            self._update(parameters, factor)
        for item in parameters:
            self._store.release(item)
        return loss

    @abstractmethod
    def _update(self, parameters: Iterable[MaskedParameter], factor: float) -> None:
        """Update parameters by their gradients times the clip factor."""

    def _backend_of(self, *tensors: torch.Tensor) -> Backend:
        return backend_of(*tensors, preferred=self._backend)

    def changed(self) -> Iterator[tuple[str, npt.NDArray[np.int64], npt.NDArray[Any]]]:
        """See :func:`maskreg.train.changed`."""
        for item in self._bound_parameters():
            for positions, bits in item.changed(self.state.get(item.parameter, {}).get("master")):
                codes = bits.cpu().numpy()
                yield item.name, positions.cpu().numpy(), codes.view(f"<u{codes.itemsize}")

    # -- state

    @torch.no_grad()
    def refresh(self) -> None:
        """Begin all masters anew from the weights as they are now; moments stay.

        Steps need no call of this: where a weight is not what its master rounds to, because it was loaded, averaged or
        swapped, they take the weight. Other masters keep the digits that bf16 drops. After this, none does: training
        goes on as it would from a file of the weights, and :meth:`state_dict` holds what was loaded.
        """
        if self._bound is None:
            self._loaded = {n: {k: v for k, v in s.items() if k != "master"} for n, s in self._loaded.items()}
            return
        for item in self._bound_parameters():
            state = self.state.get(item.parameter, {})
            if state.pop("master", None) is not None:
                item.follow_device()
                flat = flat_of(item.weights)
                begin_master(item, state, flat, self._backend_of(flat))

    def _state_of(self, item: MaskedParameter) -> dict[str, Any]:
        """The state of a parameter."""
        # Begun with the first gradient, even where no masked coordinate is local: saving is collective.
        state: dict[str, Any] = self.state[item.parameter]
        state.setdefault(MASK, fingerprint_of(item))
        return state

    def state_dict(self) -> dict[str, Any]:
        """State by parameter number, and the parameter groups; a collective call.

        Vectors of sharded parameters are DTensors in the order of the whole mask, so that the number of processes
        does not show.
        """
        return {**super().state_dict(), "state": self._saved()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` returned, in any number of processes; a collective call.

        State waits as it is until masks are found, which can be at the first step. State of another mask or optimizer
        is refused.
        """
        # PyTorch adds to the defaults what groups need not have.
        own = [name for name in self.defaults if name in self.param_groups[0]]
        if absent := [name for group in state_dict["param_groups"] for name in own if name not in group]:
            raise DataError(
                f"the saved state is of another optimizer: it has no {absent[0]}, as {type(self).__name__} does",
                hint="load it into an optimizer of the class that saved it",
            )
        super().load_state_dict({**state_dict, "state": {}})
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        state = state_dict["state"]
        loaded = {number: state[key] for number, key in enumerate(numbers) if key in state}
        if self._bound is None:
            self._loaded = loaded
        else:
            self._restore(self._bound_parameters(), loaded)

    def _saved(self) -> dict[int, dict[str, Any]]:
        if self._bound is None:
            return {number: dict(state) for number, state in self._loaded.items()}
        states = {number: (item, self.state.get(item.parameter)) for number, item in enumerate(self._bound)}
        return {number: saved(item, state) for number, (item, state) in states.items() if state}

    def _restore(self, bound: list[MaskedParameter], kept: dict[int, dict[str, Any]]) -> None:
        states = {bound[number].parameter: restored(bound[number], state) for number, state in kept.items()}
        self.state.clear()
        self.state.update(states)
        self._loaded = {}


def flat_of(weights: torch.Tensor) -> torch.Tensor:
    """Weights in one dimension, sharing memory if they are contiguous."""
    return weights.contiguous().reshape(-1)
