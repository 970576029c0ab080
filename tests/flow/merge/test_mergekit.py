"""Recipes of mergekit, in our words."""

from __future__ import annotations

from typing import Any

import pytest

from maskreg.errors import FormatError, UsageError
from maskreg.flow.merge.mergekit import LIKE, translated

WEIGHTED = {"weight": "0.5"}
DROPPED = {"density": 0.4, "rescale": "l1", "lambda": 1.0, "seed": 0}
DENSITY = {**WEIGHTED, "density": "0.4"}

SAME: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("linear", WEIGHTED, "linear", {}),
    ("linear", {**WEIGHTED, "normalize": "true", "int8_mask": "true"}, "linear", {}),
    ("task_arithmetic", {**WEIGHTED, "lambda": "0.7"}, "task-arithmetic", {"lambda": 0.7}),
    ("ties", WEIGHTED, "ties-per-tensor", {"density": 1.0, "sign": "elect", "lambda": 1.0}),
    ("ties", {**DENSITY, "normalize": "no"}, "ties-per-tensor", {"density": 0.4, "sign": "agree", "lambda": 1.0}),
    ("dare_linear", DENSITY, "dare", {**DROPPED, "sign": "sum"}),
    ("dare_ties", DENSITY, "dare", {**DROPPED, "sign": "agree"}),
    ("dare_ties", {**DENSITY, "normalize": "True"}, "dare", {**DROPPED, "sign": "elect"}),
    ("dare_ties", {**DENSITY, "rescale": "false"}, "dare", {**DROPPED, "sign": "agree", "rescale": "none"}),
    ("breadcrumbs", DENSITY, "breadcrumbs", {"density": 0.4, "gamma": 0.01, "sign": "sum", "lambda": 1.0}),
    (
        "breadcrumbs_ties",
        {**DENSITY, "gamma": "0.1"},
        "breadcrumbs",
        {"density": 0.4, "gamma": 0.1, "sign": "agree", "lambda": 1.0},
    ),
    ("della", DENSITY, "della", {**DROPPED, "epsilon": 0.3, "sign": "elect"}),
    (
        "della_linear",
        {**DENSITY, "epsilon": ["0.1", "0.2"]},
        "della",
        {**DROPPED, "epsilon": [0.2, 0.4], "sign": "sum"},
    ),
    ("model_stock", {"filter_wise": "false"}, "model-stock", {}),
    (
        "slerp",
        {"t": [{"filter": "mlp", "value": ["0", "1"]}, {"filter": "null", "value": "0.5"}]},
        "slerp",
        {"t": [{"filter": "mlp", "value": [0, 1]}, {"value": 0.5}]},
    ),
    ("multislerp", {**WEIGHTED, "normalize_weights": "true"}, "multislerp", {}),
    ("karcher", {"max_iter": "5"}, "karcher", {"max_iter": 5, "tol": 1e-5}),
    ("sce", {"select_topk": "0.3"}, "sce", {"density": 0.3}),
    ("nearswap", {"t": "1e-4"}, "nearswap", {"t": 1e-4}),
    ("ram", {}, "ram", {"epsilon": 1e-5}),
]


def recipe(method: str, parameters: dict[str, Any], *models: str, **more: Any) -> dict[str, Any]:
    return {
        "merge_method": method,
        "base_model": "base",
        "models": [{"model": model} for model in models],
        "parameters": parameters,
        **more,
    }


def models_of(method: str) -> tuple[str, ...]:
    return ("a",) if method in ("slerp", "nearswap") else ("a", "b")


@pytest.mark.parametrize(("method", "parameters", "ours", "settings"), SAME)
def test_a_method_and_its_parameters_are_ours(
    method: str, parameters: dict[str, Any], ours: str, settings: dict[str, Any]
) -> None:
    found = translated(recipe(method, parameters, *models_of(method)))
    assert (found.recipe.method.name, dict(found.recipe.settings)) == (ours, settings)
    assert found.base == "base"
    counts = {"linear": ("a", "b", "base"), "karcher": ("a", "b", "base"), "slerp": ("base", "a"), "nearswap": ("a",)}
    assert found.models == counts.get(method, ("a", "b"))
    expected = 0.5 if "weight" in parameters else 1.0
    assert set(found.recipe.weights) == {expected}


def test_every_method_has_a_line_above() -> None:
    assert {method for method, *_ in SAME} == set(LIKE)


def test_values_of_one_model_come_before_those_of_all_and_those_before_the_default() -> None:
    parameters = {"weight": "0.3", "density": [{"filter": "mlp", "value": ["0.2", "0.6"]}]}
    own = {"weight": {"filter": "attn", "value": "1"}, "density": [{"filter": "mlp", "value": "0.1"}]}
    given = recipe("ties", parameters, "base", "a")
    given["models"].append({"model": "b", "parameters": own})
    found = translated(given)
    assert found.models == ("a", "b")
    assert found.recipe.weights == (0.3, [{"filter": "attn", "value": 1.0}, {"value": 0.3}])
    assert found.recipe.at("model.layers.1.mlp.up_proj", 1.0).each[0]["density"] == pytest.approx(0.6)
    assert found.recipe.at("model.layers.1.mlp.up_proj", 1.0).each[1]["density"] == pytest.approx(0.1)
    assert [own["density"] for own in found.recipe.at("model.layers.1.self_attn.q_proj", 1.0).each] == [1.0, 1.0]


def test_the_base_of_a_linear_merge_keeps_its_place_and_weight() -> None:
    given = recipe("linear", {"weight": "1"}, "a", "b")
    given["models"].insert(1, {"model": "base", "parameters": {"weight": "2"}})
    found = translated(given)
    assert (found.models, found.recipe.weights) == (("a", "base", "b"), (1.0, 2.0, 1.0))
    del given["base_model"]
    assert (translated(given).base, translated(given).models) == ("", ("a", "base", "b"))


def test_keys_that_change_nothing_are_said() -> None:
    parameters = {**WEIGHTED, "density": "0.5", "int8_mask": "true"}
    keys = {"dtype": "bfloat16", "out_dtype": "bfloat16", "tokenizer_source": "base"}
    notes = translated(recipe("task_arithmetic", parameters, "a", **keys)).notes
    assert {note.split()[0] for note in notes} == {"density", "int8_mask", *keys}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (recipe("nuslerp", WEIGHTED, "a"), "nuslerp"),
    (recipe("passthrough", {}, "a"), "passthrough"),
    (recipe("ties", WEIGHTED, "a", slices=[]), "slices"),
    (recipe("ties", WEIGHTED, "a", modules={}), "modules"),
    (recipe("ties", WEIGHTED, "a", chat_template="auto"), "chat_template"),
    (recipe("ties", WEIGHTED, "a", tokenizer={"source": "base"}), "tokenizer"),
    (recipe("ties", WEIGHTED, "a", tokenizer_source="union"), "tokenizer_source"),
    (recipe("ties", WEIGHTED, "a", name="x"), "name"),
    (recipe("ties", {**WEIGHTED, "densitiy": "1"}, "a"), "densitiy"),
    (recipe("ties", {}, "a"), "weight"),
    (recipe("ties", {"weight": [{"filter": "mlp", "value": "1"}]}, "a"), "weight"),
    (recipe("slerp", {}, "a"), "t is missing"),
    (recipe("ties", {**WEIGHTED, "rescale": "true"}, "a"), "rescale"),
    (recipe("ties", {**WEIGHTED, "normalize": "maybe"}, "a"), "normalize"),
    (recipe("linear", {**WEIGHTED, "normalize": "false"}, "a"), "normalize"),
    (recipe("task_arithmetic", {**WEIGHTED, "normalize": "true"}, "a"), "normalize"),
    (recipe("model_stock", {"filter_wise": "true"}, "a", "b"), "filter_wise"),
    (recipe("multislerp", {**WEIGHTED, "normalize_weights": "false"}, "a"), "normalize_weights"),
    (recipe("ties", WEIGHTED, "a+adapter"), "a+adapter"),
    (recipe("ties", WEIGHTED, "a", "a"), "a is listed twice"),
    (recipe("ties", WEIGHTED, "a", base_model=""), "base_model"),
    (recipe("ties", WEIGHTED, "a", models="a"), "models"),
    (recipe("ties", WEIGHTED, models=[{"model": {"path": "a"}}]), "model"),
    (recipe("ties", WEIGHTED, models=[{"model": "a", "weight": "1"}]), "model"),
    (recipe("ties", WEIGHTED, models=[{"model": "a", "parameters": {"lambda": "1"}}]), "lambda of a"),
    (recipe("ties", WEIGHTED, models=[{"model": "a", "parameters": ["weight"]}]), "parameters of a"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        translated(given)
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        recipe("ties", {"weight": "much"}, "a"),
        recipe("ties", {**WEIGHTED, "density": "2"}, "a"),
        recipe("ties", {**WEIGHTED, "density": []}, "a"),
        recipe("della", {**DENSITY, "epsilon": "0.7"}, "a"),
        recipe("slerp", {"t": "0.5"}, "a", "b"),
        recipe("ties", WEIGHTED, "base"),
    ],
)
def test_values_that_make_no_sense_are_a_usage_error(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        translated(given)
