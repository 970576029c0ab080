"""Byte objects by key, in a directory, in a bucket or behind a service, and the ref log on top."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from maskreg.errors import ConfigError
from maskreg.settings import StoreOptions
from maskreg.settings.remotes import check_address
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.file import FileStore

__all__ = ["STORES", "FileStore", "ObjectInfo", "Store", "open_store"]


def _file(url: SplitResult, options: StoreOptions) -> Store:
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise ConfigError("a file store needs an absolute path", new_url="file:///absolute/path")
    return FileStore(Path(unquote(url.path)), existing=True)


def _s3(url: SplitResult, options: StoreOptions) -> Store:
    if not url.netloc:
        raise ConfigError("an S3 store needs a bucket", new_url="s3://BUCKET/PREFIX")
    from maskreg.store.s3 import S3Store

    return S3Store(url.netloc, url.path, options)


def _http(url: SplitResult, options: StoreOptions) -> Store:
    from maskreg.store.http import HttpStore

    return HttpStore(url.geturl(), options)


STORES: dict[str, Callable[[SplitResult, StoreOptions], Store]] = {
    "file": _file,
    "http": _http,
    "https": _http,
    "s3": _s3,
}
"""How a store is opened, by the scheme of its URL."""


def open_store(url: str, options: StoreOptions = StoreOptions()) -> Store:  # noqa: B008 - a frozen value
    """Open the store at ``url``; nothing is read or written yet. A folder has to exist before it is used.

    Args:
        url: a path, ``file:///path``, ``s3://bucket/prefix``, or ``https://host`` for a service.
        options: how to talk to a store that is a service.
    """
    if "://" not in url:
        if not url:
            raise ConfigError("a store's URL is empty", new_url="s3://BUCKET/PREFIX")
        return FileStore(Path(url).expanduser(), existing=True)
    check_address(url, "the store")
    parts = urlsplit(url)
    if parts.scheme not in STORES:
        raise ConfigError(
            f"unknown store {parts.scheme}://; known: {', '.join(sorted(STORES))}", new_url="s3://BUCKET/PREFIX"
        )
    return STORES[parts.scheme](parts, options)
