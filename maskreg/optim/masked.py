"""AdamW and SGD on the coordinates of a mask: state for those alone, and the bits of all others left as they are."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Literal

import torch
import xxhash

from maskreg.errors import UsageError
from maskreg.live.masks import masks_of
from maskreg.live.shards import local_of
from maskreg.mask.packed import Mask
from maskreg.optim.bits import Bits
from maskreg.optim.bound import Bound
from maskreg.optim.plain import Plain
from maskreg.optim.state import begun, restored, saved
from maskreg.optim.step import Adam, Backend, Gradient, Sgd

Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]


class MaskedOptimizer(torch.optim.Optimizer):
    """What AdamW and SGD on a mask have in common.

    Coordinates outside the mask keep the bits they have: they take part in no operation, so neither weight decay nor
    clipping, state loaded from elsewhere or rounding can move them. State is fp32 and packed to the masked coordinates;
    for weights narrower than fp32 it includes a master copy of the masked ones.

    A parameter finds its mask by name, at the first step or before: from the names given with the parameters, or from
    the model, by :meth:`bind` or by its first forward pass with gradients.

    Args:
        params: parameters, named parameters (``model.named_parameters()``) or groups.
        defaults: of the optimizer.
        mask: by the names in the checkpoint that it was made from.
        max_grad_norm: clip gradients to this norm; None does not clip. The norm is that of the whole model, on all
            processes together.
        clip: whether the norm is that of the masked entries, which are what is trained, or of dense gradients.
        gradients: ``dense`` leaves them as autograd makes them; ``packed`` adds the masked entries into fp32 ``[nnz]``
            as soon as a parameter's gradient is there, and frees it; ``in-backward`` takes the step right then.
        backend: carries out steps; by default the fastest there is for each device.

    Raises:
        UsageError: options that exclude each other.
    """

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        *,
        mask: Mask | None = None,
        max_grad_norm: float | None = None,
        clip: Literal["masked", "dense"] = "masked",
        gradients: Literal["dense", "packed", "in-backward"] = "dense",
        backend: Backend | None = None,
    ) -> None:
        if gradients == "packed" and clip == "dense" and max_grad_norm is not None:
            raise UsageError(
                "the norm of dense gradients needs dense gradients", hint='clip="masked", or gradients="dense"'
            )
        if gradients == "in-backward" and max_grad_norm is not None:
            raise UsageError(
                "clipping needs all gradients before the first step is taken",
                hint='gradients="packed" takes 4 bytes each',
            )
        super().__init__(params, defaults)
        self._mask = mask
        self._max_grad_norm = max_grad_norm
        self._clip = clip
        self._gradients = gradients
        self._backend: Backend = backend or Plain()
        self._bound: list[Bound] | None = None
        self._loaded: dict[int, dict[str, Any]] = {}
        self._hooks: list[Any] = []
        self.grad_norm: torch.Tensor | None = None
        if mask is not None:
            self._await_forward()

    # -- which coordinates

    def bind(self, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Mask | None = None) -> list[Bound]:
        """Find the mask of every parameter now, by the names that a model gives them.

        Args:
            named: the model, or its parameters by name.
            mask: in place of the one given when the optimizer was made.

        Returns:
            Each parameter with its mask.

        Raises:
            UsageError: a parameter has no name, or no mask.
            WrongCheckpointError: the mask is of another model.
        """
        model = named if isinstance(named, torch.nn.Module) else None
        if isinstance(named, torch.nn.Module):
            named = dict(named.named_parameters())
        if mask is not None:
            self._mask = mask
        if self._mask is None:
            raise UsageError("there is no mask to train", hint="give the optimizer mask=..., or attach one")
        names = {id(parameter): name for name, parameter in named.items()}
        places = [(group, p) for group in self.param_groups for p in group["params"]]
        if any(id(p) not in names for _, p in places):
            raise UsageError("the optimizer trains parameters that the model does not have")
        masks = masks_of({names[id(p)]: p for _, p in places}, self._mask, model)
        bound = []
        for (group, p), (name, one) in zip(places, masks, strict=True):
            local = local_of(p.detach())
            bits = Bits.of(one.packed, local.numel(), local.device)
            bound.append(Bound(name, p, group, bits, xxhash.xxh3_128_digest(one.packed.data)))
        self._bound = bound
        self._watch()
        self._take_loaded()
        return bound

    def _bindings(self) -> list[Bound]:
        places = [(group, p) for group in self.param_groups for p in group["params"]]
        bound = self._bound
        if bound is None or [id(item.parameter) for item in bound] != [id(p) for _, p in places]:
            bound = self.bind(_named(self.param_groups))
        for item, (group, _) in zip(bound, places, strict=True):
            item.group = group  # loading state and adding groups make new ones
        return bound

    def _await_forward(self) -> None:
        """Bind when a model with these parameters runs forwards for the first time."""
        this = weakref.ref(self)

        def bind(module: torch.nn.Module, _: object) -> None:
            optimizer = this()
            if optimizer is None or optimizer._bound is not None:
                handle.remove()
            elif torch.is_grad_enabled():
                # Not before now: what shards a model after this was made swaps the parameters in its groups.
                wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
                if wanted <= {id(p) for p in module.parameters()}:
                    optimizer.bind(module)
                    handle.remove()

        handle = torch.nn.modules.module.register_module_forward_pre_hook(bind)

    # -- gradients

    def _watch(self) -> None:
        for handle in self._hooks:
            handle.remove()
        self._hooks = []
        if self._gradients != "dense":
            for item in self._bound or []:
                take = partial(self._pack if self._gradients == "packed" else self._step_now, item)
                watch: Callable[..., Any] = item.parameter.register_post_accumulate_grad_hook
                self._hooks.append(watch(lambda _, take=take: take()))

    @torch.no_grad()
    def _pack(self, item: Bound) -> None:
        dense = item.dense
        if dense is None:
            return
        if item.packed is None:
            item.packed = torch.zeros(item.bits.nnz, dtype=torch.float32, device=dense.device)
        self._backend.accumulate(item.packed, dense, item.bits)
        item.parameter.grad = None

    @torch.no_grad()
    def _step_now(self, item: Bound) -> None:
        if item.stepped:
            raise UsageError(
                f"a second gradient of {item.name} before step(): steps within the backward pass cannot accumulate",
                hint='gradients="packed" accumulates',
            )
        self._update(item, 1.0)
        item.stepped = True
        item.parameter.grad = None
        item.packed = None

    def _gradient(self, item: Bound) -> Gradient | None:
        if self._gradients == "packed":
            self._pack(item)  # what a hook has not seen, because it was put there by hand or before there was one
            return None if item.packed is None else Gradient(item.packed, packed=True)
        dense = item.dense
        return None if dense is None else Gradient(dense, packed=False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients, dense and packed."""
        super().zero_grad(set_to_none=set_to_none)
        for item in self._bound or []:
            item.packed = None

    def _scale(self, bindings: list[Bound]) -> float:
        if self._max_grad_norm is None:
            return 1.0
        total = torch.zeros((), dtype=torch.float64)
        for item in bindings:
            gradient = self._gradient(item)
            if gradient is None:
                continue
            values = gradient.values
            if self._clip == "masked" and not gradient.packed:
                values = torch.zeros(item.bits.nnz, dtype=torch.float32, device=values.device)
                self._backend.accumulate(values, gradient.values, item.bits)
            total += torch.linalg.vector_norm(values, dtype=torch.float32).double().cpu() ** 2
        self.grad_norm = total.sqrt()
        return min(1.0, self._max_grad_norm / (float(self.grad_norm) + 1e-6))

    # -- steps

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step on every masked coordinate whose parameter has a gradient.

        Returns:
            What ``closure`` returned.

        Raises:
            UsageError: a parameter has no name, or no mask.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        bindings = self._bindings()
        if self._gradients == "in-backward":
            for item in bindings:
                item.stepped = False
            return loss
        scale = self._scale(bindings)
        for item in bindings:
            self._update(item, scale)
        return loss

    def _update(self, item: Bound, scale: float) -> None:
        gradient = self._gradient(item)
        if gradient is None or not item.bits.nnz:
            return
        weights = item.weights
        state = self._state(item)
        flat = weights.reshape(-1) if weights.is_contiguous() else weights.contiguous().reshape(-1)
        if weights.dtype != torch.float32 and "master" not in state:
            state["master"] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=weights.device)
            self._backend.accumulate(state["master"], flat, item.bits)
        state["step"] += 1
        self._apply(flat, gradient, item, state, scale)
        if not weights.is_contiguous():
            weights.copy_(flat.reshape(weights.shape))

    # -- state

    def _state(self, item: Bound) -> dict[str, Any]:
        state: dict[str, Any] = self.state[item.parameter]
        if not state:
            state.update(begun(item))
        return state

    def state_dict(self) -> dict[str, Any]:
        """State by parameters' numbers, the same whatever the number of processes, and the parameter groups."""
        whole = super().state_dict()
        if self._loaded:
            return {**whole, "state": {number: dict(state) for number, state in self._loaded.items()}}
        items = dict(enumerate(self._bound or []))
        return {**whole, "state": {number: saved(items[number], state) for number, state in whole["state"].items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave; state as soon as masks are found, which may be at the first step.

        Raises:
            DataError: the state is of another mask, or not of a masked optimizer.
        """
        super().load_state_dict({**state_dict, "state": {}})
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        state = state_dict["state"]
        self._loaded = {number: state[key] for number, key in enumerate(numbers) if key in state}
        if self._bound is not None:
            self._take_loaded()

    def _take_loaded(self) -> None:
        for number, state in self._loaded.items():
            item = self._bindings()[number]
            self.state[item.parameter] = restored(item, state)
        self._loaded = {}

    @abstractmethod
    def _apply(
        self, weights: torch.Tensor, gradient: Gradient, item: Bound, state: dict[str, Any], scale: float
    ) -> None:
        """Make what is missing of the state, and take one step on flat weights."""


class MaskedAdamW(MaskedOptimizer):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) on the coordinates of a mask.

    State takes 12 bytes a masked coordinate of bf16 weights, 8 of fp32 ones, and 3/16 of a byte for each coordinate.

    Args:
        params: see :class:`MaskedOptimizer`, also for ``options``.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: decoupled.
        options: mask, max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, **options)

    def _apply(
        self, weights: torch.Tensor, gradient: Gradient, item: Bound, state: dict[str, Any], scale: float
    ) -> None:
        if "exp_avg" not in state:
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=weights.device)
        group = item.group
        beta1, beta2 = group["betas"]
        now = Adam(float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], int(state["step"]), scale)
        moments = state["exp_avg"], state["exp_avg_sq"]
        self._backend.adamw(weights, gradient, item.bits, *moments, state.get("master"), now)


class MaskedSGD(MaskedOptimizer):
    """SGD on the coordinates of a mask, with momentum or without.

    Args:
        params: see :class:`MaskedOptimizer`, also for ``options``.
        lr: learning rate.
        momentum: decay of the velocity; 0 keeps none.
        weight_decay: times the weights, added to the gradient.
        nesterov: Nesterov's momentum.
        options: mask, max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, defaults, **options)

    def _apply(
        self, weights: torch.Tensor, gradient: Gradient, item: Bound, state: dict[str, Any], scale: float
    ) -> None:
        group = item.group
        if group["momentum"] and "velocity" not in state:
            state["velocity"] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=weights.device)
        now = Sgd(
            float(group["lr"]), group["momentum"], group["weight_decay"], group["nesterov"], int(state["step"]), scale
        )
        self._backend.sgd(weights, gradient, item.bits, state.get("velocity"), state.get("master"), now)


def _named(groups: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    named: dict[str, torch.Tensor] = {}
    for group in groups:
        names = group.get("param_names")
        if names is None:
            raise UsageError(
                "the optimizer's parameters have no names, so their masks cannot be found",
                hint="give it model.named_parameters(), or call optimizer.bind(model)",
            )
        named.update(zip(names, group["params"], strict=True))
    return named
