"""A parameter with its mask; what cannot be masked is rejected by name, with what to use instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from maskreg.errors import UsageError
from maskreg.live.memory import CODES
from maskreg.live.shards import Layout, Order, cut, layout_of, local_of
from maskreg.mask.packed import TensorMask
from maskreg.tensors.info import batches
from maskreg.train.optim.bits import Bits

_WITHOUT_DEEPSPEED = "train without DeepSpeed; FSDP2 shards too: fully_shard(model), or fsdp_version: 2 in Accelerate"


def refuse_foreign(name: str, parameter: torch.Tensor) -> None:
    """Reject a parameter whose coordinates do not match the checkpoint's tensor."""
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise UsageError(
            f"{name} is a FlatParameter of FSDP1, or a view of one, which hides where tensors begin",
            hint="use FSDP2: fully_shard(model); fsdp_version: 2 in Accelerate; strategy=fsdp2 in verl",
        )
    if hasattr(parameter, "ds_id") or getattr(parameter, "_hp_mapping", None) is not None:
        raise UsageError(f"{name} is DeepSpeed's, which updates flat copies of its own", hint=_WITHOUT_DEEPSPEED)
    if parameter.is_complex():
        raise UsageError(
            f"{name} is complex, and steps are taken in real numbers",
            hint="make the parameter torch.view_as_real(value), or train it with another optimizer",
        )
    if parameter.is_meta:
        raise UsageError(
            f"{name} is on the meta device, without values", hint="load the model's weights before the first step"
        )


def refuse_sparse(name: str, grad: torch.Tensor) -> None:
    """Reject sparse gradients."""
    if grad.layout != torch.strided:
        raise UsageError(f"the gradient of {name} is sparse", hint="nn.Embedding(..., sparse=False)")


def refuse_fewer(given: int, present: int) -> None:
    """Reject groups in which a framework has merged parameters."""
    if present < given:
        raise UsageError(
            f"{given} parameters were merged into {present}, as DeepSpeed's ZeRO and FSDP1 do", hint=_WITHOUT_DEEPSPEED
        )


def refuse_replicas(module: torch.nn.Module, mode: str) -> None:
    """Reject DistributedDataParallel where gradients are consumed as soon as they are ready."""
    if any(isinstance(inner, torch.nn.parallel.DistributedDataParallel) for inner in module.modules()):
        raise UsageError(
            f'gradients="{mode}" consumes gradients before DistributedDataParallel has averaged them',
            hint='gradients="dense", or shard the model with fully_shard(model) instead of DistributedDataParallel',
        )


_BATCH = 1 << 26
"""Coordinates that are worked on together, unless a single parameter has more."""


@dataclass(eq=False)
class MaskedParameter:
    """One parameter of an optimizer with the mask of the part that is in this process.

    Attributes:
        name: in the running model.
        parameter: in the optimizer's groups; can be sharded.
        group: its parameter group.
        layout: which part of it is local.
        order: where the masked coordinates of that part stand in the whole mask.
        bits: mask of the local part.
        fingerprint: xxh3-128 of the whole tensor's mask.
        shape: of the local part when its mask was found.
        seen: bits of masked weights when :meth:`changed` last looked, ``[nnz]``; None before.
    """

    name: str
    parameter: torch.Tensor
    group: dict[str, Any]
    layout: Layout
    order: Order
    bits: Bits
    fingerprint: bytes
    shape: torch.Size
    seen: torch.Tensor | None = None

    @classmethod
    def of(cls, name: str, parameter: torch.Tensor, group: dict[str, Any], mask: TensorMask) -> MaskedParameter:
        """Cut the local part out of the mask of a whole parameter."""
        refuse_foreign(name, parameter)
        layout = layout_of(name, parameter)
        packed, order = cut(mask.packed, layout.part)
        local = local_of(parameter.detach())
        bits = Bits.of(packed, layout.part.numel, local.device)
        return cls(name, parameter, group, layout, order, bits, xxhash.xxh3_128_digest(mask.packed.data), local.shape)

    @property
    def weights(self) -> torch.Tensor:
        """The local part of the parameter, sharing memory with it."""
        return local_of(self.parameter.detach())

    @property
    def dense_gradient(self) -> torch.Tensor | None:
        """The local part of the gradient that autograd left, flat; None without one."""
        grad = self.parameter.grad
        if grad is None:
            return None
        refuse_sparse(self.name, grad)
        if self.layout.mesh is not None and grad.placements != self.parameter.placements:  # type: ignore[attr-defined]
            grad = grad.redistribute(placements=self.parameter.placements)  # type: ignore[attr-defined]
        return local_of(grad).reshape(-1)

    def changed(self, master: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Where masked weights have other bits than at the last call, and these bits; all of them at the first.

        ``master``: fp32 ``[nnz]``, what the weights are roundings of; contiguous, it is read faster than they are.

        Yields:
            Positions in the flat local part, int64 ``[k]``, ascending, and integers of the weights' width, ``[k]``; at
            least once.
        """
        weights = self.weights.contiguous().reshape(-1)
        flat = weights.view(CODES[weights.element_size()])
        if master is not None:
            now = master.to(weights.dtype).view(flat.dtype)
        else:
            slices = self.bits.masked_slices()
            now = torch.cat([flat[:0], *(flat[part.coordinates].index_select(0, at) for part, at in slices)])
        before, self.seen = self.seen, now
        if before is not None and before.dtype == now.dtype:
            positions = self.bits.coordinates((now != before.to(now.device)).nonzero().squeeze(1))
            yield positions, flat[positions]
            return
        yield torch.empty(0, dtype=torch.int64), flat[:0]
        for part, offsets in self.bits.masked_slices():
            yield offsets + part.coordinates.start, flat[part.coordinates].index_select(0, offsets)

    def check_shape(self) -> None:
        """Reject a gradient's parameter whose coordinates no longer match the mask."""
        if self.parameter.grad is not None and self.weights.shape != self.shape:
            raise UsageError(
                f"{self.name} has shape {list(self.weights.shape)}, but {list(self.shape)} when its mask was found",
                hint="resize or transpose weights before the optimizer is made",
            )

    def follow_device(self) -> None:
        """Move the mask to where the parameter is now."""
        self.bits = self.bits.to(self.weights.device)


def in_batches(parameters: Iterable[MaskedParameter]) -> Iterator[list[MaskedParameter]]:
    """Parameters to be worked on together, in order.

    So many that all threads are busy, and so few that copies of them, such as of weights that are not contiguous, take
    little memory beside a large model.
    """
    return batches(parameters, _BATCH, lambda item: item.bits.numel)
