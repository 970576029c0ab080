"""The objects under one prefix of a store, as Zarr's own kind of store, to read.

Zarr asks for ranges of shards (its index, then chunks); the view fetches the whole object and cuts the range out, since
bytes may only be used after the whole object was hashed. ``VerifiedObjects`` keeps recent objects in memory, so that
neighboring ranges of a shard cost one fetch::

    zarr: get("mask/c/0", last 260 bytes)    -> store.get("…/data.zarr/mask/c/0"), hash, cut
    zarr: get("mask/c/0", bytes 0..1 MiB)    -> from memory, cut

Zarr is asynchronous and the stores are not, so each call runs on a thread.

A missing object is None to Zarr, which silently reads the fill value, here zeros: an unmoved mask. So a caller that
reads through a view makes sure first that every chunk is listed (``Artifact._array``) and that the store raises when
one is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from maskreg.errors import NotFoundError
from maskreg.limits import LIMITS
from maskreg.store.base import Store, check_prefix


class ZarrView(ZarrStore):
    """The objects under ``prefix`` of a store, as a read-only Zarr v3 store; none may exceed ``max_bytes``."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, store: Store, prefix: str = "", *, max_bytes: int = LIMITS.object_bytes) -> None:
        super().__init__(read_only=True)
        self._store = store
        self._prefix = check_prefix(prefix)
        self._max_bytes = max_bytes

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The object's bytes or a range of them; None when there is no such object."""
        await self._ensure_open()
        try:
            data = await asyncio.to_thread(self._store.get, self._prefix + key, max_bytes=self._max_bytes)
        except NotFoundError:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(_cut(data, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several objects or ranges of objects, in the order of ``key_ranges``."""
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return await asyncio.to_thread(self._store.head, self._prefix + key) is not None

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Keys that begin with ``prefix``, which may end anywhere."""
        for key in await asyncio.to_thread(self._keys, prefix[: prefix.rfind("/") + 1]):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly below ``prefix``: objects, and the first segments of longer keys."""
        folder = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
        keys = await asyncio.to_thread(self._keys, folder)
        for name in dict.fromkeys(key.removeprefix(folder).partition("/")[0] for key in keys):
            yield name

    async def set(self, key: str, value: Buffer) -> None:
        """Refused."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refused."""
        self._check_writable()

    def _keys(self, folder: str) -> tuple[str, ...]:
        return tuple(info.key.removeprefix(self._prefix) for info in self._store.list(self._prefix + folder))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, ZarrView) and (self._store, self._prefix) == (value._store, value._prefix)

    def __hash__(self) -> int:
        return hash(self._prefix)

    def __repr__(self) -> str:
        return f"ZarrView({self._store!r}, {self._prefix!r})"


def _cut(data: bytes, byte_range: ByteRequest | None) -> bytes:
    match byte_range:
        case None:
            return data
        case RangeByteRequest(start, end):
            return data[start:end]
        case OffsetByteRequest(offset):
            return data[offset:]
        case SuffixByteRequest(suffix):
            return data[max(0, len(data) - suffix) :]
    raise ValueError(f"Unexpected byte_range, got {byte_range!r}")
