"""The client of an S3 service, from settings and the AWS chain, and what its errors mean, without secrets they quote.

A service's answer is classified by its error code, then by its HTTP status; an error of the client by the names of its
classes, since which classes exist depends on the version of botocore.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from maskreg.errors import ConfigError, MaskregError, NoSpaceError, NotFoundError, RefusedError, UnavailableError
from maskreg.settings import StoreOptions
from maskreg.settings.remotes import check_address

if TYPE_CHECKING:
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client

PERMISSIONS = {
    "get": "s3:GetObject",
    "head": "s3:GetObject",
    "put": "s3:PutObject",
    "create": "s3:PutObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}
"""The permission that each method of a store needs."""

_DENIED = {
    *("AccessDenied", "AllAccessDisabled", "AccountProblem", "ExpiredToken", "InvalidAccessKeyId"),
    *("InvalidSecurity", "InvalidToken", "NotSignedUp", "SignatureDoesNotMatch"),
}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraint"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"}
_PASSING = {"BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "XAmzContentSHA256Mismatch"}
# RecursionError: botocore follows redirects by asking for the bucket's region, and recurses without end when the
# service redirects that request too.
_NO_CREDENTIALS = {
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "SSOError"),
    *("TokenRetrievalError", "NoAuthTokenError", "LoginError"),
}
_NOT_USABLE = {
    *("ConfigParseError", "ConfigNotFound", "InvalidConfigError", "NoRegionError"),
    *("InvalidRegionError", "ParamValidationError", "EndpointProviderError", "ValueError", "RecursionError"),
}


CREDENTIALS_HINT = "aws configure, or set AWS_PROFILE"
"""The next step where there are no credentials."""


def denied_hint(operation: str, bucket: str) -> str:
    """The next step where credentials were refused."""
    return f"check the credentials (aws sts get-caller-identity), or grant {PERMISSIONS[operation]} on {bucket}"


@contextmanager
def translated(url: str, bucket: str, operation: str, key: str = "") -> Iterator[None]:
    """Let only this package's errors leave the block."""
    import botocore.exceptions as aws
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except MaskregError:
        raise
    except aws.ClientError as error:
        raise of_answer(error, url, bucket, operation, key) from error
    except (aws.BotoCoreError, ResponseParserError, HTTPError, OSError, ValueError, RecursionError) as error:
        raise _of_client(error, url, operation) from error


def status_of(error: Exception) -> int:
    """HTTP status of a ``ClientError``; 0 for anything else."""
    response = getattr(error, "response", {})
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def of_answer(error: Exception, url: str, bucket: str, operation: str, key: str) -> MaskregError:
    """This package's error for a ``ClientError``, an answer that refuses the request."""
    status = status_of(error)
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", "")) or str(status)
    # Only the code is quoted: the service's text can hold key ids and signed headers.
    refusal = f"{url}: {operation} was refused ({status} {code})" + (f" for {key}" if key else "")
    if code in _FULL or status == 507:
        return NoSpaceError(refusal, hint=f"delete what is not needed in {bucket}, or raise its quota")
    if code == "RequestTimeTooSkewed":
        return RefusedError(f"{refusal}: the clocks of this machine and of the service differ", hint="timedatectl")
    if code in _DENIED or status in (401, 403):
        return RefusedError(refusal, hint=denied_hint(operation, bucket))
    if code == "NoSuchBucket":
        return NotFoundError(f"there is no bucket {bucket} at {url}", hint=f"aws s3 mb s3://{bucket}")
    if code in _ELSEWHERE or status in (301, 307, 308):
        return ConfigError(refusal, hint=f"bucket {bucket} is in another region: set the remote's region")
    if status == 404 and operation in ("put", "create"):
        # A write needs nothing to exist but the bucket.
        return ConfigError(f"{refusal}: no such bucket, or a wrong endpoint", setting="endpoint")
    if status == 404:
        return NotFoundError(f"{url}: there is no {key}" if key else f"there is no bucket {bucket} at {url}")
    if status == 501:
        lacks = "create-only writes" if operation == "create" else f"the request for {operation}"
        return ConfigError(f"{url}: the service does not support {lacks}", hint="use another service")
    if status == 429 or status >= 500 or code in _PASSING:
        return UnavailableError(refusal, hint="run the same command again in a moment")
    return ConfigError(refusal, setting="endpoint")


def _of_client(error: Exception, url: str, operation: str) -> MaskregError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    name = type(error).__name__
    if kinds & _NO_CREDENTIALS:
        return RefusedError(f"{url}: no usable credentials ({name})", hint=CREDENTIALS_HINT)
    if "ProfileNotFound" in kinds:
        fault = f"{url}: the S3 settings are not usable ({name})"
        return ConfigError(f"{fault}: the AWS configuration has no such profile", hint="aws configure list-profiles")
    if "SSLError" in kinds:
        return UnavailableError(
            f"{url}: {operation}: the service's certificate was not accepted", hint="set the remote's ca_bundle"
        )
    # A service that redirects to itself: the recursion surfaces in the error that was handled at its limit.
    endless = isinstance(getattr(error, "kwargs", {}).get("error"), RecursionError)
    if endless or (kinds & _NOT_USABLE and "HTTPClientError" not in kinds):
        return ConfigError(f"{url}: the S3 settings are not usable ({name})", setting="endpoint")
    return UnavailableError(f"{url}: {operation}: the service does not answer ({name})", hint="check the endpoint")


_CONNECTIONS = 32


def connect(
    options: StoreOptions, *, connect_seconds: float = 5, read_seconds: float = 20, attempts: int = 3
) -> S3Client:
    """A client, which sends nothing yet; the caller closes it."""
    from botocore.config import Config
    from botocore.session import Session

    session = Session(profile=options.profile or None)
    session.register_component("data_loader", _service_models(session.get_config_variable("data_path")))
    client = session.create_client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or session.get_config_variable("region") or "us-east-1",
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
    client.meta.events.register_first("needs-retry.s3", _give_up)
    return cast("S3Client", client)


@cache
def _service_models(folders: str | None) -> Loader:
    # Parsing what each session would parse again takes six times as long as the rest of a client.
    from botocore.loaders import create_loader

    return create_loader(folders)


def _give_up(caught_exception: Exception | None, **_: object) -> None:
    # A host that is gone answers nothing, however often it is asked; one that restarts refuses at once.
    if type(caught_exception).__name__ == "ConnectTimeoutError":
        raise caught_exception  # type: ignore[misc]  # not None


def check_options(options: StoreOptions) -> None:
    """Check what needs no request."""
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
    """As the options say, or else the environment; empty for the endpoint of AWS."""
    return options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
