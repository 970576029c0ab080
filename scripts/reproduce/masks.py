"""The masks of the arms: artifacts of a registry, made by extraction and by drawing baselines."""

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
class Which:
    """Which mask.

    Attributes:
        origin: the artifact it is or comes from, by digest; empty for all coordinates.
        kind: of the baseline of that artifact; empty for the artifact's own mask.
        seed: of the baseline, where chance draws it.
        density: of the baseline, where it has one.
    """

    origin: str = ""
    kind: Literal["", "random-per-tensor", "exponent-matched", "low-magnitude", "subset", "complement"] = ""
    seed: int | None = None
    density: float | None = None


FULL = Which()


def extracted(setting: Setting, target: Path, registry: Path) -> str:
    """Digest of the mask of what changed between the source and a checkpoint."""
    made = extract(open_checkpoint(setting.path("source")), open_checkpoint(target), registry, jobs=1)
    return str(made.digest)


def opened(digest: str, registry: Path) -> Artifact:
    """An artifact by digest."""
    return Artifact.open(FileStore(registry), Digest(digest))


def mask_for(which: Which, setting: Setting, registry: Path) -> tuple[Mask, str]:
    """A mask, and the digest of its artifact; of no artifact for all coordinates."""
    source = open_checkpoint(setting.path("source"))
    if not which.origin:
        return Everything({name: tensor.shape for name, tensor in source.tensors.items()}), ""
    artifact = opened(which.origin, registry)
    if which.kind:
        spec = BaselineSpec.of(which.kind, seed=which.seed, density=which.density)
        made = make_baseline(artifact, spec, registry, source, jobs=1)
        artifact = opened(str(made.digest), registry)
    return dict(artifact.mask), str(artifact.digest)
