"""What a store holds of one artifact: the manifest, a listing, and which parts are present.

A part (mask, delta, reverse, analysis) is present as a whole or absent; anything between is damage. Presence follows
from the manifest and one listing, by name and size, without reading an object::

    begun    = parts of which any object is listed
    arriving = begun parts whose missing objects ALL wait in incoming/   (a pull died between two renames)
    present  = begun - arriving; every object of these has to be listed, or the artifact is damaged

For example, the mask has objects m1 m2, the delta d1 d2, and t belongs to all parts::

    listed: t m1 m2         waiting: -      mask present, delta absent
    listed: t m1 m2 d1      waiting: d2     mask present, delta absent: the next pull completes it
    listed: t m1 m2 d1      waiting: -      d2 is missing: damaged
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from maskreg.artifact.layout import MANIFEST, artifact_prefix, incoming_prefix, part_of
from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError, PartAbsentError
from maskreg.limits import LIMITS
from maskreg.store.base import Files, ObjectInfo, Store

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest, Object

_REPAIR = "fetch or extract it again; damaged objects are replaced"


def read_manifest(store: Store, digest: Digest) -> tuple[bytes, Manifest]:
    """The manifest's bytes, checked against the digest, and the parsed manifest."""
    # A look at names and sizes needs no models.
    from maskreg.artifact.manifest import load_manifest

    key = artifact_prefix(digest) + MANIFEST
    try:
        data = store.get(key, max_bytes=LIMITS.manifest_bytes)
    except NotFoundError as error:
        raise NotFoundError(f"artifact {digest.short} is not in {store.url}", artifact=digest) from error
    try:
        return data, load_manifest(data, digest)
    except CorruptError as error:
        raise CorruptError(
            key, "its bytes do not match the artifact's digest", hint=error.hint, **error.facts
        ) from error


def read_object(store: Store, digest: Digest, entry: Object) -> bytes:
    """One object, read whole and hashed."""
    with reading(digest, entry) as key:
        data = store.get(key, max_bytes=entry.size)
        require_match(matches(data, entry), key, digest)
    return data


def read_object_into(store: Files, digest: Digest, entry: Object, into: memoryview) -> None:
    """The same into memory of exactly its size."""
    with reading(digest, entry) as key:
        size = store.get_into(key, into)
        require_match(matches(into[:size], entry), key, digest)


@contextmanager
def reading(digest: Digest, entry: Object) -> Iterator[str]:
    """The key of an object in its store; one that is missing or longer is damage."""
    key = artifact_prefix(digest) + entry.key
    try:
        yield key
    except NotFoundError as error:
        raise CorruptError(key, "missing", hint=_REPAIR, artifact=digest) from error
    except LimitError as error:
        raise CorruptError(key, f"longer than its {entry.size} bytes", hint=_REPAIR, artifact=digest) from error


def require_match(is_match: bool, key: str, digest: Digest) -> None:
    """Refuse an object whose bytes are not what the manifest of this digest lists."""
    if not is_match:
        raise CorruptError(key, "its bytes do not match the manifest's digest", hint=_REPAIR, artifact=digest)


def matches(data: bytes | memoryview, entry: Object) -> bool:
    """Whether ``data`` has the size and digest that the manifest lists."""
    return len(data) == entry.size and Digest.of(data) == entry.sha256


def listing(store: Store, digest: Digest) -> dict[str, ObjectInfo]:
    """Everything below the artifact's prefix, by key relative to it."""
    prefix = artifact_prefix(digest)
    return {info.key.removeprefix(prefix): info for info in store.list(prefix)}


def objects_of(manifest: Manifest, parts: Collection[str]) -> list[Object]:
    """The objects of ``parts``, and those that belong to all parts."""
    return [entry for entry in manifest.objects if part_of(entry.key) in {"", *parts}]


def absent(objects: Iterable[Object], present: Mapping[str, ObjectInfo]) -> list[Object]:
    """Objects that are missing from a listing, or have another size in it."""
    return [entry for entry in objects if entry.key not in present or present[entry.key].size != entry.size]


def strays(manifest: Manifest, present: Iterable[str]) -> list[str]:
    """Keys of a listing that the manifest does not list, in order."""
    return sorted(set(present) - {entry.key for entry in manifest.objects} - {MANIFEST})


def begun_parts(store: Store, digest: Digest, manifest: Manifest, present: Mapping[str, ObjectInfo]) -> frozenset[str]:
    """The parts of which any object is listed and which therefore have to be complete.

    Parts whose missing objects all wait in the incoming folder are left out; see the module's text.
    """
    begun = {part_of(entry.key) for entry in manifest.objects if entry.key in present} - {""}
    missing = absent(objects_of(manifest, begun), present)
    if not missing:
        return frozenset(begun)
    # incoming/<hex>/<visit>/<key>
    waiting = {info.key.split("/", 3)[-1] for info in store.list(incoming_prefix(digest))}
    arriving = {part_of(entry.key) for entry in missing if entry.key in waiting} - {""}
    for entry in missing:
        # An object that was moved since the listing no longer waits, and is not missing either.
        if entry.key not in waiting and store.head(artifact_prefix(digest) + entry.key) is None:
            arriving.discard(part_of(entry.key))
    return frozenset(begun - arriving)


def part_lacking(name: str, part: str, **facts: object) -> PartAbsentError:
    """The error for a part that an artifact was made without. ``name``: begins the sentence."""
    return PartAbsentError(f"{name} has no {part} part", hint=_WITHOUT.get(part, ""), absent=part, **facts)


def whole_parts(store: Store, digest: Digest, manifest: Manifest, present: Mapping[str, ObjectInfo]) -> frozenset[str]:
    """The parts that are completely present, by name and size."""
    prefix = artifact_prefix(digest)
    for key in strays(manifest, present):
        raise CorruptError(prefix + key, "not an object of this artifact", hint=f"remove it: {prefix + key}")
    begun = begun_parts(store, digest, manifest, present)
    for entry in absent(objects_of(manifest, begun), present):
        fault = f"{present[entry.key].size} bytes instead of {entry.size}" if entry.key in present else "missing"
        raise CorruptError(prefix + entry.key, fault, hint=_REPAIR, artifact=digest)
    return begun


_WITHOUT = {
    "mask": "it is a link of a run, published without its mask: squash the run, or some of its links, for theirs",
    "delta": "it holds only a mask: extract it again with its values",
    "reverse": "only a reversible artifact can be reverted; keep the source checkpoint, or extract it again so",
}
