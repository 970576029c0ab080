"""Which tensors roles and layers select."""

from __future__ import annotations

import pytest

from maskreg.checkpoint.roles import ALL, Part, Selection
from maskreg.errors import UsageError

HIDDEN, HEADS, GROUPS, SIZE = 48, 6, 2, 8


def layer(number: int, *, fused: bool) -> dict[str, tuple[int, ...]]:
    at = f"model.layers.{number}."
    attention: dict[str, tuple[int, ...]] = {
        f"{at}self_attn.q_proj.weight": (HEADS * SIZE, HIDDEN),
        f"{at}self_attn.k_proj.weight": (GROUPS * SIZE, HIDDEN),
        f"{at}self_attn.v_proj.weight": (GROUPS * SIZE, HIDDEN),
    }
    if fused:
        attention = {
            f"{at}self_attn.qkv_proj.weight": ((HEADS + 2 * GROUPS) * SIZE, HIDDEN),
            f"{at}self_attn.qkv_proj.bias": ((HEADS + 2 * GROUPS) * SIZE,),
        }
    return {
        **attention,
        f"{at}self_attn.o_proj.weight": (HIDDEN, HEADS * SIZE),
        f"{at}self_attn.q_norm.weight": (SIZE,),
        f"{at}mlp.gate_up_proj.weight": (20, HIDDEN),
        f"{at}mlp.down_proj.weight": (HIDDEN, 10),
    }


def model(layers: int, *, fused: bool = False) -> dict[str, tuple[int, ...]]:
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (100, HIDDEN), "scale": ()}
    for number in range(layers):
        tensors |= layer(number, fused=fused)
    return tensors


def names(tensors: dict[str, tuple[int, ...]], roles: list[str], layers: str = "") -> list[str]:
    return [part.name for part in Selection.parse(roles, layers).parts(tensors)]


def test_nothing_named_is_everything() -> None:
    tensors = model(2)
    assert [part.tensor for part in ALL.parts(tensors)] == list(tensors)
    assert not ALL
    assert not Selection.parse()


def test_the_four_attention_matrices_of_36_layers_are_144() -> None:
    parts = Selection.parse(["qkvo"]).parts(model(36))
    assert len(parts) == 144
    assert {part.name.split(".")[-2] for part in parts} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert Selection.parse(["qkvo"]).to_json() == {"roles": ["q_proj", "k_proj", "v_proj", "o_proj"], "layers": ""}


def test_a_fused_matrix_is_split_by_the_sizes_of_grouped_queries() -> None:
    tensors = model(1, fused=True)
    weight = "model.layers.0.self_attn.qkv_proj.weight"
    parts = [part for part in Selection.parse(["qkvo"]).parts(tensors) if part.tensor == weight]
    assert parts == [
        Part(weight.replace("qkv_proj", "q_proj"), weight, 0, 48),
        Part(weight.replace("qkv_proj", "k_proj"), weight, 48, 64),
        Part(weight.replace("qkv_proj", "v_proj"), weight, 64, 80),
    ]
    assert (
        len([part for part in Selection.parse(["qkvo"]).parts(model(36, fused=True)) if "weight" in part.name]) == 144
    )
    bias = [part for part in Selection.parse(["v_proj"]).parts(tensors) if part.tensor.endswith("bias")]
    assert bias == [Part("model.layers.0.self_attn.v_proj.bias", weight.replace("weight", "bias"), 64, 80)]
    up = Selection.parse(["up_proj"]).parts(tensors)
    assert [(part.name.split(".")[-2], part.start, part.stop) for part in up] == [("up_proj", 10, 20)]


def test_a_fused_matrix_stays_whole_where_its_role_is_named() -> None:
    tensors = model(1, fused=True)
    chosen = Selection.parse(["attention"]).parts(tensors)
    assert [part for part in chosen if part.name != part.tensor] == []
    assert [part.tensor for part in chosen] == [name for name in tensors if "_proj" in name and "attn" in name]


def test_layers_by_number_range_and_tower() -> None:
    tensors = {**model(12), "visual.blocks.3.attn.qkv.weight": (30, 10)}
    assert names(tensors, ["down_proj"], "0-2,11") == [f"model.layers.{n}.mlp.down_proj.weight" for n in (0, 1, 2, 11)]
    assert names(tensors, [], "visual.0-3") == ["visual.blocks.3.attn.qkv.weight"]
    assert "visual" not in " ".join(names(tensors, ["attention"], "0-11"))
    assert "embed" not in " ".join(names(tensors, [], "0-11"))
    assert str(Selection.parse(["q_proj", "ffn"], "0-2,11,visual.3")) == "q_proj,ffn in layers 0-2,11,visual.3"


@pytest.mark.parametrize(
    ("roles", "layers", "message", "hint"),
    [
        (["q_prj"], "", "no tensor has the role or name 'q_prj'", "q_proj"),
        (["lm_head"], "", "no tensor has the role or name 'lm_head'", "the roles here are ffn"),
        (
            ["qkvo"],
            "visual.0",
            "no tensor of layer visual.0 has the role or name 'q_proj', one of qkvo",
            "other layers",
        ),
        (["ffn", "embedding"], "0", "no tensor of layer 0 has the role or name 'embedding'", "embedding"),
        ([], "12-14", "nothing that was selected is in layers 12-14", "from 0 to 1"),
        ([], "3-1", "end before they begin", "1-3"),
        ([], "1:3", "'1:3' is no range of layers", "0-11"),
        (["q proj"], "", "'q proj' is no role", "q_proj"),
        ([""], "", "'' is no role", "q_proj"),
    ],
)
def test_what_selects_nothing_is_refused(roles: list[str], layers: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")) as error:
        Selection.parse(roles, layers).parts(model(2))
    assert hint in error.value.hint


@pytest.mark.parametrize(
    "shapes",
    [
        {"x.layers.0.qkv_proj.weight": (80, 48)},
        {"x.layers.0.qkv_proj.weight": (80, 48), "x.layers.0.o_proj.weight": (48, 80)},
        {"x.layers.0.qkv_proj.weight": (81, 48), "x.layers.0.o_proj.weight": (48, 48)},
        {"x.layers.0.qkv_proj.weight": (48 + 2 * 10, 48), "x.layers.0.o_proj.weight": (48, 48)},
        {"x.layers.0.gate_up_proj.weight": (81, 48)},
    ],
)
def test_what_cannot_be_split_is_not(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(UsageError) as error:
        Selection.parse(["q_proj" if "qkv" in str(shapes) else "up_proj"]).parts(shapes)
    assert "qkv_proj" in error.value.hint or "gate_up_proj" in error.value.hint
