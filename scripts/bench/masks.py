"""A generated source of bf16 noise, and masks of it that hold each coordinate by chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.bench.pairs import to_bf16

BLOCK = 1 << 22
"""Coordinates generated at a time: a block of an artifact."""

HIDDEN, INNER, EMBEDDED = 4096, 14336, 1024
"""Widths of the model, of its FFN, and of its embedding."""

WEIGHT_STD = 0.02

SOURCE, REGISTRY = "source", "registry"
"""Names in the folder: of the checkpoint, and of the registry that has the masks."""


def shapes(coordinates: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Matrices of a model: a fifth of it an embedding of many rows, then layers of wide and of high ones.

    Together they have as many coordinates as asked for, but for less than a row of the embedding.
    """
    yield "model.embed_tokens.weight", (max(coordinates // 5 // EMBEDDED, 2), EMBEDDED)
    left, layer = coordinates - max(coordinates // 5 // EMBEDDED, 2) * EMBEDDED, 0
    while left >= HIDDEN:
        for name, (height, width) in (
            ("self_attn.q_proj", (HIDDEN, HIDDEN)),
            ("mlp.up_proj", (INNER, HIDDEN)),
            ("mlp.down_proj", (HIDDEN, INNER)),
        ):
            rows = min(height, left // width)
            if rows:
                yield f"model.layers.{layer}.{name}.weight", (rows, width)
            left -= rows * width
        layer += 1


def generate(folder: Path, coordinates: int, densities: Sequence[float]) -> list[str]:
    """Write a source and masks of it into ``folder``, and return the digests of the masks."""
    import numpy as np

    from maskreg.artifact.manifest import Side
    from maskreg.artifact.writer import ArtifactWriter, BlockRecord, Provenance
    from maskreg.checkpoint.roles import layer_of, role_of
    from maskreg.digest import fingerprint, fingerprint_root
    from maskreg.mask import pack
    from maskreg.tensors.info import TensorInfo

    infos = [TensorInfo(name, "BF16", shape) for name, shape in shapes(coordinates)]
    leaves = _write_source(folder / SOURCE, infos)
    side = Side(
        root=fingerprint_root((info.name, info.dtype, info.shape, fingerprint(leaves[info.name])) for info in infos),
        params=sum(info.numel for info in infos),
        tensors=len(infos),
        dtypes={"BF16": sum(info.numel for info in infos)},
    )
    digests = []
    for seed, density in enumerate(densities):
        rng = np.random.default_rng(seed)
        with ArtifactWriter(folder / REGISTRY, {"mask"}) as writer:
            for info in infos:
                role, layer = role_of(info.name), layer_of(info.name)
                writer.begin(info.name, role=role, layer=layer, source=info, target=info)
                for start in range(0, info.numel, BLOCK):
                    n = min(BLOCK, info.numel - start)
                    moved = rng.random(n, np.float32) < density
                    nnz = int(np.count_nonzero(moved))
                    writer.add_block(BlockRecord(pack(moved), numel=n, nnz=nnz, differing=nnz))
                writer.add_leaves(leaves[info.name], leaves[info.name])
                writer.end()
            digests.append(writer.finish(Provenance(kind="mask", rule="exact", exact=False, source=side, target=side)))
    return [str(digest) for digest in digests]


def _write_source(folder: Path, infos: Sequence[Any]) -> dict[str, Any]:
    import numpy as np

    from maskreg.digest import leaf_hashes

    folder.mkdir()
    rng = np.random.default_rng(9)
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for info in infos:
        ends = [offset, offset := offset + 2 * info.numel]
        entries[info.name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": ends}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    leaves = {}
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for info in infos:
            parts = []
            for start in range(0, info.numel, BLOCK):
                n = min(BLOCK, info.numel - start)
                codes = to_bf16(np.float32(WEIGHT_STD) * rng.standard_normal(n, np.float32))
                parts.append(leaf_hashes(codes))
                file.write(codes.data)
            leaves[info.name] = np.concatenate(parts)
    return leaves
