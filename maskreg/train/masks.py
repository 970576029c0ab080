"""Masks as people give them: by name, as an artifact, or by tensor name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from maskreg.errors import NotFoundError, UsageError
from maskreg.mask.packed import Mask
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact

MaskLike: TypeAlias = "str | Artifact | Mask"
"""``"name:tag"``, an opened artifact, or masks by tensor name."""


def mask_of(mask: MaskLike) -> Mask:
    """Masks by tensor name, each read when it is asked for.

    Args:
        mask: ``[project/]name[:tag][@sha256:...]``, taken from the local registry or else pulled; an opened artifact;
            or masks by tensor name.

    Raises:
        BadRefError: the text does not follow the grammar of refs.
        NotFoundError: there is no such artifact, or it has no mask.
        UnavailableError: it is not in the local registry, and the remote does not answer.
        UsageError: the value is of another type.
    """
    if isinstance(mask, str):
        mask = artifact_of(mask)
    if isinstance(mask, Mapping):
        return mask
    masks = getattr(mask, "mask", None)
    if not isinstance(masks, Mapping):
        raise UsageError(f"{type(mask).__name__} is no mask", hint='mask="name:tag", or maskreg.pull("name:tag")')
    return masks


def artifact_of(ref: str) -> Artifact:
    """The artifact of a ref, with its mask, from the local registry or else pulled into it.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        NotFoundError: there is no such artifact, or it has no mask.
        UnavailableError: it is not in the local registry, and the remote does not answer.
    """
    # The optimizers import this module, and have to work where there is neither zarr nor SQLAlchemy.
    from maskreg.registry import Registry
    from maskreg.registry.fetch import fetch
    from maskreg.settings import Settings

    settings = Settings.load()
    with Registry.local(settings) as local:
        try:
            artifact = local.artifact(local.resolve(Ref.parse(ref)).digest)
            artifact.require("mask")
            return artifact
        except NotFoundError:
            if settings.offline or not settings.remotes:
                raise
    return fetch(settings, Ref.parse(ref), parts=("mask",)).artifact
