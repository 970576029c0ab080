"""How gradients are stored between the backward pass and the step."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_map_only

from maskreg.errors import UsageError
from maskreg.live.shards import local_of
from maskreg.train.optim.backends import backend_of
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.parameter import MaskedParameter, in_batches
from maskreg.train.optim.step import Backend, Gradient

# What ``parameter.grad`` is where dense gradients are not kept.
#
# Between the backward pass and the step, everything that loops do with gradients goes through ``parameter.grad``: they
# accumulate, clip, scale, log and discard them, each with its own code. So the packed gradient is there too, as a
# tensor of the parameter's shape that stores its masked entries alone and counts all others as 0::
#
#     p.grad                                  PackedGradient [numel], of which fp32 [nnz] is stored
#     loss.backward()                         p.grad += gradient: the masked entries are added in fp32
#     clip_grad_norm_(parameters, 1.0)        the norm of the entries; p.grad *= coefficient, NaN included
#     model.zero_grad(), p.grad = None        gone
#     dist.all_reduce(p.grad)                 the entries are reduced: replicas have the same mask
#     p.grad + 1, p.grad.isnan()              computed with a dense copy, which lives as long as the expression
#     p.grad.add_(1)                          refused: frozen entries are not stored, so they cannot become 1
#
# For sharded parameters the local tensor of the gradient's DTensor is one of these, and DTensor adds up norms over
# processes as it does for dense gradients.

_aten = torch.ops.aten


class PackedGradient(torch.Tensor):
    """The masked entries of a gradient; all others count as 0.

    To PyTorch a tensor without memory of the shape, dtype and device that a parameter's gradient must have.

    Attributes:
        entries: fp32 ``[nnz]``.
        bits: the mask of the local part.
    """

    # Everything is left to __torch_dispatch__, which sees every operation, autograd's in C++ included.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, like: torch.Tensor, *_: object, shape: torch.Size | None = None, dtype: torch.dtype | None = None
    ) -> Any:
        """See :meth:`__init__`."""
        strides: dict[str, Any] = {} if shape is not None else {"strides": like.stride()}
        return torch.Tensor._make_wrapper_subclass(
            cls, like.shape if shape is None else shape, dtype=dtype or like.dtype, device=like.device, **strides
        )

    def __init__(
        self,
        like: torch.Tensor,
        entries: torch.Tensor,
        bits: Bits,
        backend: Backend | None,
        *,
        shape: torch.Size | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Take packed entries; ``like`` is the local part of the parameter, and has the dtype if none is given."""
        self.entries = entries
        self.bits = bits
        self._backend = backend

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"PackedGradient({list(self.shape)}, {self.entries.numel():,} masked entries)"

    def accumulate(self, gradient: torch.Tensor, factor: float = 1.0) -> None:
        """Add the masked entries of a dense or packed gradient, times a factor."""
        if isinstance(gradient, PackedGradient):
            self.entries.add_(gradient.entries, alpha=factor)
        else:
            flat = gradient.reshape(-1).to(self.entries.device)
            flat = flat if factor == 1 else flat * factor
            backend_of(flat, preferred=self._backend).accumulate(self.entries, flat, self.bits)

    def square_sum(self) -> torch.Tensor:
        """Sum of squares, float64, 0-D."""
        return backend_of(self.entries, preferred=self._backend).square_sum(self.entries, None)

    def unpacked(self) -> torch.Tensor:
        """A dense copy, rounded to the parameter's dtype."""
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.entries.device)
        flat = dense.view(-1)
        for part, offsets in self.bits.masked_slices():
            flat[part.coordinates].scatter_(0, offsets, self.entries[part.entries].to(dense.dtype))
        return dense

    def of(self, entries: torch.Tensor, shape: torch.Size | None = None) -> PackedGradient:
        """Other entries of the same parameter and mask, or the same ones in another shape."""
        return PackedGradient(self, entries, self.bits, self._backend, shape=shape)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute on packed values where that is the same, and with a dense copy elsewhere."""
        options = dict(kwargs or {})
        known = _ON_PACKED.get(operation)
        result = NotImplemented if known is None else known(operation, *args, **options)
        if result is not NotImplemented:
            return result
        if any(returned.alias_info is not None for returned in operation._schema.returns):
            _refuse_views(operation, args)
        if any(isinstance(tensor, cls) for tensor in _written(operation, args)):
            raise UsageError(
                f"{operation} cannot change a packed gradient, of which only masked entries are stored",
                hint='scale, clip or clear it; or gradients="dense"',
            )
        args, options = tree_map_only(cls, lambda packed: packed.unpacked(), (args, options))
        return operation(*args, **options)


def _refuse_views(operation: Any, args: tuple[Any, ...]) -> None:
    """Reject a view of a part: it could only be a copy, and what is written to it would be lost."""
    if args and isinstance(args[0], PackedGradient) and not operation._schema.is_mutable:
        raise UsageError(
            f"{operation} would be a view of a packed gradient, of which only masked entries are stored",
            hint="view a dense copy of it: (parameter.grad + 0)",
        )


def _written(operation: Any, args: tuple[Any, ...]) -> list[Any]:
    """The arguments that an operation writes to, those in lists one by one."""
    declared = zip(operation._schema.arguments, args, strict=False)
    written = [arg for argument, arg in declared if argument.alias_info is not None and argument.alias_info.is_write]
    if operation.namespace == "c10d":
        # Their schemas do not tell: what is reduced or received comes first.
        written = [args[0]]
    return [*written, *(value for arg in written if isinstance(arg, (list, tuple)) for value in arg)]


def _view(_: Any, own: PackedGradient, shape: list[int]) -> PackedGradient:
    """All of it in another shape, as reshape, flatten and DTensor.to_local need: the order of entries is the same."""
    return own.of(own.entries, torch.empty(own.shape, device="meta").view(shape).shape)


def _zero(_: Any, own: PackedGradient) -> PackedGradient:
    own.entries.zero_()
    return own


def _zero_each(_: Any, each: list[PackedGradient]) -> None:
    for own in each:
        own.zero_()


def _add(_: Any, own: Any, other: Any, alpha: float = 1) -> Any:
    if not isinstance(own, PackedGradient) or not isinstance(other, torch.Tensor) or other.shape != own.shape:
        return NotImplemented
    own.accumulate(other, alpha)
    return own


def _copy(_: Any, own: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(own, PackedGradient) or source.shape != own.shape:
        return NotImplemented
    # The source can share these entries, which are cleared first.
    kept = source.entries.clone() if isinstance(source, PackedGradient) else source
    own.entries.zero_()
    own.accumulate(own.of(kept) if kept is not source else source)
    return own


def _scale(operation: Any, own: Any, factor: Any) -> Any:
    """Multiply or divide by a number. What is not stored is 0 and stays so, even where the number is NaN."""
    if not isinstance(own, PackedGradient) or (isinstance(factor, torch.Tensor) and factor.dim()):
        return NotImplemented
    operation(own.entries, factor.to(own.entries.device) if isinstance(factor, torch.Tensor) else factor)
    return own


def _scale_each(operation: Any, each: list[Any], factor: Any) -> Any:
    if isinstance(factor, (list, tuple)) or (isinstance(factor, torch.Tensor) and factor.dim()):
        return NotImplemented
    for own in each:
        own.mul_(factor) if "mul" in str(operation) else own.div_(factor)
    return None


def _clamp(operation: Any, own: Any, low: Any = None, high: Any = None) -> Any:
    bounds = [0.0 if bound is None else bound for bound in (low, high)]
    if any(isinstance(bound, torch.Tensor) for bound in bounds) or not bounds[0] <= 0 <= bounds[1]:
        return NotImplemented  # what is not stored would not stay 0
    operation(own.entries, low, high)
    return own


def _norm(_: Any, own: PackedGradient, order: float = 2, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
    if dim or keepdim or not order > 0:
        return NotImplemented
    dtype = options.get("dtype") or torch.float32
    if order == 2:
        return own.square_sum().sqrt().to(dtype)
    # PyTorch has no largest of no numbers.
    values = own.entries if own.entries.numel() else own.entries.new_zeros(1)
    return torch.linalg.vector_norm(values, order, dtype=dtype)


def _norm_each(_: Any, each: list[Any], order: float = 2, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    return [torch.linalg.vector_norm(own, order, dtype=dtype) for own in each]


def _on_entries(operation: Any, each: list[Any], *options: Any) -> Any:
    """Change the entries: a hook of tensor parallelism that comes after ours reduces them, GradScaler divides them."""
    return operation([own.entries if isinstance(own, PackedGradient) else own for own in each], *options)


_ON_PACKED: Mapping[Any, Callable[..., Any]] = {
    _aten.detach.default: lambda _, own: own.of(own.entries),
    _aten.alias.default: lambda _, own: own.of(own.entries),
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
    _aten.detach_.default: lambda _, own: own,
    _aten.clone.default: lambda _, own, **options: own.of(own.entries.clone()),
    _aten.zero_.default: _zero,
    _aten._foreach_zero_.default: _zero_each,
    _aten.add_.Tensor: _add,
    _aten.copy_.default: _copy,
    _aten.mul_.Tensor: _scale,
    _aten.mul_.Scalar: _scale,
    _aten.div_.Tensor: _scale,
    _aten.div_.Scalar: _scale,
    _aten._foreach_mul_.Tensor: _scale_each,
    _aten._foreach_mul_.Scalar: _scale_each,
    _aten._foreach_div_.Tensor: _scale_each,
    _aten._foreach_div_.Scalar: _scale_each,
    _aten.clamp_.default: _clamp,
    _aten.linalg_vector_norm.default: _norm,
    _aten._foreach_norm.Scalar: _norm_each,
    _aten._amp_foreach_non_finite_check_and_unscale_.default: _on_entries,
    torch.ops.c10d.allreduce_.default: _on_entries,
}
"""What is done on packed values, or NotImplemented where that would not be the same."""


GradientMode = Literal["dense", "packed"]


class GradientStore:
    """The gradients of a masked optimizer, which stand in ``parameter.grad`` either way.

    ``dense``
        Nothing happens before the step.
    ``packed``
        As soon as autograd has finished a parameter's gradient, ``parameter.grad`` becomes its masked entries, fp32
        ``[nnz]``, and the dense one is freed. Accumulation over micro-batches is fp32 for gradients of any dtype.

    Packing is done in ``register_post_accumulate_grad_hook``, which autograd calls once for each parameter and backward
    pass. So the dense gradients of two layers never exist at once.
    """

    def __init__(self, mode: GradientMode, backend: Backend | None) -> None:
        """Watch nothing yet."""
        self.mode = mode
        self._backend = backend
        self._handles: list[Any] = []

    def watch(
        self, parameters: Iterable[MaskedParameter], arrived: weakref.WeakMethod[Callable[[MaskedParameter], None]]
    ) -> None:
        """Have a method called for each gradient from now on; those that are stored stay."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self.mode == "dense":
            return

        # The method is weak: a hook must not keep the optimizer in memory as long as the parameter.
        def call(item: MaskedParameter) -> None:
            method = arrived()
            if method is not None:
                method(item)

        for item in parameters:
            if item.parameter.requires_grad:
                register: Callable[..., Any] = item.parameter.register_post_accumulate_grad_hook
                self._handles.append(register(lambda _, item=item: call(item)))

    def pack(self, item: MaskedParameter) -> PackedGradient | None:
        """The packed gradient of a parameter; one that is dense, as autograd leaves it, is packed and freed."""
        packed = _stored(item)
        if isinstance(packed, PackedGradient):
            # Another object can have the same bits: after binding anew, or on another device.
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
        packed = PackedGradient(item.weights, values, item.bits, self._backend, dtype=dense.dtype)
        packed.accumulate(dense)
        _store(item, packed)
        return packed

    def of(self, item: MaskedParameter) -> Gradient | None:
        """The gradient of a parameter, where its weights are; None without one."""
        if self.mode == "packed":
            # A gradient that was assigned by hand, or before there was a hook, is not packed yet.
            packed = self.pack(item)
            return None if packed is None else Gradient(packed.entries.to(item.weights.device), packed=True)
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

    def release(self, item: MaskedParameter) -> None:
        """Drop what is stored for a parameter after a step, if it is not dense."""
        if isinstance(_stored(item), PackedGradient):
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
