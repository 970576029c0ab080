"""Merging as the papers write it: whole models in fp32, with nothing of maskreg's but its random words and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.digest import short_key
from maskreg.flow.merge.methods import METHODS
from maskreg.mask.philox import WORDS, words_of

Floats = npt.NDArray[np.float32]
Model = Mapping[str, Floats]
Updates = Sequence[Floats]
Weights = Sequence[float]
Settings = Mapping[str, Any]
F32 = np.float32


def rounded(values: Floats) -> npt.NDArray[np.uint16]:
    """bf16 codes of finite numbers: the upper half, one more where the lower half is above a half or a tie at odd."""
    bits = values.view(np.uint32).astype(np.uint64)
    low, high = bits & 0xFFFF, bits >> 16
    codes: npt.NDArray[np.uint16] = (high + ((low > 0x8000) | ((low == 0x8000) & (high & 1 == 1)))).astype(np.uint16)
    return codes


def added(parts: Iterable[Floats]) -> Floats:
    return sum(parts, F32(0)) + np.zeros(1, F32)


def merged(
    method: str,
    source: Model,
    targets: Sequence[Model],
    digests: Sequence[str],
    weights: Sequence[float] | None = None,
    **given: Any,
) -> dict[str, npt.NDArray[Any]]:
    """The merged model in fp32."""
    s = {key: setting.default for key, setting in METHODS[method].settings.items()} | given
    w = [1.0] * len(targets) if weights is None else weights
    updates = [{name: target[name] - source[name] for name in source} for target in targets]
    if method in WHOLE:
        changes = WHOLE[method](updates, w, s)
        return {name: source[name] + changes[name] for name in source}
    result = {}
    for name, values in source.items():
        own = [update[name] for update in updates]
        if method in DRAWN:
            words = [drawn(method, name, digest, values.size, s["seed"]).reshape(values.shape) for digest in digests]
            kept = [DRAWN[method](u, word, s) for u, word in zip(own, words, strict=False)]
            kept = resized(own, kept) if s["rescale"] == "l1" else kept
            result[name] = values + combined(kept, w, s)
        else:
            result[name] = values + PLAIN[method](own, w, s)
    return result


def drawn(method: str, name: str, digest: str, numel: int, seed: int) -> npt.NDArray[np.uint32]:
    return words_of(short_key(f"{seed} {method} {digest}"), short_key(name), 0, numel)


def linear(updates: Updates, weights: Weights, s: Settings) -> Floats:
    return summed(updates, weights) / F32(sum(weights))


def summed(updates: Updates, weights: Weights) -> Floats:
    return added(u * F32(w) for u, w in zip(updates, weights, strict=True))


def combined(updates: Updates, weights: Weights, s: Settings) -> Floats:
    """Add up, or elect signs and average or add up what agrees; times lambda."""
    if s.get("sign") == "sum":
        return summed(updates, weights) * F32(s["lambda"])
    return elect(updates, weights, mean=s.get("sign") != "agree") * F32(s["lambda"])


def elect(updates: Updates, weights: Weights, tie: float = 1.0, *, mean: bool = True) -> Floats:
    """Elect the sign of the weighted sum, then average or add up the updates that have it."""
    parts = [u * F32(w) for u, w in zip(updates, weights, strict=True)]
    sign = np.sign(added(parts))
    sign = np.where(sign == 0, F32(1 if tie > 0 else -1), sign)
    agree = [np.sign(part) == sign for part in parts]
    over = added(np.where(a, p, F32(0)) for a, p in zip(agree, parts, strict=True))
    under = added(a * F32(w) for a, w in zip(agree, weights, strict=True))
    return np.where(under == 0, F32(0), over / np.where((under == 0) | (not mean), F32(1), under)).astype(F32)


def ties(updates: Sequence[Model], weights: Weights, s: Settings) -> dict[str, Floats]:
    """Trim below the size that ranks (d - int(d k))-th of the flattened model, from the smallest."""
    trimmed, names = [], list(updates[0])
    for update in updates:
        flat = np.concatenate([np.abs(update[name]).reshape(-1) for name in names])
        place = flat.size - int(flat.size * s["density"])
        border = np.partition(flat, place - 1)[place - 1] if place else F32(0)
        trimmed.append({n: np.where(np.abs(u) >= border, u, F32(0)) for n, u in update.items()})
    majority = sum(float(np.sign(summed([t[n] for t in trimmed], weights)).sum(dtype=np.float64)) for n in names)
    return {n: elect([t[n] for t in trimmed], weights, tie=majority) * F32(s["lambda"]) for n in names}


def order(update: Floats) -> npt.NDArray[np.int64]:
    """Coordinates by size, largest first, and of equal ones the first first."""
    return np.argsort(-np.abs(update).reshape(-1), kind="stable")


def only(update: Floats, places: npt.NDArray[np.int64]) -> Floats:
    kept = np.zeros(update.size, F32)
    kept[places] = update.reshape(-1)[places]
    return kept.reshape(update.shape)


def breadcrumbs(updates: Updates, weights: Weights, s: Settings) -> Floats:
    kept = []
    for update in updates:
        number = int(s["density"] * update.size)
        top = min(int(s["gamma"] * update.size), update.size - number)
        kept.append(only(update, order(update)[top : top + number]))
    return combined(kept, weights, s)


def dare(update: Floats, words: Any, s: Settings) -> Floats:
    kept = np.where(words >= round((1 - s["density"]) * WORDS), update, F32(0))
    return (kept / F32(s["density"] if s["rescale"] == "inverse" else 1)).astype(F32)


def resized(updates: Updates, kept: Updates) -> list[Floats]:
    sums = [[np.abs(side).sum(dtype=np.float64) for side in pair] for pair in zip(updates, kept, strict=True)]
    return [k * F32(a / b if b else 1) for k, (a, b) in zip(kept, sums, strict=True)]


def della(update: Floats, words: Any, s: Settings) -> Floats:
    """In a row of n, the r-th largest, from 0, is dropped with chance 1 - density - epsilon / 2 + epsilon r / n."""
    length = update.shape[-1]
    rank = np.argsort(np.argsort(-np.abs(update), axis=-1, kind="stable"), axis=-1).astype(np.float64)
    drop = (1 - s["density"] - s["epsilon"] / 2) + s["epsilon"] * rank / length
    divisor = (1 - drop).astype(F32) if s["rescale"] == "inverse" else F32(1)
    return np.where(words >= drop * WORDS, update / divisor, F32(0)).astype(F32)


def model_stock(updates: Updates, weights: Weights, s: Settings) -> Floats:
    wide = [u.astype(np.float64).reshape(-1) for u in updates]
    pairs = [(a, b) for n, a in enumerate(wide) for b in wide[n + 1 :]]
    norms = [math.sqrt((a * a).sum()) * math.sqrt((b * b).sum()) for a, b in pairs]
    cosine = np.mean([(a * b).sum() / n if n else 0.0 for (a, b), n in zip(pairs, norms, strict=True)])
    count = len(updates)
    return added(updates) / F32(count) * F32(count * cosine / (1 + (count - 1) * cosine))


def sce(updates: Updates, weights: Weights, s: Settings) -> Floats:
    """Select by variance, weigh by the mean square, erase what has not the sign of the sum."""
    stacked = np.stack(updates)
    if s["density"] < 1:
        variance = added((u - added(updates) / F32(len(updates))) ** 2 for u in updates) / F32(len(updates))
        number = int(np.count_nonzero(variance) * s["density"])
        stacked = np.stack([only(u, order(variance)[:number]) for u in updates])
    energy = np.array([np.square(u, dtype=np.float64).sum() for u in stacked])
    shares = (energy / energy.sum() if energy.sum() else np.full(len(updates), 1 / len(updates))).astype(F32)
    sign = np.where(added(stacked) >= 0, F32(1), F32(-1))
    agree = [np.sign(u) == sign for u in stacked]
    over = added(np.where(a, u * w, F32(0)) for a, u, w in zip(agree, stacked, shares, strict=True))
    under = added(a * w for a, w in zip(agree, shares, strict=True))
    return np.where(under == 0, F32(0), over / np.where(under == 0, F32(1), under)).astype(F32)


def ram(updates: Updates, weights: Weights, s: Settings) -> Floats:
    """Shared changes averaged over those that make them; unique ones times their update's factor."""
    changed = np.stack([np.abs(u) > F32(s["epsilon"]) for u in updates])
    count = changed.sum(axis=0)
    kept = np.where(changed, np.stack(updates), F32(0))
    shared = added(kept) / np.maximum(count, 1).astype(F32)
    factors = s.get("factors", [1.0] * len(updates))
    unique = added(k * F32(f) for k, f in zip(kept, factors, strict=True))
    return np.where(count > 1, shared, unique)


def ram_plus(updates: Sequence[Model], weights: Weights, s: Settings) -> dict[str, Floats]:
    """The factor is 1 + r clip(shared / unique, 0, alpha), with counts over the model or each tensor."""
    counts = {}
    for name in updates[0]:
        changed = np.stack([np.abs(update[name]).reshape(-1) > F32(s["epsilon"]) for update in updates])
        count = changed.sum(axis=0)
        counts[name] = np.array([(changed & side).sum(axis=1) for side in (count > 1, count == 1)], np.float64)
    model = np.sum(list(counts.values()), axis=0)
    result = {}
    for name, own in counts.items():
        shared, unique = model if s["scope"] == "model" else own
        ratio = np.divide(shared, unique, out=np.zeros(len(updates)), where=unique > 0)
        factors = 1 + s["r"] * np.clip(ratio, 0, s["alpha"])
        result[name] = ram([update[name] for update in updates], weights, {**s, "factors": factors.tolist()})
    return result


def union(updates: Updates, weights: Weights, s: Settings) -> Floats:
    if s["conflict"] == "sign":
        return elect(updates, weights)
    if s["conflict"] == "mean":
        return consensus(updates, weights, {"k": 1})
    return np.where(updates[0] != 0, updates[0], updates[1])


def consensus(updates: Updates, weights: Weights, s: Settings) -> Floats:
    count = np.sum([u != 0 for u in updates], axis=0)
    mean: Floats = added(updates) / np.maximum(count, 1).astype(F32)
    return np.where(count >= s["k"], mean, np.zeros_like(mean))


PLAIN: dict[str, Callable[[Updates, Weights, Settings], npt.NDArray[Any]]] = {
    "linear": linear,
    "task-arithmetic": lambda updates, weights, s: summed(updates, weights) * F32(s["lambda"]),
    "breadcrumbs": breadcrumbs,
    "model-stock": model_stock,
    "sce": sce,
    "ram": ram,
    "union": union,
    "consensus": consensus,
    # The first update where the second, whose mask is taken, moves anything.
    "restrict": lambda updates, weights, s: np.where(updates[1] != 0, updates[0], F32(0)),
    "scale": lambda updates, weights, s: updates[0] * F32(s["factor"]),
    "negate": lambda updates, weights, s: -updates[0],
}
DRAWN: dict[str, Callable[[Floats, Any, Settings], Floats]] = {"dare": dare, "della": della}
WHOLE: dict[str, Callable[..., dict[str, Floats]]] = {"ties": ties, "ram+": ram_plus}
FORMULAS = {*PLAIN, *DRAWN, *WHOLE}
