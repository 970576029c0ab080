from __future__ import annotations

import pytest

from maskreg.checkpoint import ROLES, layer_of, module_of, role_of

# name, role, layer
NAMES = [
    # Llama, Mistral, Qwen2, Qwen3
    ("model.embed_tokens.weight", "embedding", ""),
    ("model.layers.0.self_attn.q_proj.weight", "attention", "0"),
    ("model.layers.3.self_attn.q_norm.weight", "norm", "3"),
    ("model.layers.3.mlp.gate_proj.weight", "ffn", "3"),
    ("model.layers.3.input_layernorm.weight", "norm", "3"),
    ("model.norm.weight", "norm", ""),
    ("lm_head.weight", "lm_head", ""),
    ("model.rotary_emb.inv_freq", "other", ""),
    # Llama in its original layout
    ("tok_embeddings.weight", "embedding", ""),
    ("layers.7.attention.wq.weight", "attention", "7"),
    ("layers.7.feed_forward.w2.weight", "ffn", "7"),
    ("layers.7.attention_norm.weight", "norm", "7"),
    ("output.weight", "lm_head", ""),
    # Gemma 1 to 3
    ("model.layers.5.pre_feedforward_layernorm.weight", "norm", "5"),
    ("language_model.model.layers.5.mlp.down_proj.weight", "ffn", "5"),
    ("vision_tower.vision_model.encoder.layers.26.self_attn.out_proj.bias", "attention", "visual.26"),
    ("vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight", "ffn", "visual.26"),
    ("vision_tower.vision_model.embeddings.patch_embedding.weight", "other", ""),
    ("vision_tower.vision_model.embeddings.position_embedding.weight", "embedding", ""),
    ("multi_modal_projector.mm_input_projection_weight", "other", ""),
    # Phi-2, Phi-3
    ("model.layers.1.self_attn.dense.weight", "attention", "1"),
    ("model.layers.1.mlp.gate_up_proj.weight", "ffn", "1"),
    # GPT-2
    ("wte.weight", "embedding", ""),
    ("transformer.wpe.weight", "embedding", ""),
    ("h.11.attn.c_attn.weight", "attention", "11"),
    ("transformer.h.11.mlp.c_fc.weight", "ffn", "11"),
    ("transformer.ln_f.bias", "norm", ""),
    # GPT-NeoX
    ("gpt_neox.embed_in.weight", "embedding", ""),
    ("gpt_neox.layers.2.attention.query_key_value.weight", "attention", "2"),
    ("gpt_neox.layers.2.attention.rotary_emb.inv_freq", "other", "2"),
    ("gpt_neox.layers.2.mlp.dense_h_to_4h.weight", "ffn", "2"),
    ("embed_out.weight", "lm_head", ""),
    # OPT, T5, Whisper
    ("model.decoder.layers.4.fc1.weight", "ffn", "4"),
    ("model.decoder.embed_positions.weight", "embedding", ""),
    ("encoder.block.6.layer.0.SelfAttention.q.weight", "attention", "encoder.6"),
    ("decoder.block.6.layer.2.DenseReluDense.wo.weight", "ffn", "6"),
    # DeepSeek-V2, V3
    ("model.layers.9.mlp.gate.weight", "router", "9"),
    ("model.layers.9.mlp.gate.e_score_correction_bias", "router", "9"),
    ("model.layers.9.mlp.experts.255.gate_proj.weight", "ffn", "9"),
    ("model.layers.9.self_attn.kv_a_proj_with_mqa.weight", "attention", "9"),
    ("model.layers.9.self_attn.q_a_layernorm.weight", "norm", "9"),
    ("model.layers.61.shared_head.head.weight", "lm_head", "61"),
    ("model.layers.61.embed_tokens.weight", "embedding", "61"),
    ("model.layers.61.eh_proj.weight", "other", "61"),
    # Mixtral, Qwen2-MoE, Qwen3-MoE, gpt-oss
    ("model.layers.8.block_sparse_moe.gate.weight", "router", "8"),
    ("model.layers.8.block_sparse_moe.experts.7.w1.weight", "ffn", "8"),
    ("model.layers.8.mlp.shared_expert_gate.weight", "router", "8"),
    ("model.layers.8.mlp.experts.gate_up_proj", "ffn", "8"),
    ("model.layers.8.mlp.experts.down_proj_blocks", "ffn", "8"),
    ("model.layers.8.mlp.router.weight", "router", "8"),
    ("model.layers.8.self_attn.sinks", "attention", "8"),
    # Qwen3-Next
    ("model.layers.8.linear_attn.in_proj_qkvz.weight", "attention", "8"),
    ("model.layers.8.linear_attn.norm.weight", "norm", "8"),
    ("mtp.layers.0.mlp.gate.weight", "router", "mtp.0"),
    # Qwen2.5-VL, Qwen3-VL, with and without prefixes
    ("visual.patch_embed.proj.weight", "other", ""),
    ("visual.blocks.3.attn.qkv.weight", "attention", "visual.3"),
    ("model.visual.blocks.3.mlp.linear_fc1.weight", "ffn", "visual.3"),
    ("visual.merger.ln_q.weight", "norm", ""),
    ("visual.merger.mlp.0.weight", "other", ""),
    ("model.visual.deepstack_merger_list.1.linear_fc1.weight", "other", ""),
    ("model.language_model.layers.3.self_attn.v_proj.bias", "attention", "3"),
    # other towers
    ("thinker.audio_tower.layers.2.fc1.weight", "ffn", "thinker.audio.2"),
    ("talker.model.layers.2.mlp.up_proj.weight", "ffn", "talker.2"),
    ("vision_model.global_transformer.layers.1.mlp.fc1.weight", "ffn", "visual.global_transformer.1"),
    # wrappers of frameworks
    ("base_model.model.model.layers.4.self_attn.q_proj.base_layer.weight", "attention", "4"),
    ("base_model.model.model.layers.4.mlp.up_proj.lora_A.default.weight", "ffn", "4"),
    ("_fsdp_wrapped_module.model.layers.4._fsdp_wrapped_module.mlp.up_proj.weight", "ffn", "4"),
    ("_orig_mod.model.layers.4.mlp.gate.weight", "router", "4"),
    ("module.model.visual._orig_mod.blocks.2.attn.proj.weight", "attention", "visual.2"),
    # heads of reward models, and names that say nothing
    ("score.weight", "other", ""),
    ("w", "other", ""),
    ("../../etc/passwd", "other", ""),
]


@pytest.mark.parametrize(("name", "role", "layer"), NAMES)
def test_role_and_layer(name: str, role: str, layer: str) -> None:
    assert (role_of(name), layer_of(name)) == (role, layer)


def test_every_role_is_listed() -> None:
    assert {role for _, role, _ in NAMES} == set(ROLES)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("model.layers.3.mlp.down_proj.weight", "mlp.down_proj"),
        ("model.layers.13.self_attn.q_proj.bias", "self_attn.q_proj.bias"),
        ("model.layers.1.mlp.experts.11.up_proj.weight", "mlp.experts.*.up_proj"),
        ("model.layers.1.mlp.experts.1.up_proj.weight", "mlp.experts.*.up_proj"),
        ("visual.blocks.0.attn.qkv.weight", "attn.qkv"),
        ("model.layers.7.weight", "weight"),
        ("model.layers.7", "model.layers.7"),
        ("model.embed_tokens.weight", "model.embed_tokens"),
        ("experts.3.bias", "experts.*.bias"),
    ],
)
def test_what_a_tensor_is_called_within_its_layer(name: str, module: str) -> None:
    assert module_of(name, layer_of(name)) == module
