"""Optimizers on the coordinates of a mask: state for those alone, and the bits of all others left as they are."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Literal, get_args

import torch

from maskreg.errors import DataError, UsageError
from maskreg.live.shards import Layout
from maskreg.mask.packed import Mask
from maskreg.train.optim.binding import await_forward, bound_to, in_order, own_names
from maskreg.train.optim.bound import Bound
from maskreg.train.optim.fastest import backend_of
from maskreg.train.optim.norm import norm
from maskreg.train.optim.numbers import check_numbers
from maskreg.train.optim.refusals import refuse_fewer, refuse_replicas
from maskreg.train.optim.state import begun, restored, saved
from maskreg.train.optim.step import Backend, Gradient, Operands

Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]
Clip = Literal["masked", "dense"]
Gradients = Literal["dense", "packed", "in-backward"]

_COPIED = ("_max_grad_norm", "_clip", "_gradients", "_backend", "_given")


class MaskedOptimizer(torch.optim.Optimizer):
    """What AdamW and SGD on a mask have in common.

    Coordinates outside the mask keep the bits they have: they take part in no operation, so neither weight decay nor
    clipping, state loaded from elsewhere or rounding can move them. State is fp32 and packed to the masked coordinates;
    for weights narrower than fp32 it includes a master copy of the masked ones.

    A parameter finds its mask by name, at the first step or before: from the names given with the parameters, or from
    the model, by :meth:`bind` or by its first forward pass. Parameters may be sharded by ``fully_shard`` before or
    after; sharded ones are masked by the part that is in each process.

    Args:
        params: parameters, named parameters (``model.named_parameters()``) or groups.
        defaults: of the optimizer.
        mask: by the names in the checkpoint that it was made from.
        max_grad_norm: clip gradients to this norm; None does not clip. The norm is that of the whole model, on all
            processes together.
        clip: whether the norm is that of the masked entries, which are what is trained, or of dense gradients. What
            clips before the step, as Accelerate's and verl's loops do, clips by dense gradients.
        gradients: ``dense`` leaves them as autograd makes them; ``packed`` adds the masked entries into fp32 ``[nnz]``
            as soon as a parameter's gradient is there, and frees it; ``in-backward`` takes the step right then.
        backend: carries out steps; by default the fastest there is for each tensor.
        foreach: taken and ignored, as frameworks pass it; how steps are carried out is the backend's choice.
        fused: likewise.

    Attributes:
        grad_norm: fp32, 0-D, in main memory: what gradients were clipped by at the last step; None where none is taken.

    Raises:
        UsageError: options that exclude each other, or that there are none of.
    """

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        *,
        mask: Mask | None = None,
        max_grad_norm: float | None = None,
        clip: Clip = "masked",
        gradients: Gradients = "dense",
        backend: Backend | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        check_numbers({**defaults, "max_grad_norm": max_grad_norm})
        for name, word, known in (("clip", clip, get_args(Clip)), ("gradients", gradients, get_args(Gradients))):
            if word not in known:
                raise UsageError(f"{name} cannot be {word!r}", hint=f"{name}= one of: {', '.join(known)}")
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
        self._mask = None if mask is None else self._mask_of(mask)
        self._max_grad_norm = max_grad_norm
        self._clip = clip
        self._gradients = gradients
        self._backend = backend
        self._loaded: dict[int, dict[str, Any]] = {}
        self._given = len(in_order(self.param_groups))
        self._begin()

    def _begin(self) -> None:
        self._bound: list[Bound] | None = None
        self._hooks: list[Any] = []
        self.grad_norm: torch.Tensor | None = None
        self._waiting = await_forward(self)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle needs; what ties it to the parameters, it finds anew."""
        own = {name: getattr(self, name) for name in _COPIED}
        # An artifact's mask is read where it lies, which a copy may be far from.
        own |= {"_mask": None if self._mask is None else dict(self._mask), "_loaded": self._kept()}
        return {**super().__getstate__(), **own, "state": defaultdict(dict)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy; loading state comes here too, with less."""
        super().__setstate__(state)
        if "_loaded" in state:
            self._begin()

    # -- which coordinates

    def bind(self, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Mask | None = None) -> list[Bound]:
        """Find the mask of every parameter now, by the names that a model gives them.

        Parameters that were sharded since the optimizer was made are replaced, where it knows their names. State stays.

        Args:
            named: the model, or its parameters by name, which say less of tied and joined ones.
            mask: in place of the one given when the optimizer was made.

        Returns:
            Each parameter with its mask.

        Raises:
            UsageError: a parameter has no name or no mask, or is of a kind that masks are not for.
            WrongCheckpointError: the mask is of another model.
            DataError: there is state already, and it is of another mask.
        """
        mask = self._mask if mask is None else self._mask_of(mask)
        if mask is None:
            raise UsageError("there is no mask to train", hint="give the optimizer mask=..., or attach one")
        refuse_fewer(self._given, len(in_order(self.param_groups)))
        kept = self._kept()
        bound = bound_to(self.param_groups, named, mask)
        self._take(bound, kept)
        self._bound, self._mask = bound, mask
        if self._gradients == "dense":
            self._waiting.remove()  # the model has nothing more to tell
        self._watch()
        return bound

    def _mask_of(self, mask: Mask) -> Mask:
        """The mask that is meant; what derives from this may take other things for one."""
        return mask

    def awaits_model(self) -> bool:
        """Whether there is a mask to look for."""
        return self._mask is not None

    def met(self, model: torch.nn.Module) -> None:
        """Take note of a model that has the parameters and is about to run.

        Args:
            model: the outermost that has them.

        Raises:
            UsageError: see :meth:`bind`; and a model whose gradients must not be taken as soon as they are there.
        """
        if self._gradients != "dense":
            refuse_replicas(model, self._gradients)
        if self._bound is None:
            self.bind(model)

    def _bindings(self) -> list[Bound]:
        places = in_order(self.param_groups)
        if self._bound is None or [id(item.parameter) for item in self._bound] != [id(p) for _, p in places]:
            refuse_fewer(self._given, len(places))
            self.bind(own_names(self.param_groups))
        assert self._bound is not None
        for item, (group, _) in zip(self._bound, places, strict=True):
            item.group = group  # loading state makes new ones
        return self._bound

    # -- gradients

    def _watch(self) -> None:
        for handle in self._hooks:
            handle.remove()
        self._hooks = []
        reference = weakref.ref(self)

        def see(item: Bound) -> None:
            optimizer = reference()
            if optimizer is not None:
                optimizer._take_gradient(item)

        for item in self._bound or []:
            if self._gradients != "dense" and item.parameter.requires_grad:
                watch: Callable[..., Any] = item.parameter.register_post_accumulate_grad_hook
                self._hooks.append(watch(lambda _, item=item: see(item)))

    @torch.no_grad()
    def _take_gradient(self, item: Bound) -> None:
        if self._gradients == "packed":
            self._pack(item)
            return
        if item.stepped:
            raise UsageError(
                f"a second gradient of {item.name} before step(): steps within the backward pass cannot accumulate",
                hint='gradients="packed" accumulates',
            )
        self._update(item, 1.0)
        item.stepped = True
        item.parameter.grad = None

    def _pack(self, item: Bound) -> None:
        dense = item.dense
        if dense is None:
            return
        self._state(item)
        if item.packed is None:
            item.packed = torch.zeros(item.bits.nnz, dtype=torch.float32, device=dense.device)
        self._backend_of(dense).accumulate(item.packed, dense, item.bits)
        item.parameter.grad = None

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
        self.grad_norm = norm(self._measured(item) for item in bindings)
        return min(1.0, self._max_grad_norm / (float(self.grad_norm) + 1e-6))

    def _measured(self, item: Bound) -> tuple[Layout, torch.Tensor | None]:
        gradient = self._gradient(item)
        if gradient is None:
            return item.layout, None
        whole = gradient.packed or self._clip == "dense"
        values = gradient.values
        return item.layout, self._backend_of(values).square_sum(values, None if whole else item.bits)

    # -- steps

    def _backend_of(self, *tensors: torch.Tensor) -> Backend:
        return self._backend or backend_of(*tensors)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether GradScaler leaves gradients as they are, and says by which factor they are too large."""
        return self._gradients != "dense"

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
        # Set for every step that a GradScaler takes here; the factor is not, once it took gradients for unscaled.
        if hasattr(self, "found_inf"):
            raise UsageError(
                f'GradScaler needs dense gradients, to look for infinities in, and they are "{self._gradients}"',
                hint='gradients="dense", or train in bf16, which needs no GradScaler',
            )
        bindings = self._bindings()
        for item in bindings:
            item.follow()
        scale = self._scale(bindings)
        for item in bindings:
            if not item.stepped:
                self._update(item, scale)
            item.stepped = False
            item.packed = None  # loops may forget gradients by the model, which does not know of these
        return loss

    @property
    def state_bytes(self) -> int:
        """Bytes of state in this process: moments, master copies, and the masks' bits and ranks."""
        entries = sum(one.nbytes for state in self.state.values() for one in state.values() if torch.is_tensor(one))
        return entries + sum(item.bits.nbytes for item in self._bound or [])

    def _update(self, item: Bound, scale: float) -> None:
        gradient = self._gradient(item)
        if gradient is None:
            return
        weights = item.weights
        if weights.numel() != item.bits.numel:
            raise UsageError(
                f"{item.name} has another size than when its mask was found",
                hint="resize embeddings before the optimizer is made",
            )
        state = self._state(item)
        flat = weights.reshape(-1) if weights.is_contiguous() else weights.contiguous().reshape(-1)
        if weights.element_size() < 4 and "master" not in state:
            # Zeros would make positive ones of negative ones.
            state["master"] = torch.full((item.bits.nnz,), -0.0, dtype=torch.float32, device=weights.device)
            self._backend_of(flat).accumulate(state["master"], flat, item.bits)
        state["step"] += 1
        if item.bits.nnz:
            self._apply(Operands(flat, gradient, item.bits, state.get("master")), item.group, state, scale)
        if not weights.is_contiguous():
            weights.copy_(flat.reshape(weights.shape))

    # -- state

    def _state(self, item: Bound) -> dict[str, Any]:
        # As soon as there is a gradient, also where nothing masked is here: all processes save it together.
        state: dict[str, Any] = self.state[item.parameter]
        begun(item, state, self._vectors(item.group))
        return state

    def state_dict(self) -> dict[str, Any]:
        """State by parameters' numbers, the same whatever the number of processes, and the parameter groups.

        Vectors of sharded parameters are DTensors in the order of the whole mask. All processes call this together.
        """
        return {**super().state_dict(), "state": self._kept()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave, of any number of processes; all processes call this together.

        State is kept as it is until masks are found, which may be at the first step.

        Raises:
            DataError: the state is of another mask, of another optimizer, or not of a masked one.
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
            self._take(self._bindings(), loaded)

    def _kept(self) -> dict[int, dict[str, Any]]:
        if self._bound is None:
            return {number: dict(state) for number, state in self._loaded.items()}
        every = {number: (item, self.state.get(item.parameter)) for number, item in enumerate(self._bound)}
        return {number: saved(item, state) for number, (item, state) in every.items() if state}

    def _take(self, bound: list[Bound], kept: dict[int, dict[str, Any]]) -> None:
        taken = {bound[number].parameter: restored(bound[number], state) for number, state in kept.items()}
        self.state.clear()
        self.state.update(taken)
        self._loaded = {}

    @abstractmethod
    def _vectors(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the packed vectors in the state of a group's parameters, beside the master copy."""

    @abstractmethod
    def _apply(self, on: Operands, group: dict[str, Any], state: dict[str, Any], scale: float) -> None:
        """Take one step as the parameter group says, gradients multiplied by ``scale``."""
