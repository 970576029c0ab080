"""Masks as people give them: by name, as an artifact, or by tensor name, packed or as booleans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import NotFoundError, UsageError
from maskreg.mask.packed import Mask, TensorMask, pack
from maskreg.ref import Ref
from maskreg.settings import Settings

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact


class _Holder(Protocol):
    """What has an artifact, as the result of a pull does."""

    @property
    def artifact(self) -> Artifact: ...


MaskLike: TypeAlias = (
    "str | Artifact | _Holder | Mask | Mapping[str, torch.Tensor] | Mapping[str, npt.NDArray[np.bool_]]"
)
"""``"name:tag"``, an opened artifact, the result of a pull, or masks by tensor name: packed, or boolean tensors or
arrays in its shape."""


def mask_of(mask: MaskLike) -> Mask:
    """Masks by tensor name; an artifact's masks are read when they are asked for.

    A name is looked up in the local registry, else pulled. Of a ``dict`` of booleans, the packed bits are kept, an
    eighth of its size, and not the tensors.

    Raises:
        NotFoundError: there is no such artifact, or it has no mask.
        UsageError: the value is of another type, has no tensors, or a mask in it is not boolean.
    """
    if isinstance(mask, str):
        mask = artifact_of(mask)
    mask = getattr(mask, "artifact", mask)
    masks = mask if isinstance(mask, Mapping) else getattr(mask, "mask", None)
    if not isinstance(masks, Mapping):
        raise UsageError(f"{type(mask).__name__} is no mask", hint='mask="name:tag", or maskreg.pull("name:tag")')
    if not masks:
        raise UsageError("the mask has no tensors", hint="give a mask for every tensor that is to be trained")
    if (key := next((name for name in masks if not isinstance(name, str)), None)) is not None:
        raise UsageError(
            f"the mask has {key!r} in place of a tensor's name",
            hint="mask={name: ...}, with the names of model.named_parameters()",
        )
    packed = _Packed(masks)
    return dict(packed) if isinstance(masks, dict) else packed


class _Packed(Mapping[str, TensorMask]):
    """Masks by tensor name, each packed on access unless it is already."""

    def __init__(self, masks: Mapping[str, object]) -> None:
        self._masks = masks

    def __getitem__(self, name: str) -> TensorMask:
        return _packed(name, self._masks[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)


def _packed(name: str, mask: object) -> TensorMask:
    if isinstance(mask, TensorMask):
        return mask
    if isinstance(mask, torch.Tensor):
        if hasattr(mask, "to_local"):
            raise UsageError(f"the mask of {name} is sharded", hint="give all of it: mask.full_tensor()")
        if mask.is_meta or mask.layout != torch.strided:
            raise UsageError(f"the mask of {name} has no values or is sparse", hint="give a dense tensor of booleans")
        if mask.dtype == torch.bool:
            mask = mask.detach().cpu().numpy()
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_:
        return TensorMask(name, mask.shape, pack(mask))
    kind = str(mask.dtype) if isinstance(mask, torch.Tensor | np.ndarray) else f"a {type(mask).__name__}"
    raise UsageError(
        f"the mask of {name} is {kind}, not booleans",
        hint="mask={name: tensor != 0}, with a boolean tensor or array of the shape of each parameter",
    )


def artifact_of(ref: str) -> Artifact:
    """The artifact of a ref, with its mask, from the local registry or else pulled into it."""
    # The optimizers import this module, and have to work where there is neither zarr nor SQLAlchemy.
    from maskreg.registry import Registry
    from maskreg.registry.pull import pull

    settings = Settings.load()
    with Registry.local(settings) as local:
        try:
            artifact = local.artifact(local.resolve(Ref.parse(ref)).digest)
            artifact.require("mask")
            return artifact
        except NotFoundError:
            if not settings.asks_remote():
                raise
        with Registry.remote(settings.remote(), settings) as remote:
            return pull(local, remote, Ref.parse(ref), parts=("mask",), jobs=settings.jobs).artifact
