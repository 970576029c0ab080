"""Structure-aware mutations of JSON documents and of binary objects, as a hostile publisher would make them.

A mutated document is still JSON, and an attacker who seals or hashes it again gets past every digest. So these reach
the code behind the digests, which random damage never does.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

LEAVES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 63, 64, 65, 3.0, -0.0, 1e308, 0.5, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1,
    1 << 63, (1 << 64) - 1, 1 << 64, 10**400, "", "0", "x", "a/b", "..", "../x", "a\0b", "\u202e", "\ud800", "é",
    "x" * 2_000, "sha256:" + "0" * 64, "uint8", "float64", "BF16", "exact", "abs:nan", "zstd", "blosc", [], {}, [[]],
    [1, 2, 3], {"name": "crc32c"}, {"must_understand": True}, {"a": {"b": [None]}},
]  # fmt: skip
"""Values that stand in for any value: edges of integers, other types, hostile texts."""

KEYS = [
    *("", "x", "schema", "name", "codecs", "must_understand", "dimension_names", "storage_transformers"),
    *("\0", "\ud800"),
]


def mutated(document: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one to four changes somewhere in it."""
    root = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        parent, key = rng.choice(list(_places(root)))
        _change(parent, key, rng)
    return root[0]


def written(document: Any, rng: random.Random) -> bytes:
    """The bytes of a JSON value, now and then in another form or not quite JSON."""
    text = json.dumps(document, sort_keys=rng.random() < 0.5, ensure_ascii=rng.random() < 0.9)
    data = text.encode(errors="surrogatepass")
    return damaged(data, rng) if rng.random() < 0.1 else data


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with a part replaced, removed, repeated or flipped."""
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((1, 1, 2, 8, 64, 4_096)))
    middle = {
        "remove": b"",
        "repeat": data[start:stop] * 2,
        "random": rng.randbytes(stop - start),
        "ones": b"\xff" * (stop - start),
        "zero": bytes(stop - start),
        "bit": bytes([data[start] ^ 1 << rng.randrange(8)]) + data[start + 1 : stop] if start < stop else b"\0",
        "json": rng.choice((b"[" * 40, b"{}", b",", b'"', b"\\", b"NaN", b"1e999", b"\xff")),
    }
    return data[:start] + middle[rng.choice(list(middle))] + data[stop:]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    items: Mapping[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else value
    for key, item in items.items():
        yield value, key
        if isinstance(item, (list, dict)):
            yield from _places(item)


def _change(parent: Any, key: Any, rng: random.Random) -> None:
    try:
        value = parent[key]
    except (KeyError, IndexError):
        return  # an earlier change removed it
    match rng.randrange(7):
        case 0:
            del parent[key]
            if not parent and isinstance(parent, list):
                parent.append(None)
        case 1 if isinstance(parent, dict):
            parent[rng.choice(KEYS)] = copy.deepcopy(rng.choice(LEAVES))
        case 1:
            parent.insert(key, copy.deepcopy(value))
        case 2 if type(value) is int:
            parent[key] = value + rng.choice((-1, 1, 64, -64, 1 << 32, -value, value))
        case 3 if isinstance(value, str):
            parent[key] = rng.choice((value + "x", value[:-1], value.upper(), value[::-1], value * 3))
        case 4 if isinstance(value, list) and len(value) > 1:
            rng.shuffle(value)
        case 5 if isinstance(parent, dict):
            parent[rng.choice(list(parent))] = copy.deepcopy(value)
        case _:
            parent[key] = copy.deepcopy(rng.choice(LEAVES))
