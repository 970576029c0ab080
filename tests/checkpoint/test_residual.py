"""Which axis of a matrix has the channels of the residual stream, and which the neurons of its FFN."""

from __future__ import annotations

import pytest

from maskreg.checkpoint.roles import Channels, Neurons, Stream, channels_of, shared_of, stream_of

LAYER = "model.layers.0."


def test_the_stream_is_as_wide_as_the_embedding_of_tokens() -> None:
    tables = [("wpe.weight", "", "embedding", (512, 64)), ("wte.weight", "", "embedding", (2048, 256))]
    assert stream_of([*tables, ("ln_f.weight", "", "norm", (16,))]) == Stream(256)
    assert stream_of([]) == stream_of([("x.weight", "", "embedding", (256,))]) == Stream(0)


@pytest.mark.parametrize(("transposed", "axis"), [(True, "columns"), (False, "rows")])
def test_a_square_c_proj_writes_as_the_matrices_beside_it_say(transposed: bool, axis: str) -> None:
    """GPT-2 stores [in, out]; Qwen and StarCoder have the same names, and store [out, in]."""
    square = ("transformer.h.0.attn.c_proj.weight", "0", "attention", (256, 256))
    beside = ("transformer.h.0.attn.c_attn.weight", "0", "attention", (256, 768) if transposed else (768, 256))
    positions = ("transformer.wpe.weight", "", "embedding", (256, 256))
    stream = stream_of([("transformer.wte.weight", "", "embedding", (512, 256)), positions, beside, square])
    assert stream == Stream(256, transposed)
    found = [shared_of(*tensor, stream).channels for tensor in (square, beside, positions)]
    assert [channels and channels.axis for channels in found] == [axis, "rows" if transposed else "columns", "columns"]


@pytest.mark.parametrize(
    ("name", "layer", "shape", "axis"),
    [
        ("model.embed_tokens.weight", "", (2048, 256), "columns"),
        (f"{LAYER}mlp.up_proj.weight", "0", (768, 256), "columns"),
        (f"{LAYER}mlp.down_proj.weight", "0", (256, 768), "rows"),
        (f"{LAYER}self_attn.q_proj.weight", "0", (256, 256), "columns"),
        (f"{LAYER}self_attn.o_proj.weight", "0", (256, 256), "rows"),
        ("transformer.h.0.mlp.c_fc.weight", "0", (256, 1024), "rows"),  # stored transposed
        (f"{LAYER}mlp.experts.gate_up_proj", "0", (4, 256, 512), "rows"),
        (f"{LAYER}mlp.experts.down_proj", "0", (4, 768, 256), "columns"),
        (f"{LAYER}self_attn.kv_a_proj.weight", "0", (100, 90), None),
        (f"{LAYER}input_layernorm.weight", "0", (256,), None),
        ("visual.blocks.0.attn.proj.weight", "visual.0", (256, 256), None),
    ],
)
def test_matrices_read_the_stream_or_write_into_it(
    name: str, layer: str, shape: tuple[int, ...], axis: str | None
) -> None:
    found = channels_of(name, layer, shape, Stream(256))
    assert (found.axis if found else None) == axis
    assert channels_of(name, layer, shape, Stream(0)) is None
    assert found is None or found == Channels(found.axis, 256)


@pytest.mark.parametrize(
    ("name", "role", "shape", "neurons"),
    [
        (f"{LAYER}mlp.up_proj.weight", "ffn", (768, 256), Neurons(f"{LAYER}mlp", "rows", 768)),
        (f"{LAYER}mlp.down_proj.weight", "ffn", (256, 768), Neurons(f"{LAYER}mlp", "columns", 768)),
        (f"{LAYER}mlp.experts.3.w1.weight", "ffn", (64, 256), Neurons(f"{LAYER}mlp.experts.3", "rows", 64)),
        ("h.0.mlp.c_fc.weight", "ffn", (256, 1024), Neurons("h.0.mlp", "columns", 1024)),  # stored transposed
        (f"{LAYER}mlp.experts.down_proj", "ffn", (4, 768, 256), None),
        (f"{LAYER}self_attn.q_proj.weight", "attention", (512, 256), None),
        (f"{LAYER}mlp.up_proj.bias", "ffn", (768,), None),
        (f"{LAYER}mlp.adapter.weight", "ffn", (768, 16), None),
    ],
)
def test_matrices_of_an_ffn_share_its_neurons(
    name: str, role: str, shape: tuple[int, ...], neurons: Neurons | None
) -> None:
    shared = shared_of(name, "0", role, shape, Stream(256))
    assert shared.neurons == neurons
    assert shared.channels == channels_of(name, "0", shape, Stream(256))
