"""Analyses of the same artifact with the same specification, made before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maskreg.artifact.presence import read_manifest
from maskreg.errors import DataError, NotFoundError
from maskreg.flow.geometry.analysis import has_masters

if TYPE_CHECKING:
    from maskreg.digest import Digest
    from maskreg.ref import Ref
    from maskreg.registry import Registry


def earlier_analysis(registry: Registry, ref: Ref, artifact: Digest, recipe: Mapping[str, Any]) -> Digest | None:
    """The latest analysis of an artifact with this lineage recipe that a tag has pointed to; None without one.

    Args:
        registry: where to look.
        ref: the tag.
        artifact: the artifact that was analyzed.
        recipe: as :func:`maskreg.flow.geometry.analysis.lineage_recipe` gives it.
    """
    if has_masters(recipe):
        # An artifact's leaves do not tell one full-precision master from another with the same bf16 cast.
        return None
    for entry in reversed(registry.refs.history(ref)):
        if entry.digest is None:
            continue
        try:
            _, manifest = read_manifest(registry.store, entry.digest)
        except (NotFoundError, DataError):
            # Collected since, or damaged: analyze again.
            continue
        if manifest.kind == "analysis" and manifest.parents == (str(artifact),) and manifest.recipe == recipe:
            return entry.digest
    return None
