"""A registry of many synthetic artifacts, and the same names in MLflow's tables.

What is synthetic: figures are drawn at random, most artifacts lack their objects, and the rows are written in bulk.
What is real: every manifest is canonical and every digest is that of its manifest; every tag has an entry in the ref
log of the store; the rows, their seals and their indexes are made by the catalog's own code. The first artifacts are
whole: each has the tensor table of a model of 8 billion parameters, from which its figures follow, and all objects of
its mask, which are holes in files of the right size.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from maskreg.artifact.layout import MANIFEST, TENSORS, artifact_prefix
from maskreg.artifact.manifest import ENCODER, SCHEMA, Manifest, Object, Part, Side, Totals, dump_manifest
from maskreg.artifact.tensors import Tensor, dump_tensors
from maskreg.artifact.totals import totals_of
from maskreg.catalog import open_catalog
from maskreg.catalog.sql import upgrade
from maskreg.digest import LEAF_NUMEL, Digest
from maskreg.mask import packed_bytes
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
WHOLE = 200
"""How many artifacts have all of their objects; the store has only the manifests of the others."""

SHOWN = 50
"""Of these, those that clients ask for."""

_TABLES = 200
_LAYERS = 36
_SHARD_BYTES = 16 << 20
_SHAPES = {
    "self_attn.q_proj": ("attention", (4096, 4096)),
    "self_attn.k_proj": ("attention", (1024, 4096)),
    "self_attn.v_proj": ("attention", (1024, 4096)),
    "self_attn.o_proj": ("attention", (4096, 4096)),
    "self_attn.q_norm": ("norm", (128,)),
    "self_attn.k_norm": ("norm", (128,)),
    "mlp.gate_proj": ("ffn", (12288, 4096)),
    "mlp.up_proj": ("ffn", (12288, 4096)),
    "mlp.down_proj": ("ffn", (4096, 12288)),
    "input_layernorm": ("norm", (4096,)),
    "post_attention_layernorm": ("norm", (4096,)),
}
_OTHERS = {
    "model.embed_tokens": ("embedding", (151936, 4096)),
    "lm_head": ("lm_head", (151936, 4096)),
    "model.norm": ("norm", (4096,)),
}
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
    for number, card in enumerate(cards(count, seed)):
        manifest = _manifest(number)
        data = dump_manifest(manifest)
        yield Row(_entry(number, card, Digest.of(data)), manifest, data)


def cards(count: int, seed: int = 0) -> Iterator[Card]:
    """The cards of these tags alone."""
    random.seed(seed)
    for number in range(count):
        yield Card(
            family=FAMILIES[number // TAGS % len(FAMILIES)],
            method=random.choice(METHODS),
            license=random.choice(LICENSES),
            description=f"{' '.join(random.choices(WORDS, k=6))} for experiment {number:06d}",
            meta={"seed": str(number % 7)},
        )


def project_of(number: int) -> str:
    """The project of a tag, by its number; the ten tags of a name are in one."""
    return f"team-{number // TAGS % PROJECTS:02d}"


def name_of(number: int) -> str:
    """The name of a tag, by its number."""
    return f"{FAMILIES[number // TAGS % len(FAMILIES)]}-run-{number // TAGS:05d}"


def _entry(number: int, card: Card, digest: Digest) -> RefEntry:
    return RefEntry(
        project_of(number),
        name_of(number),
        f"v{number % TAGS}",
        *(1, digest, False, card, f"user-{number % 50}"),
        at=START + timedelta(seconds=number * 30),
        write_id=f"{number:032x}",
    )


@lru_cache(_TABLES)
def _table(number: int) -> tuple[bytes, Totals]:
    """The tensor table of a model of 8 billion parameters, and the figures that follow from it."""
    draw = random.Random(number)
    density = draw.uniform(0.1, 0.6)
    rows: list[Tensor] = []
    layers = ((layer, name, row) for layer in range(_LAYERS) for name, row in _SHAPES.items())
    tensors = [(f"model.layers.{layer}.{name}", str(layer), *row) for layer, name, row in layers]
    tensors += [(name, "", *row) for name, row in _OTHERS.items()]
    bit = leaf = 0
    for name, layer, role, shape in tensors:
        numel = math.prod(shape)
        nnz = int(numel * min(1.0, density * draw.uniform(0.8, 1.2)))
        leaves = -(-numel // LEAF_NUMEL)
        fingerprint = f"{draw.getrandbits(128):032x}"
        rows.append(
            Tensor(
                name=f"{name}.weight",
                role=role,
                layer=layer,
                numel=numel,
                nnz=nnz,
                differing=nnz,
                energy=float(f"{draw.uniform(0.1, 1):.5e}"),
                bit_offset=bit,
                first_leaf=leaf,
                leaves=leaves,
                source_shape=shape,
                target_shape=shape,
                source_dtype="BF16",
                target_dtype="BF16",
                source_fingerprint=fingerprint,
                target_fingerprint=fingerprint[::-1],
            )
        )
        bit += 8 * packed_bytes(numel)
        leaf += leaves
    return dump_tensors(rows), totals_of(rows)


def _manifest(number: int) -> Manifest:
    data, totals = _table(number % _TABLES)
    tensors = _LAYERS * len(_SHAPES) + len(_OTHERS)
    side = {"params": totals.numel, "tensors": tensors, "dtypes": {"BF16": totals.numel}}
    sides = [
        Side(root=str(Digest.of(f"{name}-{key}".encode())), hub=f"org/{name}@abc", **side)  # type: ignore[arg-type]
        for name, key in ((FAMILIES[number // TAGS % len(FAMILIES)], "source"), ("target", str(number)))
    ]
    tables = Object(key=TENSORS, size=len(data), sha256=str(Digest.of(data)))
    # Of most artifacts one object stands for all of them: nobody asks for it.
    count = -(-totals.numel // 8 // _SHARD_BYTES) if number < WHOLE else 1
    sha256 = str(Digest.of(f"mask {number}".encode()))
    keys = sorted(f"data.zarr/mask/c/{shard}" for shard in range(count))
    mask = [Object(key=key, size=_SHARD_BYTES, sha256=sha256) for key in keys]
    return Manifest(
        schema=SCHEMA,
        kind="mask",
        encoder=ENCODER,
        rule="exact",
        exact=False,
        source=sides[0],
        target=sides[1],
        totals=totals,
        parts={"mask": Part(codec="zstd", objects=count, size=count * _SHARD_BYTES)},
        objects=(*mask, tables),
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
    digests: list[Digest] = []
    store = FileStore(folder)
    with Registry(store, name="bench", catalog_url="") as registry:
        uuid = registry.ensure_uuid()
    for row in rows(count):
        assert row.entry.digest is not None
        digests.append(row.entry.digest)
        prefix = artifact_prefix(row.entry.digest)
        # Durable writes of a hundred thousand files take an hour.
        for key, data in ((row.entry.key, row.entry.to_bytes()), (prefix + MANIFEST, row.data)):
            _made(folder / key).write_bytes(data)
        if len(digests) <= WHOLE:
            _write_objects(folder / prefix, row.manifest, _table(len(digests) - 1)[0])
    with open_catalog(url) as catalog:
        entries = (_entry(number, card, digests[number]) for number, card in enumerate(cards(count)))
        catalog.rebuild(entries, ((digests[n], _manifest(n)) for n in range(count)), registry=uuid)
    return [str(digest) for digest in digests[:WHOLE]]


def _write_objects(folder: Path, manifest: Manifest, table: bytes) -> None:
    for entry in manifest.objects:
        path = _made(folder / entry.key)
        path.write_bytes(table if entry.key == TENSORS else b"")
        os.truncate(path, entry.size)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
