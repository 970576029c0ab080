"""The kinds of services that buckets can be in, and what to type at each: next steps of errors."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

from maskreg.bucket.answers import CREDENTIALS_HINT


class ServiceKind(NamedTuple):
    """A kind of service.

    Attributes:
        access: how to get credentials.
        buckets: what lists the buckets.
        listing: what lists the objects of a folder, of the bucket's name and the folder's key (empty for all).
    """

    access: str
    buckets: str
    listing: Callable[[str, str], str]


def _by_url(command: str, scheme: str) -> Callable[[str, str], str]:
    def listing(bucket: str, key: str) -> str:
        url = f"{scheme}://{bucket}/{key}/" if key else f"{scheme}://{bucket}/"
        return f"{command} {shlex.quote(url)}"

    return listing


def _by_container(bucket: str, key: str) -> str:
    prefix = f" --prefix {shlex.quote(key)}" if key else ""
    return f"az storage blob list --output table --container-name {bucket}{prefix}"


KINDS: Mapping[str, ServiceKind] = {
    "s3": ServiceKind(CREDENTIALS_HINT, "aws s3 ls", _by_url("aws s3 ls", "s3")),
    "gs": ServiceKind(
        "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        "gcloud storage ls",
        _by_url("gcloud storage ls", "gs"),
    ),
    "az": ServiceKind(
        "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
        "az storage container list --output table",
        _by_container,
    ),
}
"""By the scheme of their URLs."""
