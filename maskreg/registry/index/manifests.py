"""The manifests of all artifacts in a store, read many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import DataError, MaskregError, NotAllowedError, NotFoundError
from maskreg.store.base import Store

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest

_READERS = 16
_BATCH = 256


def digests_in(store: Store) -> Iterator[Digest]:
    """Artifacts of which the store holds at least the manifest."""
    for info in store.list(ARTIFACTS):
        name, _, key = info.key.removeprefix(ARTIFACTS).partition("/")
        if key == MANIFEST:
            try:
                yield Digest(f"sha256:{name}")
            except ValueError:
                continue


def readable_manifests(
    store: Store, digests: Iterable[Digest], damaged: list[MaskregError]
) -> Iterator[tuple[Digest, Manifest]]:
    """The manifests of ``digests``; errors of missing, damaged or forbidden ones are appended to ``damaged``."""

    def read(digest: Digest) -> Manifest | MaskregError:
        try:
            return read_manifest(store, digest)[1]
        except (DataError, NotFoundError, NotAllowedError) as error:
            return error

    rest = iter(digests)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(rest, _BATCH)):
            for digest, result in zip(batch, pool.map(read, batch), strict=True):
                if isinstance(result, MaskregError):
                    damaged.append(result)
                else:
                    yield digest, result
