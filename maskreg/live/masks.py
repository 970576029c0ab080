"""The mask of each parameter of a running model, made of those of a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.layout import Join, Link, links
from maskreg.live.memory import place_of
from maskreg.live.naming import find
from maskreg.mask.packed import Mask, TensorMask, pack_spans

_SHOWN = 3


def parameter_masks(
    trained: Mapping[str, torch.Tensor], mask: Mask, model: torch.nn.Module | None = None
) -> Iterator[tuple[str, TensorMask]]:
    """The mask of each trained parameter, in that order.

    Names are checked before the first is given. Beside what is given, memory holds the packed bits of one parameter
    and a byte for each coordinate of one tensor, or of those that lie interleaved with it.

    Args:
        trained: parameters by the names that the running model gives them.
        mask: by the names in the checkpoint. What it says of buffers and of parameters that are not trained is not
            used.
        model: has the parameters; without it, how transformers lays experts out is guessed from names, other names of
            tied parameters are not known, and names that are not among those of ``trained`` are not checked.

    Raises:
        WrongCheckpointError: a tensor of the mask is not in the model, or of another shape there.
        UsageError: the mask says nothing of a parameter, several things, or nothing of any.
    """
    tensors = dict(trained)
    if model is not None:
        tensors |= _every_name(model)
    found = find(mask, tensors, model)
    if model is not None and found.missing:
        raise _missing(found.missing)
    joins: dict[tuple[object, ...], list[Join]] = {}
    for join in found.joins:
        for target in join.targets:
            joins.setdefault(place_of(tensors[target]), []).append(join)
    absent = [name for name, tensor in trained.items() if place_of(tensor) not in joins]
    if absent:
        raise UsageError(
            f"the mask says nothing of {_listed(absent)}, which the optimizer trains",
            hint="leave out of the optimizer what the mask does not cover, adapters too, or set requires_grad=False",
        )
    return _composed(trained, mask, tensors, joins)


def _composed(
    trained: Mapping[str, torch.Tensor],
    mask: Mask,
    tensors: Mapping[str, torch.Tensor],
    joins: Mapping[tuple[object, ...], list[Join]],
) -> Iterator[tuple[str, TensorMask]]:
    for name, tensor in trained.items():
        first, *others = joins[place_of(tensor)]
        bits = _bits(first, tensor, mask, tensors)
        for other in others:
            if not np.array_equal(bits, _bits(other, tensor, mask, tensors)):
                raise UsageError(
                    f"tensors {first.first} and {other.first} of the mask are both {name} here, and they differ",
                    hint="untie the weights (tie_word_embeddings=False), or make the mask from tied checkpoints",
                )
        yield name, TensorMask(name, tuple(tensor.shape), bits)


def _bits(join: Join, tensor: torch.Tensor, mask: Mask, tensors: Mapping[str, torch.Tensor]) -> npt.NDArray[np.uint8]:
    """Packed bits of one parameter, of which the join makes the whole."""
    ones = {source: mask[source] for group in join.sources for source in group}
    shapes = {source: one.shape for source, one in ones.items()}
    blank = {target: torch.empty(tensors[target].shape, device="meta") for target in join.targets}
    place = place_of(tensor)
    parts = [
        link
        for link in links(join, shapes, blank)
        if link.of_parameter.numel() and place_of(tensors[link.parameter]) == place
    ]
    if not join.operations:
        return ones[join.first].packed
    parts.sort(key=lambda link: link.of_parameter.storage_offset())
    return pack_spans(_run(run, ones) for run in _runs(parts))


def _runs(parts: list[Link]) -> Iterator[list[Link]]:
    """Links that follow one another in the parameter, those that interleave together."""
    run: list[Link] = []
    reached = 0
    for link in parts:
        start, stop = _span(link.of_parameter)
        if run and start >= reached:
            yield run
            run = []
        run.append(link)
        reached = max(reached, stop)
    if run:
        yield run


def _run(run: list[Link], mask: Mask) -> npt.NDArray[np.bool_]:
    start = min(_span(link.of_parameter)[0] for link in run)
    flat = torch.zeros(max(_span(link.of_parameter)[1] for link in run) - start, dtype=torch.bool)
    for link in run:
        ones = torch.from_numpy(mask[link.tensor].to_bool())
        to = link.of_parameter
        part = ones.as_strided(link.of_tensor.shape, link.of_tensor.stride(), link.of_tensor.storage_offset())
        flat.as_strided(to.shape, to.stride(), to.storage_offset() - start).copy_(part)
    values: npt.NDArray[np.bool_] = flat.numpy()
    return values


def _span(view: torch.Tensor) -> tuple[int, int]:
    start = int(view.storage_offset())
    return start, start + 1 + sum((n - 1) * step for n, step in zip(view.shape, view.stride(), strict=True))


def _every_name(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters(remove_duplicate=False))
    return named | dict(model.named_buffers(remove_duplicate=False))


def _missing(names: list[str]) -> WrongCheckpointError:
    others = f", like {len(names) - 1} others of the mask" if len(names) > 1 else ""
    return WrongCheckpointError(
        names[0], f"missing in this model{others}", hint="take the mask of a checkpoint that this model is loaded from"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
