"""How gradients are stored between the backward pass and the step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from maskreg.errors import UsageError
from maskreg.train.optim.fastest import backend_of
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.step import Backend, Gradient

GradientMode = Literal["dense", "packed", "in-backward"]


class GradientStore:
    """The gradients of a masked optimizer, stored in one of three modes.

    ``dense``
        They stay in ``parameter.grad``, and nothing happens before the step.
    ``packed``
        As soon as autograd has finished a parameter's gradient, its masked entries are added to fp32 ``[nnz]``, and
        ``parameter.grad`` is freed. Accumulation over micro-batches is fp32, whatever the dtype of the gradients.
    ``in-backward``
        The parameter is updated right then and the gradient freed, so that no gradient outlives the backward pass.

    The last two act in ``register_post_accumulate_grad_hook``, which autograd calls once for each parameter and
    backward pass. Two layers, from the last to the first::

        loss.backward()
          grad of layer 2, [numel]   packed: packed[2] += grad[mask]    in-backward: update layer 2    grad = None
          grad of layer 1, [numel]   packed: packed[1] += grad[mask]    in-backward: update layer 1    grad = None
        optimizer.step()             packed: update both                in-backward: allow the next backward pass

    The dense gradients of both layers never exist at once. The price of ``in-backward`` is that nothing may depend on
    all gradients together: neither clipping nor accumulation.
    """

    def __init__(self, mode: GradientMode, backend: Backend | None) -> None:
        """Store nothing yet.

        Args:
            mode: see :class:`GradientStore`.
            backend: packs and sums; the fastest for each tensor by default.
        """
        self.mode = mode
        self._backend = backend
        self._handles: list[Any] = []
        self._packed: dict[MaskedParameter, torch.Tensor] = {}
        self._updated: set[MaskedParameter] = set()

    def watch(
        self, parameters: Iterable[MaskedParameter], arrived: weakref.WeakMethod[Callable[[MaskedParameter], None]]
    ) -> None:
        """Have a method called for each gradient from now on; what was stored is dropped.

        Args:
            parameters: replace those that were watched before.
            arrived: called with the parameter; held weakly, so that a model does not keep its optimizer alive.
        """
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._packed.clear()
        self._updated.clear()
        if self.mode == "dense":
            return

        def call(item: MaskedParameter) -> None:
            method = arrived()
            if method is not None:
                method(item)

        for item in parameters:
            if item.parameter.requires_grad:
                register: Callable[..., Any] = item.parameter.register_post_accumulate_grad_hook
                self._handles.append(register(lambda _, item=item: call(item)))

    def pack(self, item: MaskedParameter) -> bool:
        """Add the dense gradient of a parameter to its packed one, and free it.

        Returns:
            Whether the parameter has a packed gradient now.
        """
        dense = item.dense_gradient
        if dense is not None:
            if item not in self._packed:
                self._packed[item] = torch.zeros(item.bits.nnz, dtype=torch.float32, device=dense.device)
            backend_of(dense, preferred=self._backend).accumulate(self._packed[item], dense, item.bits)
            item.parameter.grad = None
        return item in self._packed

    def of(self, item: MaskedParameter) -> Gradient | None:
        """The gradient of a parameter, where its weights are; None without one."""
        if self.mode == "packed":
            # A gradient that was assigned by hand, or before there was a hook, is not packed yet.
            return Gradient(self._packed[item].to(item.weights.device), packed=True) if self.pack(item) else None
        dense = item.dense_gradient
        return None if dense is None else Gradient(dense, packed=False)

    def square_sum(self, item: MaskedParameter, *, masked: bool) -> torch.Tensor | None:
        """Sum of squares of a parameter's gradient, of its masked entries or of all; float64, 0-D."""
        gradient = self.of(item)
        if gradient is None:
            return None
        bits = item.bits if masked and not gradient.packed else None
        return backend_of(gradient.values, preferred=self._backend).square_sum(gradient.values, bits)

    def refuse_second(self, item: MaskedParameter) -> None:
        """Reject a second gradient of a parameter that was updated in the backward pass.

        Raises:
            UsageError: there was no step in between.
        """
        if item in self._updated:
            raise UsageError(
                f"a second gradient of {item.name} before step(): updates in the backward pass cannot accumulate",
                hint='gradients="packed" accumulates',
            )

    def mark_updated(self, item: MaskedParameter) -> None:
        """Note that a parameter was updated in the backward pass, and free its gradient."""
        self._updated.add(item)
        item.parameter.grad = None

    def is_updated(self, item: MaskedParameter) -> bool:
        """Whether a parameter was updated in the backward pass."""
        return item in self._updated

    def release(self, item: MaskedParameter) -> None:
        """Drop what is stored for a parameter after a step; loops may clear ``parameter.grad`` alone."""
        self._updated.discard(item)
        self._packed.pop(item, None)

    def clear(self) -> None:
        """Drop all packed gradients."""
        self._packed.clear()
