"""Small real artifacts for the tests of this room, made by the writer from generated tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import to_builtins

from maskreg.artifact.manifest import Object, PartName, Side, part_entry
from maskreg.artifact.writer import ArtifactWriter, BlockRecord
from maskreg.codec import DEFAULT_CODEC, get_codec
from maskreg.digest import Digest, fingerprint_root, leaf_hashes
from maskreg.mask import Counts, pack
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo
from maskreg.tensors.rules import parse_rule

Codes = npt.NDArray[np.uint16]
Pair = dict[str, tuple[Codes, Codes]]

ALL_PARTS: tuple[PartName, ...] = ("mask", "delta", "reverse")


def pair(seed: int = 0, fraction: float = 0.4) -> Pair:
    """A few tensors of odd sizes: 2-D, 1-D, 0-D, empty, stacked."""
    rng = np.random.default_rng(seed)
    tensors: Pair = {}
    for name, shape in {
        "model.layers.0.mlp.up_proj.weight": (33, 65),
        "model.layers.0.self_attn.q_proj.weight": (64, 64),
        "model.layers.1.mlp.experts": (3, 17, 9),
        "model.norm.weight": (7,),
        "scale": (),
        "none": (0, 4),
    }.items():
        source = rng.integers(0, 1 << 16, shape, np.uint16)
        source = np.asarray(source, np.uint16)
        step = np.asarray(rng.random(shape) < fraction, np.uint16)
        tensors[name] = (source, source ^ step)
    return tensors


def agree(manifest: dict[str, Any], objects: Mapping[str, bytes]) -> None:
    """Make a manifest list these objects, and its parts count them."""
    rows = [Object(key=key, size=len(data), sha256=str(Digest.of(data))) for key, data in sorted(objects.items())]
    manifest["objects"] = to_builtins(rows)
    for name, part in manifest["parts"].items():
        manifest["parts"][name] = to_builtins(part_entry(name, tuple(rows), part["codec"]))


def write(
    root: Path, tensors: Pair, *, parts: tuple[PartName, ...] = ALL_PARTS, files: dict[str, bytes] | None = None
) -> Digest:
    """Write an artifact under ``root`` and return its digest."""
    codec, rule = get_codec(DEFAULT_CODEC), parse_rule("exact")
    with ArtifactWriter(root, parts) as writer:
        for name, (source, target) in tensors.items():
            form = TensorInfo(name, "BF16", source.shape)
            role = "ffn" if "mlp" in name else "other"
            layer = name.split(".")[2] if ".layers." in name else ""
            writer.begin(name, role=role, layer=layer, source=form, target=form)
            flat_source, flat_target = source.reshape(-1), target.reshape(-1)
            for start in range(0, source.size, BLOCK_NUMEL):
                one, other = (side[start : start + BLOCK_NUMEL] for side in (flat_source, flat_target))
                moved = rule.moved(one, other)
                writer.add_block(
                    BlockRecord(
                        pack(moved),
                        Counts(one.size, int(moved.sum()), int((one != other).sum()), 1.0),
                        delta=codec.encode(one, other) if "delta" in parts else None,
                        reverse=codec.encode(other, one) if "reverse" in parts else None,
                    )
                )
            writer.add_leaves(leaf_hashes(source), leaf_hashes(target))
            writer.end()
        for name, data in (files or {}).items():
            writer.add_file(name, data)
        sides = [
            Side(
                root=fingerprint_root((t.name, "BF16", tensors[t.name][i].shape, prints[i]) for t, prints in rows),
                params=sum(p[i].size for p in tensors.values()),
                tensors=len(tensors),
                dtypes={"BF16": sum(p[i].size for p in tensors.values())},
            )
            for rows in [[(t, (t.source_fingerprint, t.target_fingerprint)) for t in writer.tensors]]
            for i in (0, 1)
        ]
        return writer.finish(
            kind="delta" if "delta" in parts else "mask",
            rule="exact",
            exact="delta" in parts,
            source=sides[0],
            target=sides[1],
            codec=DEFAULT_CODEC,
        )
