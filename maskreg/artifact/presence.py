"""What a store holds of one artifact: the manifest, a listing, and which parts are whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from maskreg.artifact.layout import MANIFEST, artifact_prefix, incoming_prefix, part_of
from maskreg.artifact.manifest import Manifest, Object, load_manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError
from maskreg.limits import LIMITS, Limits
from maskreg.store.base import ObjectInfo, Store

_REPAIR = "fetch it again with: maskreg pull <name> (or extract it again); damaged objects are replaced"


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
        raise NotFoundError(
            f"artifact {digest.short} is not in {store.url}", hint="maskreg pull <name> brings it here"
        ) from error
    try:
        return data, load_manifest(data, digest, limits)
    except CorruptError as error:
        raise CorruptError(key, "its bytes do not match the artifact's digest", hint=error.hint) from error


def read_object(store: Store, digest: Digest, entry: Object) -> bytes:
    """One object, whole and hashed.

    Raises:
        CorruptError: it is missing, has another size, or its bytes hash to something else.
    """
    key = artifact_prefix(digest) + entry.key
    try:
        data = store.get(key, max_bytes=entry.size)
    except NotFoundError as error:
        raise CorruptError(key, "missing", hint=_REPAIR) from error
    except LimitError as error:
        raise CorruptError(key, f"longer than its {entry.size} bytes", hint=_REPAIR) from error
    if not matches(data, entry):
        raise CorruptError(key, "its bytes do not match the manifest's digest", hint=_REPAIR)
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


def strays(manifest: Manifest, here: Iterable[str]) -> list[str]:
    """Keys that are there and that the manifest does not list, in order."""
    return sorted(set(here) - {entry.key for entry in manifest.objects} - {MANIFEST})


def begun_parts(store: Store, digest: Digest, manifest: Manifest, here: Mapping[str, ObjectInfo]) -> frozenset[str]:
    """The parts of which anything is there, and which therefore have to be whole.

    A part whose missing objects all wait in the incoming folder does not count: they were about to be moved to
    their places when the one who brought them died, and until the next pull the part is absent, not damaged.
    """
    begun = {part_of(entry.key) for entry in manifest.objects if entry.key in here} - {""}
    lost = absent(objects_of(manifest, begun), here)
    if not lost:
        return frozenset(begun)
    # Below "incoming/<hex>/" comes whoever brings it, then the object's key.
    waiting = {info.key.split("/", 3)[-1] for info in store.list(incoming_prefix(digest))}
    arriving = {part_of(entry.key) for entry in lost if entry.key in waiting} - {""}
    for entry in lost:
        # What was moved since the listing waits no more, and is no hole.
        if entry.key not in waiting and store.head(artifact_prefix(digest) + entry.key) is None:
            arriving.discard(part_of(entry.key))
    return frozenset(begun - arriving)


def whole_parts(store: Store, digest: Digest, manifest: Manifest, here: Mapping[str, ObjectInfo]) -> frozenset[str]:
    """The parts that are wholly there, by name and size.

    Raises:
        CorruptError: an object that every part needs is not there, a part is there in pieces, or there is
            something that the manifest does not list.
    """
    prefix = artifact_prefix(digest)
    for key in strays(manifest, here):
        raise CorruptError(prefix + key, "not an object of this artifact", hint=f"remove it: {prefix + key}")
    begun = begun_parts(store, digest, manifest, here)
    for entry in absent(objects_of(manifest, begun), here):
        what = f"{here[entry.key].size} bytes instead of {entry.size}" if entry.key in here else "missing"
        raise CorruptError(prefix + entry.key, what, hint=_REPAIR)
    return begun
