"""The masks of the arms: artifacts in a registry, extracted or created as baselines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.extract.extraction import extract
from maskreg.mask.baseline import BaselineSpec
from maskreg.mask.everything import Everything
from maskreg.mask.packed import Mask
from maskreg.store.file import FileStore
from scripts.reproduce.setting import Setting


@dataclass(frozen=True)
class MaskSpec:
    """Describes a mask.

    Attributes:
        origin: digest of the artifact it is or derives from; empty for all coordinates.
        kind: of a baseline of that artifact; empty for the artifact's own mask.
        seed: of a random baseline.
        density: of a baseline that takes one.
    """

    origin: str = ""
    kind: Literal["", "random-per-tensor", "exponent-matched", "low-magnitude", "subset", "complement"] = ""
    seed: int | None = None
    density: float | None = None


FULL = MaskSpec()


class NothingLearnedError(Exception):
    """A checkpoint has the source's weights: there is no mask to test."""


def extract_mask(setting: Setting, target: Path, registry: Path) -> str:
    """Extract what changed between the source and a checkpoint; returns the artifact's digest.

    Raises:
        NothingLearnedError: nothing changed.
    """
    result = extract(open_checkpoint(setting.path("source")), open_checkpoint(target), registry, jobs=1)
    digest = str(result.digest)
    if not open_artifact(digest, registry).manifest.totals.nnz:
        raise NothingLearnedError(f"no bf16 weight of {target} differs from the source's")
    return digest


def open_artifact(digest: str, registry: Path) -> Artifact:
    """An artifact by digest."""
    return Artifact.open(FileStore(registry), Digest(digest))


def open_mask(spec: MaskSpec, setting: Setting, registry: Path) -> tuple[Mask, str]:
    """The mask, created if necessary, and the digest of its artifact: empty for all coordinates."""
    source = open_checkpoint(setting.path("source"))
    if not spec.origin:
        return Everything({name: tensor.shape for name, tensor in source.tensors.items()}), ""
    artifact = open_artifact(spec.origin, registry)
    if spec.kind:
        baseline = BaselineSpec.of(spec.kind, seed=spec.seed, density=spec.density)
        result = make_baseline(artifact, baseline, registry, source, jobs=1)
        artifact = open_artifact(str(result.digest), registry)
    return dict(artifact.mask), str(artifact.digest)
