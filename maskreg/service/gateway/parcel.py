"""An artifact as one file to carry: a tar of a folder that is a registry, with one tag and all that vouches for it.

::

    team-toy-v1/maskreg.json                    the identity: on the other machine it is the same registry
    team-toy-v1/keys/team/...                   the keys of the project
    team-toy-v1/refs/team/toy/v1/...            the log of the tag
    team-toy-v1/artifacts/sha256/<hex>/...      the objects of the parts that are here

A client that can read the tag can read each of these files one by one (:mod:`maskreg.service.gateway.policy`).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from itertools import chain

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing, objects_of, read_manifest, read_object, whole_parts
from maskreg.digest import Digest
from maskreg.errors import CorruptError
from maskreg.registry import Registry
from maskreg.registry.identity import IDENTITY
from maskreg.registry.keys import KEYS
from maskreg.service.gateway.policy import Kind, parse_key
from maskreg.store.entry import REFS, RefEntry


def parcel(registry: Registry, head: RefEntry, digest: Digest, folder: str) -> tuple[int, Iterator[bytes]]:
    """The size of the tar in bytes, and its pieces, each made when it is asked for; one object is in memory at a time.

    Args:
        head: the latest entry of the tag.
        digest: what the tag points to, or once did.
        folder: the one folder in the tar.

    Raises:
        CorruptError: the artifact lacks an object, or an object is damaged: then the pieces end early.
    """
    store, prefix = registry.store, artifact_prefix(digest)
    data, manifest = read_manifest(store, digest)
    parts = whole_parts(store, digest, manifest, listing(store, digest))
    objects = {prefix + entry.key: entry for entry in objects_of(manifest, parts)}
    beside = chain(store.list(f"{KEYS}{head.ref.project}/"), store.list(f"{REFS}{head.ref.path}/"))
    sizes = {IDENTITY: len(store.get(IDENTITY, max_bytes=parse_key(IDENTITY).max_bytes))}
    # Keys of the project's keys come before the entries; entries after the latest one can name another artifact.
    sizes |= {i.key: i.size for i in beside if parse_key(i.key).kind in (Kind.KEY, Kind.ENTRY) and i.key <= head.key}
    sizes |= {prefix + MANIFEST: len(data), **{key: entry.size for key, entry in objects.items()}}
    headers = {key: _header(f"{folder}/{key}", size) for key, size in sizes.items()}

    def pieces() -> Iterator[bytes]:
        filling = b""
        for key, size in sizes.items():
            yield filling + headers[key]
            body = read_object(store, digest, objects[key]) if key in objects else store.get(key, max_bytes=size)
            if len(body) != size:
                raise CorruptError(key, f"{len(body)} bytes, of {size} when it was listed")
            yield body
            filling = bytes(-size % tarfile.BLOCKSIZE)
        yield filling + bytes(2 * tarfile.BLOCKSIZE)

    blocks = sum(-(-size // tarfile.BLOCKSIZE) for size in sizes.values()) + 2
    return sum(map(len, headers.values())) + blocks * tarfile.BLOCKSIZE, pieces()


def _header(path: str, size: int) -> bytes:
    info = tarfile.TarInfo(path)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)
