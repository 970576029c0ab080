"""Recipes in YAML, in the layout of mergekit, with its methods or ours.

A recipe::

    merge_method: ties              a method of mergekit; or one of ours that mergekit has not, or maskreg:ties
    base_model: ./Qwen3-8B          needed by methods of mergekit, and where a model is a checkpoint
    models:
      - model: team/sums-opd:v1     an artifact, a path or a hub id
        parameters: {weight: [0, 1], density: 0.3}
      - model: ./out/step-400
    parameters: {weight: 0.5, density: 0.4}

Weights and settings can differ between tensors, and settings between models; see :mod:`maskreg.flow.merge.recipe`. A
key that asks for something else than we can do is refused by name. So a method of mergekit gives the merge that
mergekit 0.1.5 makes, apart from rounding, from random draws, and from what a note says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from maskreg.errors import FormatError
from maskreg.flow.merge.methods import METHODS
from maskreg.flow.merge.recipe import Recipe, Value, parsed, weight_of
from maskreg.tensors.info import shown


class Translated(NamedTuple):
    """What a recipe says.

    The base, which every update starts from, is one of the models where mergekit counts it; ``counted``: the first
    model stands for a base that is missing. Notes say which keys change nothing here, and what is done in another way.
    """

    base: str
    models: tuple[str, ...]
    recipe: Recipe
    notes: tuple[str, ...]
    mask: str | None = None
    counted: bool = False


class _Number(NamedTuple):
    ours: str
    default: float | None = None
    factor: float = 1.0


class _Like(NamedTuple):
    """How a method of mergekit is ours.

    Attributes:
        ours: name of our method.
        numbers: its parameters by name; one without a default is required.
        switches: its parameters that are true or false, the default first, with the settings that a value means. A
            value that is not there cannot be followed.
        base: whether the base is left out of the models, counts as one of them, or is the first of two.
        weighted: whether it takes weights, and then requires them.
        note: what is done in another way.
    """

    ours: str
    numbers: Mapping[str, _Number] = {}
    switches: Mapping[str, Mapping[bool, Mapping[str, str]]] = {}
    base: Literal["left out", "counts", "first"] = "left out"
    weighted: bool = True
    note: str = ""

    @property
    def own(self) -> dict[str, _Number]:
        """The numbers that each model can have for itself."""
        settings = METHODS[self.ours].settings
        return {key: number for key, number in self.numbers.items() if settings[number.ours].each}


_NEVER: Mapping[bool, Mapping[str, str]] = {False: {}}
_ALWAYS: Mapping[bool, Mapping[str, str]] = {True: {}}
_SUM: Mapping[bool, Mapping[str, str]] = {False: {"sign": "sum"}}
_MEAN: Mapping[bool, Mapping[str, str]] = {True: {"sign": "elect"}, False: {"sign": "agree"}}
_AGREE: Mapping[bool, Mapping[str, str]] = {False: {"sign": "agree"}, True: {"sign": "elect"}}
_L1: Mapping[bool, Mapping[str, str]] = {True: {"rescale": "l1"}, False: {"rescale": "none"}}

_LAMBDA = {"lambda": _Number("lambda", 1.0)}
_DENSITY = {"density": _Number("density", 1.0), **_LAMBDA}
_GAMMA = {**_DENSITY, "gamma": _Number("gamma", 0.01)}
# Here the difference between the two ends of a row; in mergekit between an end and the middle.
_EPSILON = {**_DENSITY, "epsilon": _Number("epsilon", 0.15, 2.0)}
_STEPS = {"max_iter": _Number("max_iter", 10), "tol": _Number("tol", 1e-5)}

_DRAWS = "changes are dropped by the draws of seed 0 here, so not the same ones as in mergekit"
_ENERGY = (
    "updates are weighed by their energy, however small it is; mergekit weighs them alike in a tensor where their "
    "mean squares add up to less than 1e-6"
)

LIKE: Mapping[str, _Like] = {
    "linear": _Like("linear", {}, {"normalize": _ALWAYS}, "counts"),
    "task_arithmetic": _Like("task-arithmetic", _LAMBDA, {"normalize": _NEVER}),
    "ties": _Like("ties-per-tensor", _DENSITY, {"normalize": _MEAN, "rescale": _NEVER}),
    "dare_linear": _Like("dare", _DENSITY, {"normalize": _SUM, "rescale": _L1}, note=_DRAWS),
    "dare_ties": _Like("dare", _DENSITY, {"normalize": _AGREE, "rescale": _L1}, note=_DRAWS),
    "breadcrumbs": _Like("breadcrumbs", _GAMMA, {"normalize": _SUM, "rescale": _NEVER}),
    "breadcrumbs_ties": _Like("breadcrumbs", _GAMMA, {"normalize": _AGREE, "rescale": _NEVER}),
    "della": _Like("della", _EPSILON, {"normalize": _MEAN, "rescale": _L1}, note=_DRAWS),
    "della_linear": _Like("della", _EPSILON, {"normalize": _SUM, "rescale": _L1}, note=_DRAWS),
    "model_stock": _Like("model-stock", {}, {"filter_wise": _NEVER}, weighted=False),
    "slerp": _Like("slerp", {"t": _Number("t")}, {}, "first", weighted=False),
    "multislerp": _Like("multislerp", {}, {"normalize_weights": _ALWAYS}),
    "karcher": _Like("karcher", _STEPS, {}, "counts", weighted=False),
    "sce": _Like("sce", {"select_topk": _Number("density", 1.0)}, weighted=False, note=_ENERGY),
    "nearswap": _Like("nearswap", {"t": _Number("t")}, weighted=False),
    "ram": _Like("ram", {"epsilon": _Number("epsilon", 1e-5)}, weighted=False),
}
"""Methods of mergekit by name."""

_PARAMETERS = {key for like in LIKE.values() for key in (*like.numbers, *like.switches)} | {"weight", "int8_mask"}
_KEYS = ("merge_method", "base_model", "models", "parameters", "dtype", "out_dtype", "tokenizer_source")
_INSTEAD = {
    "slices": "list whole models under models, unless layers are stacked or left out",
    "modules": "list whole models under models",
    "tokenizer": "leave it out; the tokenizer is the source's",
    "chat_template": "leave it out, and change the template of the result",
}


def translated(document: object) -> Translated:
    """What a recipe says; in ``document`` scalars are texts."""
    if not isinstance(document, dict) or not isinstance(name := document.get("merge_method"), str):
        raise FormatError("merge_method is missing", hint=f"a recipe has the keys {', '.join(_KEYS[:4])}")
    if unknown := [key for key in document if key not in _KEYS]:
        raise FormatError(f"{unknown[0]} cannot be followed", hint=_INSTEAD.get(unknown[0], "leave it out"))
    ours = name.removeprefix("maskreg:")
    if name not in LIKE and ours in METHODS:
        return _ours(document, ours)
    if name not in LIKE:
        known = ", ".join([*LIKE, *(ours for ours in METHODS if ours not in LIKE)])
        raise FormatError(f"merge_method {shown(name)} cannot be followed", hint=f"choose {known}")
    like, shared = LIKE[name], _mapping(document.get("parameters"), "parameters")
    base, models = _models(document, name, like)
    notes = [*_unchanging(document, base), *_unused(name, like, {"parameters": shared, **models})]
    settings: dict[str, Value] = {}
    for key, values in like.switches.items():
        settings |= _switched(name, key, shared.get(key, str(next(iter(values)))), values)
    for key, number in like.numbers.items():
        default = [] if number.default is None else [str(number.default)]
        settings[number.ours] = _scaled(number, key, _first_of(key, [*_given(shared, key), *default]))
    own = [
        {number.ours: _scaled(number, key, _cases(mine[key])) for key, number in like.own.items() if key in mine}
        for mine in models.values()
    ]
    weights = [
        _first_of(f"the weight of {model}", [*_given(mine, "weight"), *_given(shared, "weight")])
        if like.weighted
        else 1
        for model, mine in models.items()
    ]
    recipe = Recipe.of(like.ours, weights, settings, own)
    recipe.check(len(models), masked=False)
    return Translated(base, tuple(models), recipe, tuple(dict.fromkeys(notes)), counted=like.base == "counts")


def _ours(document: Mapping[str, Any], name: str) -> Translated:
    """A recipe for a method of ours, with its own settings as parameters."""
    shared = dict(_mapping(document.get("parameters"), "parameters"))
    base, models = _models(document, name, _Like(name), needs_base=False)
    mask, weight = shared.pop("mask", None), shared.pop("weight", 1.0)
    if mask is not None and not isinstance(mask, str):
        raise FormatError(f"the mask is {shown(mask)}", hint="it is one reference")
    weights = [_cases(mine.get("weight", weight)) for mine in models.values()]
    own = [{key: _cases(value) for key, value in mine.items() if key != "weight"} for mine in models.values()]
    recipe = Recipe.of(name, weights, {key: _cases(value) for key, value in shared.items()}, own)
    recipe.check(len(models), masked=mask is not None)
    return Translated(base, tuple(models), recipe, tuple(_unchanging(document, base)), mask)


def _models(
    document: Mapping[str, Any], name: str, like: _Like, *, needs_base: bool = True
) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The base, and the parameters of every model that counts, in order."""
    entries, base = document.get("models"), document.get("base_model") or ""
    if not isinstance(entries, list) or not entries:
        raise FormatError("models is missing or no list", hint="list every model as - model: NAME")
    models: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or "model" not in entry or entry.keys() - {"model", "parameters"}:
            raise FormatError(f"a model is {shown(entry)}", hint="a model has the keys model and parameters")
        model = _reference(entry["model"])
        if model in models:
            raise FormatError(f"{model} is listed twice", hint="list it once, with a larger weight")
        models[model] = _mapping(entry.get("parameters"), f"parameters of {model}")
    if base:
        its = models.get(_reference(base), {})
        if like.base == "counts":
            models.setdefault(base, its)
        else:
            models.pop(base, None)
        if like.base == "first":
            models = {base: its, **models}
    elif needs_base and like.base != "counts":
        raise FormatError(f"{name} needs base_model", hint="name the checkpoint that the models were trained from")
    return base, models


def _reference(model: object) -> str:
    if not isinstance(model, str) or not model:
        raise FormatError(f"a model is {shown(model)}", hint="name an artifact, a path or a hub id")
    if "+" in model:
        raise FormatError(
            f"{model} is a model with an adapter",
            hint="name the adapter alone: it is read as the model that it was trained on, with the adapter merged",
        )
    return model


def _unchanging(document: Mapping[str, Any], base: str) -> Iterator[str]:
    for key in ("dtype", "out_dtype"):
        if key in document:
            yield f"{key} has no effect: arithmetic is in fp32, and every tensor keeps the dtype of the source"
    if (tokenizer := document.get("tokenizer_source")) is None:
        return
    if tokenizer not in ("base", base):
        raise FormatError(
            f"tokenizer_source {shown(tokenizer)} cannot be followed",
            hint="leave it out if all models have the tokenizer of the source",
        )
    yield "tokenizer_source has no effect: the tokenizer is the source's"


def _unused(name: str, like: _Like, places: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if like.note:
        yield like.note
    each = {*like.own, *(["weight"] if like.weighted else [])}
    used = [*dict.fromkeys([*sorted(each), *like.numbers, *like.switches])]
    for place, parameters in places.items():
        for key in parameters:
            if key not in _PARAMETERS:
                raise FormatError(f"unknown parameter {key!r} of {place}", hint=f"{name} has {', '.join(used)}")
            if key not in used:
                yield f"{key} has no effect on {name}"
            elif place != "parameters" and key not in each:
                raise FormatError(f"{key} of {place} is one for all models", hint="move it to the outer parameters")


def _switched(name: str, key: str, value: object, values: Mapping[bool, Mapping[str, str]]) -> Mapping[str, str]:
    word = str(value).lower()
    meant = True if word in ("true", "yes", "on", "1") else False if word in ("false", "no", "off", "0") else None
    if meant is None or meant not in values:
        raise FormatError(f"{key}: {shown(value)} of {name} cannot be followed", hint=f"{key}: {next(iter(values))}")
    return values[meant]


def _given(parameters: Mapping[str, Any], key: str) -> list[Any]:
    return [parameters[key]] if key in parameters else []


def _first_of(what: str, values: Sequence[Any]) -> Value:
    """One value, of several of which each holds where no filter of those before it fits."""
    every: list[Any] = []
    for value in map(_cases, values):
        if not isinstance(value, list) or not any(isinstance(case, dict) for case in value):
            return [*every, {"value": value}] if every else value
        every += value
        if any(isinstance(case, dict) and "filter" not in case for case in value):
            return every
    if not every:
        raise FormatError(f"{what} is missing", hint="mergekit has no default for it; give a number")
    raise FormatError(f"{what} is missing where no filter fits", hint="end its list with - value: NUMBER")


def _cases(value: Any) -> Value:
    """A value as ours are written: a case in a list, and no filter where it takes everything."""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return value
    return [
        {key: inner for key, inner in case.items() if key != "filter" or inner not in ("", "*", "null", "~")}
        if isinstance(case, dict)
        else case
        for case in value
    ]


def _scaled(number: _Number, key: str, value: Value) -> Value:
    if number.factor == 1:
        return value
    return parsed(value, lambda each: number.factor * weight_of(each, key), key)


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not value:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"{what} is {shown(value)}", hint="it is a mapping, such as {weight: 0.5}")
    return value
