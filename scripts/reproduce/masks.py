"""The masks of the arms: artifacts in a registry, extracted or created as baselines."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.extract.extraction import extract
from maskreg.mask.algebra import Everything
from maskreg.mask.baseline import BaselineSpec
from maskreg.mask.packed import Mask, TensorMask, pack
from maskreg.store.file import FileStore
from scripts.reproduce.setting import Setting


@dataclass(frozen=True)
class MaskSpec:
    """Describes a mask: all coordinates, an artifact's mask, one drawn like it, or random coordinates.

    Attributes:
        origin: digest of the artifact that it is or derives from; empty for all coordinates and random ones.
        seed: of a mask that is drawn; None for an artifact's own.
        density: of random coordinates.
    """

    origin: str = ""
    seed: int | None = None
    density: float | None = None


FULL = MaskSpec()


class NothingLearnedError(Exception):
    """A checkpoint has the source's weights: there is no mask to test."""


def extract_mask(setting: Setting, target: Path, registry: Path) -> dict[str, str]:
    """Extract what changed between the source and a checkpoint; returns the artifact's digest, as a record."""
    result = extract(open_checkpoint(setting.path("source")), open_checkpoint(target), registry, jobs=1)
    digest = str(result.digest)
    if not open_artifact(digest, registry).manifest.totals.nnz:
        raise NothingLearnedError(f"no bf16 weight of {target} differs from the source's")
    return {"digest": digest}


def open_artifact(digest: str, registry: Path) -> Artifact:
    """An artifact by digest."""
    return Artifact.open(FileStore(registry), Digest(digest))


def open_mask(spec: MaskSpec, setting: Setting, registry: Path) -> tuple[Mask, str]:
    """The mask, created if necessary, and the digest of its artifact: empty for a mask without one."""
    source = open_checkpoint(setting.path("source"))
    if not spec.origin:
        shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
        if spec.seed is None or spec.density is None:
            return Everything(shapes), ""
        return random_mask(shapes, spec.seed, spec.density), ""
    artifact = open_artifact(spec.origin, registry)
    if spec.seed is not None:
        baseline = BaselineSpec.of("exponent-matched", seed=spec.seed)
        result = make_baseline(artifact, baseline, registry, source, jobs=1)
        artifact = open_artifact(str(result.digest), registry)
    return dict(artifact.mask), str(artifact.digest)


def random_mask(shapes: Mapping[str, tuple[int, ...]], seed: int, density: float) -> Mask:
    """Random coordinates, of one density in all tensors; a tensor's depend on its name and the seed alone."""
    mask = {}
    for name, shape in shapes.items():
        numel = math.prod(shape)
        key = np.frombuffer(hashlib.sha256(f"{seed} {name}".encode()).digest()[:16], dtype="<u8")
        rng = np.random.Generator(np.random.Philox(key=key.astype(np.uint64)))
        bits = np.zeros(numel, np.bool_)
        bits[rng.permutation(numel)[: round(density * numel)]] = True
        mask[name] = TensorMask(name, shape, pack(bits))
    return mask
