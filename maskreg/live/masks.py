"""The mask of each parameter of a running model, composed of the masks of a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError
from maskreg.live.layout import Join, Link, links
from maskreg.live.memory import storage_key
from maskreg.live.naming import find, missing_error
from maskreg.mask.packed import Mask, TensorMask, pack_spans
from maskreg.words import listed

_SHOWN = 3


def parameter_masks(
    trained: Mapping[str, torch.Tensor],
    mask: Mask,
    model: torch.nn.Module | None = None,
    given: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Iterator[tuple[str, TensorMask]]:
    """The mask of each trained parameter, in that order.

    All names are checked first. Memory beside the result: the packed bits of one parameter, and a byte per coordinate
    of one tensor and those interleaved with it.
    """
    held = [] if model is None else [model.named_parameters, model.named_buffers]
    tensors = {**trained, **{name: each for named in held for name, each in named(remove_duplicate=False)}, **given}
    matches = find(mask, tensors, model)
    if model is not None and matches.missing:
        names, others = matches.missing, ""
        if len(names) > 1:
            others = f", as {'is' if len(names) == 2 else 'are'} {listed(names[1:], _SHOWN)} of the mask"
        other = next((name for name in given if name not in trained), "")
        if other:
            own = next(name for name, tensor in trained.items() if tensor is given[other])
            others += f" ({own} in the module that runs is {other} in the optimizer)"
        hint = "use the mask of a checkpoint that this model is loaded from"
        raise missing_error(names[0], mask, tensors, hint=hint, others=others)
    joins: dict[tuple[object, ...], list[Join]] = {}
    for join in matches.joins:
        for target in join.targets:
            joins.setdefault(storage_key(tensors[target]), []).append(join)
    absent = [name for name, tensor in trained.items() if storage_key(tensor) not in joins]
    if absent:
        raise UsageError(
            f"the mask does not cover {listed(absent, _SHOWN)}, which the optimizer trains",
            hint="give the optimizer only what the mask covers, no adapters, or set requires_grad=False",
        )
    return _composed(trained, mask, tensors, joins)


def _composed(
    trained: Mapping[str, torch.Tensor],
    mask: Mask,
    tensors: Mapping[str, torch.Tensor],
    joins: Mapping[tuple[object, ...], list[Join]],
) -> Iterator[tuple[str, TensorMask]]:
    empty = True
    for name, tensor in trained.items():
        first, *duplicates = joins[storage_key(tensor)]
        bits = _bits(first, tensor, mask, tensors)
        for duplicate in duplicates:
            if not np.array_equal(bits, _bits(duplicate, tensor, mask, tensors)):
                raise UsageError(
                    f"tensors {first.first} and {duplicate.first} of the mask are both {name}, but they differ",
                    hint="untie the weights (tie_word_embeddings=False), or make the mask from tied checkpoints",
                )
        empty = empty and not bits.any()
        yield name, TensorMask(name, tuple(tensor.shape), bits)
    if empty and trained:
        raise UsageError(
            f"the mask has no coordinate of {listed(list(trained), _SHOWN)}, so nothing would be trained",
            hint="give a mask with coordinates of the parameters that the optimizer trains, or train without a mask",
        )


def _bits(join: Join, tensor: torch.Tensor, mask: Mask, tensors: Mapping[str, torch.Tensor]) -> npt.NDArray[np.uint8]:
    """Packed bits of one parameter, all of which the join makes up."""
    masks = {source: mask[source] for group in join.sources for source in group}
    shapes = {source: tensor_mask.shape for source, tensor_mask in masks.items()}
    blank = {target: torch.empty(tensors[target].shape, device="meta") for target in join.targets}
    key = storage_key(tensor)
    parts = [
        link
        for link in links(join, shapes, blank)
        if link.of_parameter.numel() and storage_key(tensors[link.parameter]) == key
    ]
    if not join.operations:
        return masks[join.first].packed
    parts.sort(key=lambda link: link.of_parameter.storage_offset())
    return pack_spans(_span_bits(span, masks) for span in _spans(parts))


def _spans(parts: list[Link]) -> Iterator[list[Link]]:
    """Links in the order of the parameter, interleaved ones together."""
    span: list[Link] = []
    reached = 0
    for link in parts:
        start, stop = _extent(link.of_parameter)
        if span and start >= reached:
            yield span
            span = []
        span.append(link)
        reached = max(reached, stop)
    if span:
        yield span


def _span_bits(span: list[Link], mask: Mask) -> npt.NDArray[np.bool_]:
    start = min(_extent(link.of_parameter)[0] for link in span)
    flat = torch.zeros(max(_extent(link.of_parameter)[1] for link in span) - start, dtype=torch.bool)
    for link in span:
        moved = torch.from_numpy(mask[link.tensor].to_bool())
        view = link.of_parameter
        part = moved.as_strided(link.of_tensor.shape, link.of_tensor.stride(), link.of_tensor.storage_offset())
        flat.as_strided(view.shape, view.stride(), view.storage_offset() - start).copy_(part)
    return flat.numpy()


def _extent(view: torch.Tensor) -> tuple[int, int]:
    start = int(view.storage_offset())
    return start, start + 1 + sum((n - 1) * stride for n, stride in zip(view.shape, view.stride(), strict=True))
