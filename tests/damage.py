"""Random damage to stored objects: flipped, cut, emptied, grown, removed, swapped, added."""

from __future__ import annotations

import random


def damaged_copy(objects: dict[str, bytes], rng: random.Random) -> tuple[dict[str, bytes], set[str]]:
    """A copy of ``objects`` with one damage, and the keys that it touched."""
    damaged = dict(objects)
    key = rng.choice(sorted(k for k in objects if objects[k]))
    data = bytearray(objects[key])
    touched = {key}
    match rng.choice(["flip", "flip", "flip", "cut", "empty", "grow", "remove", "swap", "stray"]):
        case "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            damaged[key] = bytes(data)
        case "cut":
            damaged[key] = bytes(data[: rng.randrange(len(data))])
        case "empty":
            damaged[key] = b""
        case "grow":
            damaged[key] = bytes(data) + bytes([rng.randrange(256)])
        case "remove":
            del damaged[key]
        case "swap":
            other = rng.choice(sorted(k for k in objects if objects[k] != objects[key]))
            damaged[key], damaged[other] = damaged[other], damaged[key]
            touched.add(other)
        case "stray":
            stray = key.rsplit("/", 1)[0] + "/stray"
            damaged[stray] = b"x"
            touched = {stray}
    return damaged, touched
