"""A registry of many synthetic artifacts, and the same names in MLflow's tables.

What is synthetic: figures are drawn at random, no artifact has payload objects, and the rows are written in bulk. What
is real: every manifest is canonical and every digest is that of its manifest; every tag has an entry in the ref log of
the store; the rows, their seals and their indexes are made by the catalog's own code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import (
    ENCODER,
    SCHEMA,
    FfnRatios,
    Group,
    Manifest,
    Object,
    Part,
    Side,
    Totals,
    dump_manifest,
)
from maskreg.catalog import open_catalog
from maskreg.catalog.sql import upgrade
from maskreg.digest import Digest
from maskreg.ref import Card
from maskreg.registry import Registry
from maskreg.store import FileStore
from maskreg.store.reflog import RefEntry

FAMILIES = ("qwen3-1.7b", "qwen3-8b", "llama3-8b", "olmo2-7b", "gemma3-4b")
METHODS = ("opd", "rlvr", "sft", "dpo")
LICENSES = ("apache-2.0", "mit", "llama3", "")
WORDS = (
    "math",
    "code",
    "long",
    "context",
    "agent",
    "tool",
    "safety",
    "chat",
    "vision",
    "speech",
    "distilled",
    "strict",
)
PROJECTS = 40
TAGS = 10
WHOLE = 2_000
"""Artifacts whose store has more than a manifest."""

_TENSORS = b"[]"
START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """One synthetic tag.

    Attributes:
        entry: the entry of its log.
        manifest: of the artifact that it points to.
        data: the manifest's bytes.
    """

    entry: RefEntry
    manifest: Manifest
    data: bytes


def rows(count: int, seed: int = 0) -> Iterator[Row]:
    """Tags of that many artifacts, always the same ones for a seed."""
    random.seed(seed)
    for number in range(count):
        manifest = _manifest(number)
        data = dump_manifest(manifest)
        yield Row(_entry(number, Digest.of(data)), manifest, data)


def project_of(number: int) -> str:
    """The project of a tag, by its number; the ten tags of a name are in one."""
    return f"team-{number // TAGS % PROJECTS:02d}"


def name_of(number: int) -> str:
    """The name of a tag, by its number."""
    return f"{FAMILIES[number // TAGS % len(FAMILIES)]}-run-{number // TAGS:05d}"


def _entry(number: int, digest: Digest) -> RefEntry:
    card = Card(
        family=FAMILIES[number // TAGS % len(FAMILIES)],
        method=random.choice(METHODS),
        license=random.choice(LICENSES),
        description=f"{' '.join(random.choices(WORDS, k=6))} for experiment {number:06d}",
        meta={"seed": str(number % 7)},
    )
    return RefEntry(
        project_of(number),
        name_of(number),
        f"v{number % TAGS}",
        *(1, digest, False, card, f"user-{number % 50}"),
        at=START + timedelta(seconds=number * 30),
        write_id=f"{number:032x}",
    )


def _manifest(number: int) -> Manifest:
    numel = 8_000_000_000
    nnz = int(numel * random.uniform(0.1, 0.6))
    share = random.uniform(0.6, 0.8)
    ratios = FfnRatios(
        param_share=0.66,
        energy_share=0.7,
        energy_lift=round(0.7 / 0.66, 6),
        density=nnz * share / (numel * 0.66),
        density_lift=share / 0.66,
        mask_share=share,
        mask_lift=share / 0.66,
    )
    group = Group(numel=numel // 36, nnz=nnz // 36)
    side = {"params": numel, "tensors": 399, "dtypes": {"BF16": numel}}
    sides = [
        Side(root=str(Digest.of(f"{name}-{key}".encode())), hub=f"org/{name}@abc", **side)  # type: ignore[arg-type]
        for name, key in ((FAMILIES[number // TAGS % len(FAMILIES)], "source"), ("target", str(number)))
    ]
    tables = Object(key="tensors.json", size=len(_TENSORS), sha256=str(Digest.of(_TENSORS)))
    size = nnz // 64
    mask = Object(key="data.zarr/mask/c/0", size=size, sha256=str(Digest.of(f"mask {number}".encode())))
    return Manifest(
        schema=SCHEMA,
        kind="mask",
        encoder=ENCODER,
        rule="exact",
        exact=False,
        source=sides[0],
        target=sides[1],
        totals=Totals(
            numel=numel,
            nnz=nnz,
            differing=nnz,
            energy=1.5,
            roles={"ffn": group, "attention": group},
            layers={str(layer): group for layer in range(36)},
            ffn=ratios,
        ),
        parts={"mask": Part(codec="zstd", objects=1, size=size)},
        objects=(mask, tables),
    )


def fill(folder: Path, url: str, count: int) -> list[str]:
    """Fill a store in a folder, and its catalog.

    Args:
        folder: the store; empty.
        url: an empty PostgreSQL database.
        count: how many tags, each of an artifact of its own.

    Returns:
        Digests of the artifacts that can be described: the first ones have what belongs to every part.
    """
    upgrade(url)
    digests = []
    store = FileStore(folder)
    with Registry(store, name="bench", catalog_url="") as registry:
        uuid = registry.ensure_uuid()
    for row in rows(count):
        assert row.entry.digest is not None
        digests.append(str(row.entry.digest))
        prefix = artifact_prefix(row.entry.digest)
        files = [(row.entry.key, row.entry.to_bytes()), (prefix + MANIFEST, row.data)]
        if len(digests) <= WHOLE:
            files.append((f"{prefix}tensors.json", _TENSORS))
        for key, data in files:
            path = folder / key
            # Durable writes of a hundred thousand files take an hour.
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    with open_catalog(url) as catalog:
        manifests = ((row.entry.digest, row.manifest) for row in rows(count) if row.entry.digest)
        catalog.rebuild((row.entry for row in rows(count)), manifests, registry=uuid)
    return digests[:WHOLE]
