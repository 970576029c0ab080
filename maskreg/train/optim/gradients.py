"""How gradients are stored between the backward pass and the step."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch

from maskreg.errors import UsageError
from maskreg.live.shards import local_of
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.fastest import backend_of
from maskreg.train.optim.packed import PackedGradient, UsedGradient
from maskreg.train.optim.parameter import MaskedParameter, in_batches
from maskreg.train.optim.step import Backend, Gradient

GradientMode = Literal["dense", "packed", "in-backward"]


class GradientStore:
    """The gradients of a masked optimizer, stored in one of three modes. All of them stand in ``parameter.grad``.

    ``dense``
        Nothing happens before the step.
    ``packed``
        As soon as autograd has finished a parameter's gradient, ``parameter.grad`` becomes its masked entries, fp32
        ``[nnz]``, and the dense one is freed. Accumulation over micro-batches is fp32, whatever the dtype of gradients.
    ``in-backward``
        The parameter is updated right then and the gradient freed, so that no gradient outlives the backward pass.

    The last two act in ``register_post_accumulate_grad_hook``, which autograd calls once for each parameter and
    backward pass. Two layers, from the last to the first::

        loss.backward()
          grad of layer 2, [numel]   packed: grad = grad[mask]    in-backward: update layer 2, grad = a used one
          grad of layer 1, [numel]   packed: grad = grad[mask]    in-backward: update layer 1, grad = a used one
        optimizer.step()             packed: update both          in-backward: allow the next backward pass

    The dense gradients of both layers never exist at once. The price of ``in-backward`` is that nothing may depend on
    all gradients together: neither clipping nor accumulation. See :mod:`maskreg.train.optim.packed` for what loops can
    do with these gradients.
    """

    def __init__(self, mode: GradientMode, backend: Backend | None) -> None:
        """Watch nothing yet.

        Args:
            mode: see :class:`GradientStore`.
            backend: packs and sums; the fastest for each tensor by default.
        """
        self.mode = mode
        self._backend = backend
        self._handles: list[Any] = []

    def watch(
        self, parameters: Iterable[MaskedParameter], arrived: weakref.WeakMethod[Callable[[MaskedParameter], None]]
    ) -> None:
        """Have a method called for each gradient from now on; those that are stored stay.

        Args:
            parameters: replace those that were watched before.
            arrived: called with the parameter; held weakly, so that a model does not keep its optimizer alive.
        """
        for handle in self._handles:
            handle.remove()
        self._handles = []
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

    def pack(self, item: MaskedParameter) -> PackedGradient | None:
        """The packed gradient of a parameter; one that is dense, as autograd leaves it, is packed and freed.

        Raises:
            UsageError: it was packed by another mask.
        """
        packed = _stored(item)
        if isinstance(packed, PackedGradient):
            if packed.bits is not item.bits and not torch.equal(packed.bits.words.cpu(), item.bits.words.cpu()):
                raise UsageError(
                    f"the gradient of {item.name} was packed by another mask",
                    hint="optimizer.zero_grad() before bind(model, mask)",
                )
            return packed
        dense = item.dense_gradient
        if dense is None:
            return None
        values = torch.zeros(item.bits.nnz, dtype=torch.float32, device=dense.device)
        packed = PackedGradient(item.weights, values, item.bits, self._backend)
        packed.accumulate(dense)
        _store(item, packed)
        return packed

    def of(self, item: MaskedParameter) -> Gradient | None:
        """The gradient of a parameter, where its weights are; None without one."""
        if self.mode == "packed":
            # A gradient that was assigned by hand, or before there was a hook, is not packed yet.
            packed = self.pack(item)
            return None if packed is None else Gradient(packed.entries.to(item.weights.device), packed=True)
        if self.is_updated(item):
            return None
        dense = item.dense_gradient
        return None if dense is None else Gradient(dense, packed=False)

    def square_sums(self, items: Iterable[MaskedParameter], *, masked: bool) -> Iterator[torch.Tensor | None]:
        """Sums of squares of gradients, of their masked entries or of all; float64, 0-D; None without a gradient."""
        for batch in in_batches(items):
            sums: list[torch.Tensor | None] = [None] * len(batch)
            together: defaultdict[Backend, list[tuple[int, torch.Tensor, Bits | None]]] = defaultdict(list)
            for number, item in enumerate(batch):
                gradient = self.of(item)
                if gradient is not None:
                    bits = item.bits if masked and not gradient.packed else None
                    backend = backend_of(gradient.values, preferred=self._backend)
                    together[backend].append((number, gradient.values, bits))
            for backend, each in together.items():
                squares = backend.square_sums([(values, bits) for _, values, bits in each])
                for (number, *_), square in zip(each, squares, strict=True):
                    sums[number] = square
            yield from sums

    def mark_updated(self, item: MaskedParameter) -> None:
        """Note that a parameter was updated in the backward pass, and free its gradient."""
        _store(item, UsedGradient(item.weights, item.name))

    def is_updated(self, item: MaskedParameter) -> bool:
        """Whether a parameter was updated in the backward pass."""
        return isinstance(_stored(item), UsedGradient)

    def release(self, item: MaskedParameter) -> None:
        """Drop what is stored for a parameter after a step, if it is not dense."""
        if isinstance(_stored(item), (PackedGradient, UsedGradient)):
            item.parameter.grad = None


def _stored(item: MaskedParameter) -> torch.Tensor | None:
    """The local part of a parameter's gradient."""
    grad = item.parameter.grad
    return None if grad is None else local_of(grad)


def _store(item: MaskedParameter, local: torch.Tensor) -> None:
    """Make a tensor the local part of a parameter's gradient."""
    parameter = item.parameter
    if not hasattr(parameter, "to_local"):
        parameter.grad = local
        return
    from torch.distributed.tensor import DTensor

    # DTensor.from_local would make a view of it, which a gradient without memory does not have.
    sharded: Any = DTensor
    parameter.grad = sharded(local, parameter._spec, requires_grad=False)  # type: ignore[attr-defined]
