"""Masks as people name them, and optimizers that take them so: a reference, an artifact, or the mask itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from maskreg import optim
from maskreg.errors import NotFoundError, UsageError
from maskreg.mask.packed import Mask, TensorMask, flip, packed_bytes
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.optim.masked import Params

MaskLike: TypeAlias = "str | Artifact | Mask"
"""``"name:tag"``, an opened artifact, or masks by tensor name."""


def mask_of(mask: MaskLike) -> Mask:
    """The mask that somebody means, read tensor by tensor when asked for.

    Args:
        mask: ``[project/]name[:tag][@sha256:...]``, looked up in the local registry and pulled when it is not there;
            or an opened artifact; or masks by tensor name.

    Raises:
        BadRefError: a text that is no reference.
        NotFoundError: there is no such artifact, or it has no mask.
        UnavailableError: it is not here, and the remote does not answer.
    """
    if isinstance(mask, str):
        mask = artifact_of(mask)
    if isinstance(mask, Mapping):
        return mask
    found = getattr(mask, "mask", None)
    if not isinstance(found, Mapping):
        raise UsageError(f"{type(mask).__name__} is no mask", hint='mask="name:tag", or maskreg.pull("name:tag")')
    return found


def artifact_of(ref: str) -> Artifact:
    """The artifact that a reference means, with its mask: from the local registry, or pulled into it.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        NotFoundError: there is no such artifact, or it has no mask.
        UnavailableError: it is not here, and the remote does not answer.
    """
    from maskreg.flow.pull import pull
    from maskreg.registry import Registry
    from maskreg.settings import Settings

    settings = Settings.load()
    with Registry.local(settings) as here:
        try:
            found = here.artifact(here.resolve(Ref.parse(ref)).digest)
            found.require("mask")
            return found
        except NotFoundError:
            if settings.offline or not settings.remotes:
                raise
    return pull(ref, parts=("mask",))


class Everything(Mapping[str, TensorMask]):
    """The mask of all coordinates, made tensor by tensor when asked for.

    Args:
        shapes: of every tensor, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def __getitem__(self, name: str) -> TensorMask:
        shape = self._shapes[name]
        numel = math.prod(shape)
        return TensorMask(name, shape, flip(np.zeros(packed_bytes(numel), np.uint8), numel))

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class MaskedAdamW(optim.MaskedAdamW):
    """AdamW on the coordinates of a mask, which may be given by name.

    Args:
        params: see :class:`maskreg.optim.MaskedOptimizer`.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: decoupled.
        mask: ``"name:tag"``, an opened artifact, or masks by tensor name.
        options: max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        mask: MaskLike | None = None,
        **options: Any,
    ) -> None:
        found = None if mask is None else mask_of(mask)
        super().__init__(params, lr, betas, eps, weight_decay, mask=found, **options)


class MaskedSGD(optim.MaskedSGD):
    """SGD on the coordinates of a mask, which may be given by name.

    Args:
        params: see :class:`maskreg.optim.MaskedOptimizer`.
        lr: learning rate.
        momentum: decay of the velocity; 0 keeps none.
        weight_decay: times the weights, added to the gradient.
        nesterov: Nesterov's momentum.
        mask: ``"name:tag"``, an opened artifact, or masks by tensor name.
        options: max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        mask: MaskLike | None = None,
        **options: Any,
    ) -> None:
        found = None if mask is None else mask_of(mask)
        super().__init__(params, lr, momentum, weight_decay, nesterov, mask=found, **options)
