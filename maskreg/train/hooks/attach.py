"""Masked training in any loop: one call after the model and its optimizer are made."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
import torch

from maskreg.digest import fingerprint, leaf_hashes
from maskreg.errors import CorruptError, UsageError
from maskreg.live.memory import CODES
from maskreg.live.shards import local_of
from maskreg.train.masks import MaskLike, mask_of
from maskreg.train.optim.binding import bind_parameters
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.masked import MaskedOptimizer
from maskreg.train.optim.parameter import refuse_sparse


class Frozen(ABC):
    """The frozen coordinates of the local part of one parameter."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.shape = tuple(parameter.shape)

    @abstractmethod
    def check(self) -> None:
        """Compare with the parameter as it is now."""


class Fingerprinted(Frozen):
    """A fingerprint of frozen coordinates: 16 bytes, which can be checked but not restored."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Fingerprint what lies outside the mask, a slice at a time."""
        super().__init__(name, parameter)
        self._bits = bits
        self._before = self._fingerprint()

    def check(self) -> None:
        """See :class:`Frozen`."""
        if self._fingerprint() != self._before:
            raise _changed(self.name, "some coordinates")

    def _fingerprint(self) -> str:
        flat = _codes_of(self.parameter)
        leaves = [
            leaf_hashes(flat[part.coordinates].index_select(0, offsets).cpu().numpy())
            for part, offsets in self._bits.complement().masked_slices()
        ]
        return fingerprint(np.concatenate(leaves)) if leaves else ""


class Copied(Frozen):
    """A packed copy of frozen coordinates, which can be restored after a step."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Copy what lies outside the mask."""
        super().__init__(name, parameter)
        self._frozen = bits.complement()
        flat = _codes_of(parameter)
        self._values = torch.empty(self._frozen.nnz, dtype=flat.dtype, device=flat.device)
        self._attached = Fingerprinted(name, parameter, bits)
        self.copy()

    def copy(self) -> None:
        """Copy the coordinates as they are now, so that restoring undoes the next step and nothing before it.

        Weights might have been loaded or averaged since the last step: they stay, and only :meth:`check` reports them.
        """
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            torch.index_select(flat[part.coordinates], 0, offsets, out=self._values[part.entries])

    def restore(self) -> None:
        """Write the copy back."""
        weights = local_of(self.parameter.detach())
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            flat[part.coordinates].index_copy_(0, offsets, self._values[part.entries])
        if not weights.is_contiguous():
            weights.copy_(flat.view(weights.dtype).reshape(weights.shape))

    def mask_gradient(self) -> None:
        """Set the gradient of frozen coordinates to 0, NaNs included."""
        grad = self.parameter.grad
        if grad is None:
            return
        refuse_sparse(self.name, grad)
        local = local_of(grad)
        flat = local.contiguous().reshape(-1)
        for part, offsets in self._frozen.masked_slices():
            flat[part.coordinates].index_fill_(0, offsets, 0)
        if not local.is_contiguous():
            local.copy_(flat.reshape(local.shape))

    def check(self) -> None:
        """See :class:`Frozen`; names the first coordinate."""
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            differ = flat[part.coordinates].index_select(0, offsets) != self._values[part.entries]
            if differ.any():
                coordinate = part.coordinates.start + int(offsets[differ][0])
                index = np.unravel_index(coordinate, tuple(local_of(self.parameter).shape))
                raise _changed(self.name, f"coordinate {[int(i) for i in index]}")
        self._attached.check()


def _codes_of(parameter: torch.Tensor) -> torch.Tensor:
    """The bits of the local part of a parameter, as integers, flat; sharing memory if it is contiguous."""
    weights = local_of(parameter.detach())
    return weights.contiguous().reshape(-1).view(CODES[weights.element_size()])


def _changed(name: str, subject: str) -> CorruptError:
    return CorruptError(
        name,
        f"{subject} outside the mask changed since it was attached",
        hint="see what else writes to the weights: another optimizer, a weight average, a loaded checkpoint;"
        " after loading weights on purpose, detach the mask and attach it again",
    )


class LostUpdateWarning(UserWarning):
    """Parameters are too narrow for their updates: most steps round to no change."""


class Attachment:
    """A mask attached to a model and its optimizer."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        frozen: Sequence[Frozen],
        handles: list[Any],
    ) -> None:
        """Made by :func:`attach`."""
        self._model = model
        self._optimizer = optimizer
        self._frozen = frozen
        self._handles = [*handles, optimizer.register_step_pre_hook(lambda *_: self._check_parameters())]

    def check(self) -> None:
        """Verify that every coordinate outside the mask has the bits it had when the mask was attached.

        Reads the weights once, a slice at a time.

        Raises:
            CorruptError: a coordinate has changed; names the parameter.
            UsageError: the model or the optimizer has other parameters now.
        """
        self._check_parameters()
        for frozen in self._frozen:
            frozen.check()

    def detach(self) -> None:
        """Remove all hooks: nothing is checked any more, and an optimizer without masks trains all coordinates."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _check_parameters(self) -> None:
        current = dict(self._model.named_parameters(remove_duplicate=False))
        for frozen in self._frozen:
            now = current.get(frozen.name)
            sharded = hasattr(now, "to_local") or hasattr(frozen.parameter, "to_local")
            if now is None or tuple(now.shape) != frozen.shape or (now is not frozen.parameter and not sharded):
                change = "is gone" if now is None else f"was replaced, {list(now.shape)}"
                raise UsageError(
                    f"{frozen.name}, {list(frozen.shape)} when the mask was attached, {change}",
                    hint="resize embeddings before the optimizer is made and the mask attached",
                )
        known = {id(frozen.parameter) for frozen in self._frozen}
        if any(id(p) not in known for group in self._optimizer.param_groups for p in group["params"]):
            raise UsageError(
                "the optimizer trains parameters that it did not have when the mask was attached",
                hint="attach the mask after the last add_param_group",
            )


def attach(model: torch.nn.Module, optimizer: torch.optim.Optimizer, mask: MaskLike | None = None) -> Attachment:
    """Train only the coordinates of a mask from now on, in any loop.

    A masked optimizer finds its masks now. With any other, gradients of frozen coordinates become 0 as soon as they are
    ready, so that clipping sees masked gradients, and after each step frozen coordinates get back the bits that they
    had before it, against any weight decay, momentum or loaded state; likewise after ``train()`` and
    ``eval()`` of an optimizer that swaps weights there. That takes a packed copy of them; memory for optimizer state
    does not shrink. Weights that are loaded between steps stay as loaded, in the mask and outside.

    Args:
        model: as it is trained, wrapped or not.
        optimizer: over parameters of the model, all of which the mask covers.
        mask: by name (``"name:tag"``), as an artifact, or by the names in the checkpoint; a masked optimizer can have
            its own.
    """
    masks = None if mask is None else mask_of(mask)
    while not isinstance(optimizer, MaskedOptimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer  # Accelerate's is a wrapper
    if isinstance(optimizer, MaskedOptimizer):
        bound = optimizer.bind(model, masks)
        return Attachment(model, optimizer, [Fingerprinted(b.name, b.parameter, b.bits) for b in bound], [])
    if masks is None:
        raise UsageError(
            f"{type(optimizer).__name__} has no mask, and none was given",
            hint="attach(model, optimizer, mask), MaskCallback(mask); or make it a MaskedAdamW, in a Trainer by"
            " optimizer_cls_and_kwargs=masked_adamw(args, mask)",
        )
    copies = [Copied(b.name, b.parameter, b.bits) for b in bind_parameters(optimizer.param_groups, model, masks)]
    _warn_if_narrow(copies)
    handles: list[Any] = []
    for frozen in copies:
        register: Any = frozen.parameter.register_post_accumulate_grad_hook
        handles.append(register(lambda _, frozen=frozen: frozen.mask_gradient()))
    handles.append(optimizer.register_step_pre_hook(partial(_each, copies, Copied.mask_gradient)))
    handles.append(optimizer.register_step_pre_hook(partial(_each, copies, Copied.copy)))
    handles.append(optimizer.register_step_post_hook(partial(_each, copies, Copied.restore)))
    handles.extend(_Held(optimizer, mode, copies) for mode in ("train", "eval") if hasattr(optimizer, mode))
    return Attachment(model, optimizer, copies, handles)


class _Held:
    """A method by which an optimizer swaps weights (schedule-free ones do), held to the mask until removed."""

    def __init__(self, optimizer: torch.optim.Optimizer, mode: str, copies: list[Copied]) -> None:
        self._optimizer, self._mode = optimizer, mode
        swap = getattr(optimizer, mode)

        @wraps(swap)
        def held(*args: Any, **options: Any) -> Any:
            _each(copies, Copied.copy)
            try:
                return swap(*args, **options)
            finally:
                _each(copies, Copied.restore)

        setattr(optimizer, mode, held)

    def remove(self) -> None:
        delattr(self._optimizer, self._mode)


@torch.no_grad()
def _each(copies: list[Copied], action: Callable[[Copied], None], *_: object) -> None:
    for frozen in copies:
        action(frozen)


def _warn_if_narrow(copies: list[Copied]) -> None:
    narrow = [frozen for frozen in copies if frozen.parameter.element_size() < 4]
    if narrow:
        dtype = str(narrow[0].parameter.dtype).removeprefix("torch.")
        warnings.warn(
            f"{len(narrow)} of {len(copies)} parameters are {dtype} without fp32 masters: steps smaller than half the "
            "distance between two values are rounded away, which most are at learning rates like 1e-6. "
            "maskreg.train.MaskedAdamW keeps masters of the masked coordinates",
            LostUpdateWarning,
            stacklevel=3,
        )
