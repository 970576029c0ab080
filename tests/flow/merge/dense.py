"""Merging as the papers write it: whole models in fp32, with nothing of maskreg's but its random words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.digest import short_key
from maskreg.mask.philox import WORDS, words_of

Floats = npt.NDArray[np.float32]
Model = Mapping[str, Floats]
Updates = Sequence[Floats]
F32 = np.float32


def rounded(values: Floats) -> npt.NDArray[np.uint16]:
    """bf16 codes of finite numbers: the upper half, one more where the lower half is above a half or a tie at odd."""
    bits = values.view(np.uint32).astype(np.uint64)
    low, high = bits & 0xFFFF, bits >> 16
    codes: npt.NDArray[np.uint16] = (high + ((low > 0x8000) | ((low == 0x8000) & (high & 1 == 1)))).astype(np.uint16)
    return codes


def added(parts: Iterable[Floats]) -> Floats:
    result: Floats = sum(parts, F32(0)) + np.zeros(1, F32)
    return result


def merged(method: str, source: Model, targets: Sequence[Model], digests: Sequence[str], **given: Any) -> Model:
    """The merged model in fp32."""
    updates = [{name: target[name] - source[name] for name in source} for target in targets]
    if method in WHOLE:
        changes = WHOLE[method](source, updates, **given)
        return {name: source[name] + changes[name] for name in source}
    result = {}
    for name, values in source.items():
        own = [update[name] for update in updates]
        if method == "slerp":
            result[name] = slerp([target[name] for target in targets], **given)
        elif method in DRAWN:
            words = [drawn(method, name, digest, values.size).reshape(values.shape) for digest in digests]
            result[name] = values + DRAWN[method](own, words, **given)
        else:
            result[name] = values + PLAIN[method](own, **given)
    return result


def drawn(method: str, name: str, digest: str, numel: int, seed: int = 0) -> npt.NDArray[np.uint32]:
    return words_of(short_key(f"{seed} {method} {digest}"), short_key(name), 0, numel)


def linear(updates: Updates, weights: Sequence[float] = (1, 1)) -> Floats:
    return added(u * F32(w) for u, w in zip(updates, weights, strict=True)) / F32(sum(weights))


def task_arithmetic(updates: Updates, weights: Sequence[float] = (1, 1), scale: float = 1.0) -> Floats:
    return added(u * F32(w) for u, w in zip(updates, weights, strict=True)) * F32(scale)


def elect(updates: Updates, weights: Sequence[float] = (1, 1), tie: float = 1.0, *, mean: bool = True) -> Floats:
    """Elect the sign of the weighted sum, then average or add up the updates that have it."""
    parts = [u * F32(w) for u, w in zip(updates, weights, strict=True)]
    sign = np.sign(added(parts))
    sign = np.where(sign == 0, F32(1 if tie > 0 else -1), sign)
    agree = [np.sign(part) == sign for part in parts]
    over = added(np.where(a, p, F32(0)) for a, p in zip(agree, parts, strict=True))
    under = added(a * F32(w) for a, w in zip(agree, weights, strict=True))
    return np.where(under == 0, F32(0), over / np.where((under == 0) | (not mean), F32(1), under)).astype(F32)


def ties(source: Model, updates: Sequence[Model], density: float = 0.2) -> dict[str, Floats]:
    """Trim below the size that ranks (d - int(d k))-th of the flattened model, from the smallest."""
    trimmed = []
    for update in updates:
        flat = np.concatenate([np.abs(update[name]).reshape(-1) for name in source])
        place = flat.size - int(flat.size * density)
        border = np.partition(flat, place - 1)[place - 1] if place else F32(0)
        trimmed.append({n: np.where(np.abs(u) >= border, u, F32(0)) for n, u in update.items()})
    majority = sum(float(np.sign(added(t[name] for t in trimmed)).sum(dtype=np.float64)) for name in source)
    return {name: elect([t[name] for t in trimmed], tie=majority) for name in source}


def order(update: Floats) -> npt.NDArray[np.int64]:
    """Coordinates by size, largest first, and of equal ones the first first."""
    return np.argsort(-np.abs(update).reshape(-1), kind="stable")


def only(update: Floats, places: npt.NDArray[np.int64]) -> Floats:
    kept = np.zeros(update.size, F32)
    kept[places] = update.reshape(-1)[places]
    return kept.reshape(update.shape)


def ties_per_tensor(updates: Updates, density: float = 0.5) -> Floats:
    return elect([only(u, order(u)[: max(1, int(density * u.size)) if density else 0]) for u in updates])


def breadcrumbs(updates: Updates, density: float = 0.9, gamma: float = 0.01, sign: str = "sum") -> Floats:
    kept = []
    for update in updates:
        number = int(density * update.size)
        top = min(int(gamma * update.size), update.size - number)
        kept.append(only(update, order(update)[top : top + number]))
    return task_arithmetic(kept) if sign == "sum" else elect(kept, mean=sign == "elect")


def dare(updates: Updates, words: Sequence[Any], density: float = 0.5, rescale: str = "inverse") -> Floats:
    kept = [np.where(w >= round((1 - density) * WORDS), u, F32(0)) for u, w in zip(updates, words, strict=True)]
    if rescale == "inverse":
        kept = [k / F32(density) for k in kept]
    if rescale == "l1":
        kept = resized(updates, kept)
    return task_arithmetic(kept)


def resized(updates: Updates, kept: Updates) -> list[Floats]:
    sums = [[np.abs(side).sum(dtype=np.float64) for side in pair] for pair in zip(updates, kept, strict=True)]
    return [k * F32(a / b if b else 1) for k, (a, b) in zip(kept, sums, strict=True)]


def della(
    updates: Updates, words: Sequence[Any], density: float = 0.5, epsilon: float = 0.2, rescale: str = "inverse"
) -> Floats:
    """In a row of n, the r-th largest, from 0, is dropped with chance 1 - density - epsilon / 2 + epsilon r / n."""
    kept = []
    for update, word in zip(updates, words, strict=True):
        length = update.shape[-1]
        rank = np.argsort(np.argsort(-np.abs(update), axis=-1, kind="stable"), axis=-1).astype(np.float64)
        drop = (1 - density - epsilon / 2) + epsilon * rank / length
        divisor = (1 - drop).astype(F32) if rescale == "inverse" else F32(1)
        kept.append(np.where(word >= drop * WORDS, update / divisor, F32(0)))
    return elect(resized(updates, kept) if rescale == "l1" else kept)


def model_stock(updates: Updates) -> Floats:
    wide = [u.astype(np.float64).reshape(-1) for u in updates]
    pairs = [(a, b) for n, a in enumerate(wide) for b in wide[n + 1 :]]
    norms = [math.sqrt((a * a).sum()) * math.sqrt((b * b).sum()) for a, b in pairs]
    cosine = np.mean([(a * b).sum() / n if n else 0.0 for (a, b), n in zip(pairs, norms, strict=True)])
    count = len(updates)
    return added(updates) / F32(count) * F32(count * cosine / (1 + (count - 1) * cosine))


def slerp(values: Updates, t: float = 0.5) -> Floats:
    first, second = (v.astype(np.float64).reshape(-1) for v in values)
    norms = math.sqrt((first * first).sum()) * math.sqrt((second * second).sum())
    cosine = (first * second).sum() / norms
    if cosine > 0.9995:
        return F32(1 - t) * values[0] + F32(t) * values[1]
    angle = math.acos(cosine)
    a, b = (math.sin(share * angle) / math.sin(angle) for share in (1 - t, t))
    return F32(a) * values[0] + F32(b) * values[1]


def nearswap(updates: Updates, t: float = 1e-4) -> Floats:
    """The weight of the change is min(1, t / its size)."""
    size = np.abs(updates[0])
    weight = np.minimum(F32(t) / np.maximum(size, np.finfo(F32).tiny), F32(1))
    return np.where(size <= F32(t), updates[0], np.sign(updates[0]) * F32(t) * (weight > 0)).astype(F32)


def sce(updates: Updates, density: float = 1.0) -> Floats:
    """Select by variance, weigh by the mean square, erase what has not the sign of the sum."""
    stacked = np.stack(updates)
    if density < 1:
        variance = added((u - added(updates) / F32(len(updates))) ** 2 for u in updates) / F32(len(updates))
        number = int(np.count_nonzero(variance) * density)
        stacked = np.stack([only(u, order(variance)[:number]) for u in updates])
    energy = np.array([np.square(u, dtype=np.float64).sum() for u in stacked])
    weights = (energy / energy.sum() if energy.sum() else np.full(len(updates), 1 / len(updates))).astype(F32)
    sign = np.where(added(stacked) >= 0, F32(1), F32(-1))
    agree = [np.sign(u) == sign for u in stacked]
    over = added(np.where(a, u * w, F32(0)) for a, u, w in zip(agree, stacked, weights, strict=True))
    under = added(a * w for a, w in zip(agree, weights, strict=True))
    return np.where(under == 0, F32(0), over / np.where(under == 0, F32(1), under)).astype(F32)


def multislerp(updates: Updates, weights: Sequence[float] = (1, 1)) -> npt.NDArray[np.float64]:
    """Towards the mean of the directions, then along the mean of their projections onto its tangent space."""
    wide = [u.astype(np.float64).reshape(-1) for u in updates]
    norms, shares = [float(np.linalg.norm(u)) for u in wide], np.array(weights) / sum(weights)
    units = [u / norm if norm else u for u, norm in zip(wide, norms, strict=True)]
    mean = sum(s * u for s, u in zip(shares, units, strict=True))
    if np.linalg.norm(mean) < 1e-8:
        return np.asarray(sum(s * u for s, u in zip(shares, wide, strict=True))).reshape(updates[0].shape)
    mean = mean / np.linalg.norm(mean)
    tangent = sum(s * (u - (u @ mean) * mean) for s, u in zip(shares, units, strict=True))
    length = np.linalg.norm(tangent) + 1e-12
    point = np.cos(length) * mean + np.sin(length) / length * tangent
    return np.asarray(float(shares @ norms) * point).reshape(updates[0].shape)


def karcher(values: Updates, weights: Sequence[float] = (1, 1), steps: int = 10) -> npt.NDArray[np.float64]:
    """The fixed point of: go along the weighted mean of the logarithms of all points."""
    wide = [v.astype(np.float64).reshape(-1) for v in values]
    norms, shares = [float(np.linalg.norm(v)) for v in wide], np.array(weights) / sum(weights)
    units = [v / norm if norm else v for v, norm in zip(wide, norms, strict=True)]
    mean = sum(s * u for s, u in zip(shares, units, strict=True))
    if not np.linalg.norm(mean):
        return np.zeros(values[0].shape)
    mean = mean / np.linalg.norm(mean)
    for _ in range(steps):
        step = np.zeros_like(mean)
        for share, unit in zip(shares, units, strict=True):
            angle = np.arccos(np.clip(unit @ mean, -1, 1))
            if angle >= 1e-5:
                step += share * angle / np.sin(angle) * (unit - (unit @ mean) * mean)
        length = float(np.linalg.norm(step))
        if length < 1e-5:
            break
        mean = np.cos(length) * mean + np.sin(length) * step / length
        mean /= np.linalg.norm(mean)
    return np.asarray(float(shares @ norms) * mean).reshape(values[0].shape)


def ram(updates: Updates, epsilon: float = 1e-5, factors: Sequence[float] = (1, 1)) -> Floats:
    """Shared changes averaged over those that make them; unique ones times their update's factor."""
    changed = np.stack([np.abs(u) > F32(epsilon) for u in updates])
    count = changed.sum(axis=0)
    kept = np.where(changed, np.stack(updates), F32(0))
    shared = added(kept) / np.maximum(count, 1).astype(F32)
    unique = added(k * F32(f) for k, f in zip(kept, factors, strict=True))
    result: Floats = np.where(count > 1, shared, unique)
    return result


def ram_plus(source: Model, updates: Sequence[Model], r: float = 0.1, alpha: float = 0.2) -> dict[str, Floats]:
    """The factor is 1 + r clip(shared / unique, 0, alpha), with counts over the model."""
    shared, unique = np.zeros(len(updates)), np.zeros(len(updates))
    for name in source:
        changed = np.stack([np.abs(update[name]).reshape(-1) > F32(1e-5) for update in updates])
        count = changed.sum(axis=0)
        shared += (changed & (count > 1)).sum(axis=1)
        unique += (changed & (count == 1)).sum(axis=1)
    factors = 1 + r * np.clip(shared / unique, 0, alpha)
    return {name: ram([update[name] for update in updates], factors=factors.tolist()) for name in source}


def union(updates: Updates, conflict: str = "first") -> Floats:
    if conflict == "sign":
        return elect(updates)
    count = np.sum([u != 0 for u in updates], axis=0)
    if conflict == "mean":
        mean: Floats = added(updates) / np.maximum(count, 1).astype(F32)
        return mean
    return np.where(updates[0] != 0, updates[0], updates[1])


def consensus(updates: Updates, k: int = 2) -> Floats:
    count = np.sum([u != 0 for u in updates], axis=0)
    mean: Floats = added(updates) / np.maximum(count, 1).astype(F32)
    return np.where(count >= k, mean, np.zeros_like(mean))


def restrict(updates: Updates) -> Floats:
    """The first update where the second moves anything."""
    return np.where(updates[1] != 0, updates[0], F32(0))


def scale(updates: Updates, factor: float = 1.0) -> Floats:
    return updates[0] * F32(factor)


PLAIN: dict[str, Callable[..., Floats]] = {
    "linear": linear,
    "task-arithmetic": task_arithmetic,
    "ties-per-tensor": ties_per_tensor,
    "breadcrumbs": breadcrumbs,
    "model-stock": model_stock,
    "nearswap": nearswap,
    "sce": sce,
    "ram": ram,
    "union": union,
    "consensus": consensus,
    "restrict": restrict,
    "scale": scale,
    "negate": lambda updates: -updates[0],
}
DRAWN: dict[str, Callable[..., Floats]] = {"dare": dare, "della": della}
WHOLE: dict[str, Callable[..., dict[str, Floats]]] = {"ties": ties, "ram+": ram_plus}
