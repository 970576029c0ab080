"""What a store holds of one artifact: the manifest, a listing, and which parts are whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from maskreg.artifact.layout import MANIFEST, PARTS, artifact_prefix, part_of
from maskreg.artifact.manifest import Manifest, Object, load_manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError
from maskreg.limits import LIMITS, Limits
from maskreg.store.base import ObjectInfo, Store


def read_manifest(store: Store, digest: Digest, limits: Limits = LIMITS) -> tuple[bytes, Manifest]:
    """The manifest's bytes, checked against the digest, and what they say.

    Raises:
        NotFoundError: the store has no such artifact.
        DataError: the manifest is damaged, malformed or too large.
    """
    key = artifact_prefix(digest) + MANIFEST
    try:
        data = store.get(key, max_bytes=limits.manifest_bytes)
    except NotFoundError as error:
        raise NotFoundError(f"artifact {digest.short} is not in {store.url}") from error
    try:
        return data, load_manifest(data, digest, limits)
    except CorruptError as error:
        raise CorruptError(key, "its bytes do not match the artifact's digest") from error


def read_object(store: Store, digest: Digest, entry: Object) -> bytes:
    """One object, whole and hashed.

    Raises:
        CorruptError: it is missing, has another size, or its bytes hash to something else.
    """
    key = artifact_prefix(digest) + entry.key
    try:
        data = store.get(key, max_bytes=entry.size)
    except NotFoundError as error:
        raise CorruptError(key, "missing") from error
    except LimitError as error:
        raise CorruptError(key, f"longer than its {entry.size} bytes") from error
    if not matches(data, entry):
        raise CorruptError(key, "its bytes do not match the manifest's digest")
    return data


def matches(data: bytes, entry: Object) -> bool:
    """Whether ``data`` are the bytes that the manifest lists."""
    return len(data) == entry.size and Digest.of(data) == entry.sha256


def listing(store: Store, digest: Digest) -> dict[str, ObjectInfo]:
    """Everything below the artifact's prefix, by key relative to it."""
    prefix = artifact_prefix(digest)
    return {info.key.removeprefix(prefix): info for info in store.list(prefix)}


def objects_of(manifest: Manifest, parts: Collection[str]) -> list[Object]:
    """The objects of ``parts``, and those that every part needs."""
    return [entry for entry in manifest.objects if part_of(entry.key) in {"", *parts}]


def absent(objects: Iterable[Object], here: Mapping[str, ObjectInfo]) -> list[Object]:
    """Those of ``objects`` that are not there, or there with another size."""
    return [entry for entry in objects if entry.key not in here or here[entry.key].size != entry.size]


def whole_parts(digest: Digest, manifest: Manifest, here: Mapping[str, ObjectInfo]) -> frozenset[str]:
    """The parts that are wholly there, by name and size.

    Raises:
        CorruptError: an object that every part needs is not there, or a part is there in pieces.
    """
    found: set[str] = set()
    for part in ("", *(p for p in PARTS if p in manifest.parts)):
        entries = [entry for entry in manifest.objects if part_of(entry.key) == part]
        lost = absent(entries, here)
        if lost and (not part or any(entry.key in here for entry in entries)):
            raise CorruptError(artifact_prefix(digest) + lost[0].key, "missing, or of another size")
        if part and not lost:
            found.add(part)
    return frozenset(found)
