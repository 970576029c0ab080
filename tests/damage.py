"""Random damage to stored objects: flipped, cut, emptied, zeroed, grown, removed, swapped, misplaced, old, added."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FORMS = ("flip", "flip", "flip", "cut", "empty", "zero", "grow", "remove", "swap", "copy", "old")
"""Forms of damage to an object, as often as they are drawn; ``stray`` adds one beside it."""


@dataclass(frozen=True)
class Harm:
    """One damage.

    Attributes:
        form: one of :data:`FORMS`, or ``stray``.
        changes: new bytes of every object that it touches; None removes it.
    """

    form: str
    changes: Mapping[str, bytes | None]

    def __str__(self) -> str:
        return f"{self.form} {' and '.join(self.changes)}"


def harm(
    objects: Mapping[str, bytes],
    key: str,
    form: str,
    rng: random.Random,
    *,
    peers: Sequence[str] = (),
    older: Sequence[bytes] = (),
) -> Harm | None:
    """One damage to the object ``key``; None when that form would change nothing.

    Args:
        objects: all objects.
        key: the object to damage.
        form: one of :data:`FORMS`, or ``stray``.
        rng: draws the rest.
        peers: objects to swap it with, or to copy over it.
        older: bytes that it had before.
    """
    data = objects[key]
    if form == "remove":
        return Harm(form, {key: None})
    if form == "stray":
        return Harm(form, {f"{key.rsplit('/', 1)[0]}/stray": b"x"})
    if form in ("swap", "copy"):
        differing = [peer for peer in peers if objects[peer] != data]
        if not differing:
            return None
        peer = rng.choice(differing)
        return Harm(form, {key: objects[peer], peer: data} if form == "swap" else {key: objects[peer]})
    changed = _changed(data, form, rng, older)
    return None if changed == data else Harm(form, {key: changed})


def _changed(data: bytes, form: str, rng: random.Random, older: Sequence[bytes]) -> bytes:
    match form:
        case "flip" if data:
            flipped = bytearray(data)
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case "cut" if data:
            return data[: rng.randrange(len(data))]
        case "empty":
            return b""
        case "zero":
            return bytes(len(data))
        case "grow":
            return data + rng.randbytes(rng.choice([1, 7, 512]))
        case "old" if older:
            return rng.choice(older)
    return data


def damaged_copy(objects: dict[str, bytes], rng: random.Random) -> tuple[dict[str, bytes], set[str]]:
    """A copy of ``objects`` with one damage, and the keys that it touched."""
    keys = sorted(key for key in objects if objects[key])
    damage = None
    while damage is None:
        damage = harm(objects, rng.choice(keys), rng.choice([*FORMS, "stray"]), rng, peers=keys)
    damaged = dict(objects)
    for key, data in damage.changes.items():
        damaged.pop(key, None)
        if data is not None:
            damaged[key] = data
    return damaged, set(damage.changes)
