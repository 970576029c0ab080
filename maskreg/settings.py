"""Settings: what a user chose, and where each choice came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class StoreOptions:
    """How to talk to an S3-compatible store. Credentials come from the AWS chain, never from here.

    Attributes:
        endpoint: base URL of the service; empty for AWS.
        region: region name; empty for the AWS chain's.
        profile: profile of the shared AWS configuration; empty for the default chain.
        addressing: bucket in the path or in the host name; ``auto`` means path when an endpoint is given.
        checksums: boto3's request and response checksum mode; some compatible stores only take ``when_required``.
        ca_bundle: path of a CA bundle for TLS; empty for the system's.
    """

    endpoint: str = ""
    region: str = ""
    profile: str = ""
    addressing: Literal["auto", "path", "virtual"] = "auto"
    checksums: Literal["when_required", "when_supported"] = "when_required"
    ca_bundle: str = ""


@dataclass(frozen=True)
class Remote:
    """A registry elsewhere, by name.

    Attributes:
        name: what the user calls it.
        url: ``s3://bucket/prefix``, ``file:///path`` or an absolute path.
        catalog: SQLAlchemy URL of its PostgreSQL index; empty when the store alone is the registry.
        options: how to talk to the store.
    """

    name: str
    url: str
    catalog: str = ""
    options: StoreOptions = field(default_factory=StoreOptions)
