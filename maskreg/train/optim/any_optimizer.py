"""Any optimizer that works coordinate by coordinate, on the coordinates of a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from maskreg.errors import DataError, UsageError
from maskreg.train.optim.masked import MaskedOptimizer, Params, flat_of
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.state import MASK, OF_BLOCKS, PARTS, begin_master, part_of

_OWN = (MASK, PARTS, "master")
_ATTACH = "maskreg.train.attach(model, optimizer, mask), which keeps the frozen coordinates of any optimizer"


class PackedOptimizer(MaskedOptimizer):
    """An optimizer of any class on vectors of the masked coordinates, so that its state has no others.

    Each parameter's masked coordinates are one fp32 vector, the master; the optimizer steps it as if it were the
    parameter, and what it rounds to is written to the weights. So it has to treat every coordinate alike, by its own
    gradients: Lion, RMSprop, Adagrad and NAdam do. Whether one does is tried on a few numbers first.

    An optimizer with a ``block_size``, as torchao's of 8 and 4 bits, quantizes its state in blocks of so many entries.
    Zeros fill up the last block of each vector, and the vectors of a sharded parameter to the same length; they never
    reach the weights.
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
            for key in outer.keys() & group.keys() - {"params"}:
                if _only_first(group[key], outer[key]):
                    group[key].fill_(outer[key])
                else:
                    group[key] = outer[key]
        stepped: list[tuple[MaskedParameter, torch.nn.Parameter, torch.Tensor]] = []
        for item in parameters:
            gradient = self._store.of(item)
            if gradient is None:
                continue
            state, weights = self._state_of(item), item.weights
            flat = flat_of(weights)
            backend = self._backend_of(flat)
            begin_master(item, state, flat, backend)
            vector, master, length = self._vector[item.parameter], state["master"], self._length_of(item)
            # The master is new: just begun, or loaded.
            if vector.numel() != length or vector.data_ptr() != master.data_ptr():
                vector.data = _padded(master, length)
            _take_loaded(vector.data, flat, item)
            values = _padded(gradient.values, length) if gradient.packed else torch.zeros_like(vector.data)
            if not gradient.packed:
                backend.accumulate(values[: item.bits.nnz], gradient.values, item.bits)
            vector.grad = values if factor == 1.0 else values * factor
            # The inner optimizer has state for a step alone: between steps it is here, in plain tensors.
            inner.state[vector] = self._joined(item, {k: v for k, v in state.items() if k not in _OWN}, length)
            stepped.append((item, vector, flat))
        inner.step()
        for item, vector, flat in stepped:
            after = inner.state.pop(vector)
            if forms := _forms_of(after):
                self._forms[vector.numel()] = forms
                after[PARTS] = part_of(item)
            self.state[item.parameter].update(_split({**after, "master": vector.data}, vector.numel(), item.bits.nnz))
            vector.grad = None
            for part, offsets in item.bits.masked_slices():
                flat[part.coordinates].scatter_(0, offsets, vector.data[part.entries].to(flat.dtype))
            # Then `flat` is a copy.
            if not item.weights.is_contiguous():
                item.weights.copy_(flat.reshape(item.weights.shape))
        # Some count their steps in a group; those numbers are saved with ours.
        for outer, group in zip(self.param_groups, inner.param_groups, strict=True):
            kept = {key for key, value in group.items() if _only_first(value, outer.get(key, value))}
            outer.update({key: value for key, value in group.items() if key not in kept | {"params"}})

    def _length_of(self, item: MaskedParameter) -> int:
        """Entries of a parameter's vector; a collective call, once, of the processes that have a part of it."""
        block = getattr(self._inner, "block_size", 1)
        if not isinstance(block, int) or block == 1:
            return item.bits.nnz
        if item.parameter not in self._lengths:
            most = torch.tensor(item.bits.nnz, device=item.layout.device)
            if item.layout.mesh is not None:
                dist.all_reduce(most, dist.ReduceOp.MAX, group=item.layout.group)
            blocks = -(-int(most) // block)
            # torchao compiles its step for each length: at most 16 lengths from one power of two to the next.
            unit = 1 << max(blocks.bit_length() - 5, 0)
            self._lengths[item.parameter] = -(-blocks // unit) * unit * block
        return self._lengths[item.parameter]

    def _joined(self, item: MaskedParameter, state: dict[str, Any], length: int) -> dict[str, Any]:
        """What :func:`_split` returned, as the optimizer has it."""
        found = {key: value.shape for key, value in state.items() if OF_BLOCKS in key}
        joined = {
            key: _padded(value, length) if isinstance(value, torch.Tensor) and value.dim() else value
            for key, value in state.items()
            if key not in found
        }
        if not found:
            return joined
        if length not in self._forms:
            vector = torch.nn.Parameter(torch.zeros(length))
            vector.grad = torch.zeros(length)
            optimizer = self._make([vector], **self._options)
            with _uncompiled():
                optimizer.step()
            self._forms[length] = _forms_of(optimizer.state[vector])
        forms = self._forms[length]
        if found != {f"{key}{OF_BLOCKS}{name}": size for key, form in forms.items() for name, size in form[2].items()}:
            raise DataError(
                f"the state of {item.name} is not quantized as this optimizer does: it has {', '.join(found)}",
                hint="give the optimizer the class and options that it was saved with",
            )
        for key, (kind, context, sizes) in forms.items():
            tensors = {name: state[f"{key}{OF_BLOCKS}{name}"] for name in sizes}
            joined[key] = kind.__tensor_unflatten__(tensors, context, torch.Size([length]), (1,))
        return joined

    def _optimizer(self) -> torch.optim.Optimizer:
        """The optimizer over one vector for each parameter; made anew where parameters were bound anew."""
        if self._inner is None or self._vectors_of is not self._bound:
            self._vectors_of = self._bound
            self._lengths: dict[torch.Tensor, int] = {}
            self._forms: dict[int, dict[str, tuple[Any, Any, dict[str, torch.Size]]]] = {}
            self._vector = {
                item.parameter: torch.nn.Parameter(torch.empty(0, device=item.weights.device))
                for item in self._bound or ()
            }
            vectors = [[self._vector[p] for p in group["params"]] for group in self.param_groups]
            given = [{**_without_names(g), "params": p} for g, p in zip(self.param_groups, vectors, strict=True)]
            self._inner = self._make(given, **self._options)
        return self._inner


def _padded(values: torch.Tensor, length: int) -> torch.Tensor:
    missing = length - values.numel()
    return torch.nn.functional.pad(values, (0, missing)) if missing else values


def _forms_of(state: dict[str, Any]) -> dict[str, tuple[Any, Any, dict[str, torch.Size]]]:
    """Of each quantized tensor the class, what else it is made from, and the shapes of the tensors in it."""
    forms = {}
    for key, value in state.items():
        if hasattr(value, "__tensor_flatten__"):
            names, context = value.__tensor_flatten__()
            forms[key] = type(value), context, {name: getattr(value, name).shape for name in names}
    return forms


def _split(state: dict[str, Any], length: int, nnz: int) -> dict[str, Any]:
    """State in plain tensors, which any file, process and device can take; vectors without what was padded."""
    plain: dict[str, Any] = {}
    for key, value in state.items():
        if hasattr(value, "__tensor_flatten__"):
            plain |= {f"{key}{OF_BLOCKS}{name}": getattr(value, name) for name in value.__tensor_flatten__()[0]}
        else:
            packed = isinstance(value, torch.Tensor) and tuple(value.shape) == (length,)
            plain[key] = value[:nnz] if packed else value
    return plain


def _only_first(one: object, other: object) -> bool:
    """Whether only the first is a tensor: torchao keeps learning rates so, and schedulers and files of ours do not."""
    return isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor)


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
        with _uncompiled():
            (whole, optimizer), (halves, _) = (_steps(make, options, n) for n in (1, 2))
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, AssertionError) as error:
        raise UsageError(f"{name} does not step a vector with these options: {error}", hint=_ATTACH) from error
    if not torch.equal(whole, halves):
        raise UsageError(f"{name} does not step each coordinate by itself", hint=_ATTACH)
    if hasattr(optimizer, "eval"):
        raise UsageError(f"{name} swaps the weights in eval()", hint=_ATTACH)
    return dict(optimizer.defaults)


def _uncompiled() -> AbstractContextManager[Any]:
    """Where PyTorch (2.6 or newer) knows how, no torch.compile: a few numbers are not worth half a minute of it."""
    return torch.compiler.set_stance("force_eager") if hasattr(torch.compiler, "set_stance") else nullcontext()


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
