"""The masks of the arms: artifacts in a registry, extracted or created as baselines."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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

Kind = Literal["", "random", "random-per-tensor", "exponent-matched", "low-magnitude", "subset", "complement"]
"""Of a baseline of an artifact; empty for its own mask, ``random`` for a mask that derives from no artifact."""


@dataclass(frozen=True)
class MaskSpec:
    """Describes a mask.

    Attributes:
        origin: digest of the artifact it is or derives from; empty for all coordinates, and for ``random``.
        kind: see :data:`Kind`.
        seed: of a random mask.
        density: of a ``random`` mask; of a ``subset``, the share of the mask's coordinates that it keeps.
    """

    origin: str = ""
    kind: Kind = ""
    seed: int | None = None
    density: float | None = None


FULL = MaskSpec()


class NothingLearnedError(Exception):
    """A checkpoint has the source's weights: there is no mask to test."""


def extract_mask(setting: Setting, target: Path, registry: Path) -> str:
    """Extract what changed between the source and a checkpoint; returns the artifact's digest."""
    result = extract(open_checkpoint(setting.path("source")), open_checkpoint(target), registry, jobs=1)
    digest = str(result.digest)
    if not open_artifact(digest, registry).manifest.totals.nnz:
        raise NothingLearnedError(f"no bf16 weight of {target} differs from the source's")
    return digest


def open_artifact(digest: str, registry: Path) -> Artifact:
    """An artifact by digest."""
    return Artifact.open(FileStore(registry), Digest(digest))


def open_mask(spec: MaskSpec, setting: Setting, registry: Path) -> tuple[Mask, str]:
    """The mask, created if necessary, and the digest of its artifact: empty for a mask without one."""
    source = open_checkpoint(setting.path("source"))
    if not spec.origin:
        shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
        if spec.kind != "random":
            return Everything(shapes), ""
        assert spec.seed is not None
        assert spec.density is not None
        return random_mask(shapes, spec.seed, spec.density), ""
    artifact = open_artifact(spec.origin, registry)
    if spec.kind:
        totals = artifact.manifest.totals
        density = None if spec.density is None else spec.density * totals.nnz / totals.numel
        baseline = BaselineSpec.of(spec.kind, seed=spec.seed, density=density)
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
