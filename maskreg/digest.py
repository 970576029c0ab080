"""Identity and trust: sha256 digests of stored objects, xxh3-128 fingerprints of tensors.

Only a *digest* (sha256) is trusted. A *fingerprint* (xxh3-128) is fast, can be checked leaf by leaf while a tensor
streams past, and makes no security claim. A *leaf* is 2^18 elements of a tensor in C order.

A *sealed* document carries the sha256 of its own content, so that damage shows where no manifest lists it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from maskreg.document import canonical, parse_object
from maskreg.errors import CorruptError, FormatError
from maskreg.extras import upgrade_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LeafHashes: TypeAlias = "npt.NDArray[np.uint8]"

LEAF_NUMEL = 1 << 18
"""Elements in one leaf."""

FINGERPRINT_BYTES = 16

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Digest(str):
    """A sha256 digest, ``sha256:`` and 64 lower-case hex digits. Only this type is used to build paths."""

    __slots__ = ()

    def __new__(cls, text: str) -> Digest:
        """Validate ``text``."""
        if not _DIGEST.fullmatch(text):
            raise ValueError(f"not a sha256 digest: {text!r}")
        return super().__new__(cls, text)

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Digest:
        """Digest of ``data``."""
        return cls("sha256:" + hashlib.sha256(data).hexdigest())

    @property
    def hex(self) -> str:
        """The 64 hex digits alone."""
        return self[7:]

    @property
    def short(self) -> str:
        """Enough of the digest for people to tell artifacts apart (``sha256:`` and 12 digits)."""
        return self[:19]


def leaf_hashes(data: npt.NDArray[np.generic]) -> LeafHashes:
    """Hash each leaf of a C-contiguous array, or of a span of it that starts at a leaf.

    ``data``: any dtype, any shape; taken as ``numel`` elements in C order.

    Returns uint8 ``[ceil(numel / 2^18), 16]``: xxh3-128 (big-endian canonical form) of each leaf's bytes.
    """
    import numpy as np
    import xxhash

    flat = np.ascontiguousarray(data).reshape(-1)
    raw = flat.view(np.uint8)
    size = LEAF_NUMEL * flat.dtype.itemsize
    leaves = [xxhash.xxh3_128_digest(raw[i : i + size].data) for i in range(0, raw.size, size)]
    return np.frombuffer(b"".join(leaves), np.uint8).reshape(-1, FINGERPRINT_BYTES)


def fingerprint(leaves: LeafHashes) -> str:
    """Fingerprint of a tensor from the hashes of all its leaves: 32 hex digits."""
    import xxhash

    return xxhash.xxh3_128_hexdigest(leaves.tobytes())


def short_key(text: str) -> int:
    """64 bits that stand for a text, such as a tensor's name, in random draws: the xxh3-64 of its UTF-8 bytes."""
    import xxhash

    return int(xxhash.xxh3_64_intdigest(text.encode()))


def fingerprint_root(tensors: Iterable[tuple[str, str, tuple[int, ...], str]]) -> str:
    """Identity of a whole checkpoint: sha256 over its tensors, in any order or sharding.

    Returns ``sha256:`` and 64 hex digits.
    """
    lines = sorted(canonical([n, d, list(s), f]) for n, d, s, f in tensors)
    return str(Digest.of(b"\n".join(lines)))


SEAL = "seal"
"""Key of the sha256 over the canonical bytes of all other keys."""


def payload(row: Mapping[str, object]) -> bytes:
    """Canonical bytes of a document without its seal: what the seal is over."""
    return canonical({key: value for key, value in row.items() if key != SEAL})


def sealed(row: Mapping[str, object]) -> bytes:
    """Canonical bytes of a document with its seal; one that it has already is replaced."""
    return canonical({**row, SEAL: Digest.of(payload(row))})


def parse_sealed(data: bytes, key: str, *, schema: str, max_bytes: int) -> dict[str, Any]:
    """Parse what :func:`sealed` wrote."""
    row = parse_object(data, key, max_bytes=max_bytes)
    if sealed(row) != data:
        raise CorruptError(key, "its bytes do not match its seal")
    if row.get("schema") != schema:
        raise FormatError(f"{key}: schema {row.get('schema')!r} is not {schema!r}", hint=upgrade_command())
    return row
