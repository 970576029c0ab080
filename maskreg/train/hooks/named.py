"""Masks as people name them, and optimizers that take them so: a reference, an artifact, or the mask itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from maskreg.errors import NotFoundError, UsageError
from maskreg.mask.packed import Mask
from maskreg.ref import Ref
from maskreg.train import optim

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact

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
        UsageError: something else.
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
    from maskreg.registry import Registry
    from maskreg.registry.fetch import fetch
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
    return fetch(settings, Ref.parse(ref), parts=("mask",)).artifact


class MaskedAdamW(optim.MaskedAdamW):
    """:class:`maskreg.train.optim.MaskedAdamW` whose mask may be given by name.

    Takes ``mask="name:tag"``, an opened artifact, or masks by tensor name.
    """

    def _mask_of(self, mask: MaskLike) -> Mask:
        return mask_of(mask)


class MaskedSGD(optim.MaskedSGD):
    """:class:`maskreg.train.optim.MaskedSGD` whose mask may be given by name.

    Takes ``mask="name:tag"``, an opened artifact, or masks by tensor name.
    """

    def _mask_of(self, mask: MaskLike) -> Mask:
        return mask_of(mask)
