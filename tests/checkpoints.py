"""Small safetensors checkpoints for tests, written without maskreg, torch or the safetensors library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]
"""A tensor's stored bits as unsigned integers of the element's width, in its shape."""

Tensor = tuple[str, Bits]
"""A safetensors dtype code, and the bits."""

SMALL_FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}\n',
    "tokenizer.json": b'{"version": "1.0"}\n',
}


def bf16(shape: Sequence[int], seed: int = 0, scale: float = 0.02) -> Tensor:
    """Normal values of standard deviation ``scale``, cut to bf16."""
    values = np.random.default_rng(seed).normal(0, scale, tuple(shape)).astype(np.float32)
    return "BF16", (values.view(np.uint32) >> 16).astype(np.uint16).reshape(tuple(shape))


def f16(shape: Sequence[int], seed: int = 0, scale: float = 0.02) -> Tensor:
    """Normal values of standard deviation ``scale`` in fp16."""
    values = np.random.default_rng(seed).normal(0, scale, tuple(shape)).astype(np.float16)
    return "F16", values.view(np.uint16).reshape(tuple(shape))


def f32(shape: Sequence[int], seed: int = 0, scale: float = 0.02) -> Tensor:
    """Normal values of standard deviation ``scale`` in fp32."""
    values = np.random.default_rng(seed).normal(0, scale, tuple(shape)).astype(np.float32)
    return "F32", values.view(np.uint32).reshape(tuple(shape))


def widened(tensor: Tensor) -> Tensor:
    """The fp32 form of a bf16 tensor, with noise in the bits that bf16 drops: what fp32 masters look like."""
    dtype, bits = tensor
    assert dtype == "BF16"
    noise = np.random.default_rng(bits.size).integers(0, 1 << 15, bits.shape, np.uint32)
    return "F32", (bits.astype(np.uint32) << 16) + noise


def moved(tensor: Tensor, fraction: float = 0.1, seed: int = 0) -> Tensor:
    """A copy in which about ``fraction`` of the coordinates are one or two ULP steps away."""
    dtype, bits = tensor
    rng = np.random.default_rng(seed)
    ulp_steps = rng.integers(1, 3, bits.shape).astype(bits.dtype)
    chosen = rng.random(bits.shape) < fraction
    return dtype, np.where(chosen, bits + ulp_steps, bits).astype(bits.dtype).reshape(bits.shape)


def flip(path: Path, at: int | None = None) -> None:
    """Flip a bit of a file, of the byte at a place or in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def header_bytes(entries: Mapping[str, Any]) -> bytes:
    """A header of any content, good or bad, with its length in front."""
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Path:
    """One safetensors file, wider elements first as the format's own library has them."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    ordered = sorted(tensors.items(), key=lambda item: -item[1][1].dtype.itemsize)
    offset = 0
    for name, (dtype, bits) in ordered:
        offsets = [offset, offset + bits.nbytes]
        entries[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": offsets}
        offset += bits.nbytes
    with path.open("wb") as file:
        file.write(header_bytes(entries))
        for _, (_, bits) in ordered:
            file.write(bits.tobytes())
    return path


def make_checkpoint(
    directory: Path,
    tensors: Mapping[str, Tensor],
    *,
    shards: int = 1,
    metadata: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] = SMALL_FILES,
) -> Path:
    """A checkpoint directory.

    Args:
        directory: is created and returned.
        tensors: by name; in order; every shard gets about as many.
        shards: 1 makes ``model.safetensors``, more make an index too.
        metadata: of every header; ``{"format": "pt"}`` when None.
        files: small files beside the weights.
    """
    directory.mkdir(parents=True, exist_ok=True)
    metadata = {"format": "pt"} if metadata is None else metadata
    for name, data in files.items():
        (directory / name).write_bytes(data)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, metadata)
        return directory
    weight_map: dict[str, str] = {}
    for number, names in enumerate(np.array_split(np.array(list(tensors), object), shards), start=1):
        file_name = f"model-{number:05}-of-{shards:05}.safetensors"
        write_safetensors(directory / file_name, {name: tensors[name] for name in names}, metadata)
        weight_map |= {str(name): file_name for name in names}
    total = sum(bits.nbytes for _, bits in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (directory / "model.safetensors.index.json").write_text(text)
    return directory


def llama_tensors(seed: int = 0, words: int = 5000) -> dict[str, Tensor]:
    """A small Llama-like model: two layers, norms, stacked experts, a 0-D and an empty tensor.

    Args:
        seed: of the weights.
        words: rows of the embedding; with 5000 it is larger than one leaf (2^18 elements).
    """
    width, inner = 64, 128
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (words, width)}
    for layer in ("model.layers.0.", "model.layers.1."):
        shapes |= {
            f"{layer}input_layernorm.weight": (width,),
            f"{layer}self_attn.q_proj.weight": (width, width),
            f"{layer}self_attn.k_proj.weight": (width // 2, width),
            f"{layer}self_attn.v_proj.weight": (width // 2, width),
            f"{layer}self_attn.o_proj.weight": (width, width),
            f"{layer}post_attention_layernorm.weight": (width,),
        }
    shapes |= {
        "model.layers.0.mlp.gate_proj.weight": (inner, width),
        "model.layers.0.mlp.up_proj.weight": (inner, width),
        "model.layers.0.mlp.down_proj.weight": (width, inner),
        "model.layers.1.mlp.gate.weight": (4, width),
        "model.layers.1.mlp.experts.gate_up_proj": (4, width, 2 * inner),
        "model.layers.1.mlp.experts.down_proj": (4, inner, width),
        "model.norm.weight": (width,),
        "lm_head.weight": (words, width),
        "model.scale": (),
        "model.unused": (0, width),
    }
    return {name: bf16(shape, seed=seed * 1000 + index) for index, (name, shape) in enumerate(shapes.items())}


def with_specials(tensors: Mapping[str, Tensor], bits: Sequence[int]) -> dict[str, Tensor]:
    """A copy whose first up_proj begins with these bits: signed zeros, infinities, NaNs with a payload."""
    name = "model.layers.0.mlp.up_proj.weight"
    dtype, values = tensors[name]
    values = values.copy()
    values.reshape(-1)[: len(bits)] = bits
    return {**tensors, name: (dtype, values)}


def make_pair(
    directory: Path, seed: int = 0, shards: int = 1, *, fraction: float = 0.2, specials: bool = False, words: int = 5000
) -> tuple[Path, Path]:
    """A small Llama-like source and a target.

    Norms do not move, about ``fraction`` of every other tensor does, and ``config.json`` differs.

    Args:
        directory: gets ``source`` and ``target``.
        seed: of the weights.
        shards: weight files of each.
        fraction: moved coordinates / coordinates.
        specials: put -0.0, +0.0, infinities and NaNs on both sides.
        words: rows of the embedding, which is most of the model.

    Returns:
        The two checkpoint directories.
    """
    source = llama_tensors(seed, words)
    target = {
        name: tensor if "norm" in name else moved(tensor, fraction, seed=seed * 1000 + index)
        for index, (name, tensor) in enumerate(source.items())
    }
    if specials:
        source = with_specials(source, [0x0000, 0x8000, 0x7F80, 0x7FC1, 0x3F80, 0x0000])
        target = with_specials(target, [0x8000, 0x0000, 0x7FC5, 0x3F80, 0xFF80, 0x0000])
    changed = {**SMALL_FILES, "config.json": b'{"architectures": ["LlamaForCausalLM"], "tuned": true}\n'}
    return (
        make_checkpoint(directory / "source", source, shards=shards),
        make_checkpoint(directory / "target", target, shards=shards, files=changed),
    )
