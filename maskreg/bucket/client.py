"""The client of an S3 service: from settings and the AWS chain, with patience of its own."""

from __future__ import annotations

import math
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from maskreg.errors import ConfigError
from maskreg.settings import StoreOptions
from maskreg.settings.urls import check_address

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECTIONS = 32


def connect(
    options: StoreOptions,
    *,
    connect_seconds: float = 5,
    read_seconds: float = 20,
    attempts: int = 3,
    patience_seconds: float = math.inf,
) -> S3Client:
    """A client, which sends nothing yet; whoever gets it closes it.

    Args:
        options: how to talk to the service.
        connect_seconds: how long to wait for a connection.
        read_seconds: how long to wait for the next bytes of an answer.
        attempts: tries of a request before the service counts as unavailable.
        patience_seconds: since its first try, after which a request without an answer is not tried again.

    Raises:
        botocore.exceptions.BotoCoreError: settings that are not usable; see :mod:`maskreg.bucket.answers`.
    """
    import boto3
    from botocore.config import Config

    session = boto3.Session(profile_name=options.profile or None, region_name=options.region or None)
    client = session.client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=session.region_name or "us-east-1",
        verify=options.ca_bundle or None,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": addressing(options)},
            request_checksum_calculation=options.checksums,
            response_checksum_validation=options.checksums,
            connect_timeout=connect_seconds,
            read_timeout=read_seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=_CONNECTIONS,
        ),
    )
    # A service that hangs takes the whole time to read at each try, and one that is gone takes none.
    client.meta.events.register("before-call.s3", _begin)
    client.meta.events.register_first("needs-retry.s3", partial(_give_up, patience_seconds))
    return client


_BEGUN = "maskreg_begun"


def _begin(context: dict[str, Any], **_: object) -> None:
    context[_BEGUN] = time.monotonic()


def _give_up(
    patience_seconds: float, request_dict: dict[str, Any], caught_exception: Exception | None, **_: object
) -> None:
    if caught_exception is not None and time.monotonic() - request_dict["context"][_BEGUN] > patience_seconds:
        raise caught_exception


def check_options(options: StoreOptions) -> None:
    """Check what needs no request.

    Raises:
        ConfigError: an endpoint that is none, or has a user or password in it; a missing CA bundle.
    """
    if endpoint := _endpoint(options):
        check_address(endpoint, "the store's endpoint")
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            origin = "" if options.endpoint else " (AWS_ENDPOINT_URL)"
            raise ConfigError(f"{endpoint!r}{origin} is not an endpoint", hint="write https://host[:port]")
    if options.ca_bundle and not Path(options.ca_bundle).exists():
        raise ConfigError(f"the CA bundle {options.ca_bundle} does not exist", setting="ca_bundle")


def addressing(options: StoreOptions) -> Literal["auto", "path", "virtual"]:
    """Whether the bucket's name goes into the path or the host name of a URL."""
    if options.addressing != "auto":
        return options.addressing
    # Few services other than AWS have a host name for each bucket.
    return "path" if _endpoint(options) else "auto"


def _endpoint(options: StoreOptions) -> str:
    """As the options say, or else the environment; empty for that of AWS."""
    return options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
