"""What S3 and its clients say, in our words: one table from their errors to ours, without their secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maskreg.errors import ConfigError, MaskregError, NoSpaceError, NotAllowedError, NotFoundError, UnavailableError

PERMISSIONS = {
    "get": "s3:GetObject",
    "head": "s3:GetObject",
    "put": "s3:PutObject",
    "create": "s3:PutObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}
"""What an account must be granted for each method of a store."""

_DENIED = {
    *("AccessDenied", "AllAccessDisabled", "AccountProblem", "ExpiredToken", "InvalidAccessKeyId"),
    *("InvalidSecurity", "InvalidToken", "NotSignedUp", "RequestTimeTooSkewed", "SignatureDoesNotMatch"),
}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraint"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"}
_PASSING = {"BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "XAmzContentSHA256Mismatch"}
# Kinds of error on this side, by name: which of them exist depends on the version of botocore. It recurses
# without end when a service redirects every request, also the one that asks for the bucket's region.
_NO_CREDENTIALS = {
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "SSOError"),
    *("TokenRetrievalError", "NoAuthTokenError", "LoginError"),
}
_NOT_USABLE = {
    *("ProfileNotFound", "ConfigParseError", "ConfigNotFound", "InvalidConfigError", "NoRegionError"),
    *("InvalidRegionError", "ParamValidationError", "EndpointProviderError", "ValueError", "RecursionError"),
}


@contextmanager
def translated(url: str, bucket: str, operation: str, key: str = "") -> Iterator[None]:
    """Let only our errors leave the block.

    Args:
        url: the store, as messages name it.
        bucket: its bucket.
        operation: the store's method, such as ``put``.
        key: the object it is about.
    """
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
    """Our error for a ``ClientError``: the service answered, and said no."""
    status = status_of(error)
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", "")) or str(status)
    # Only the code is repeated: the service's text can hold key ids and signed headers.
    what = f"{url}: {operation} was refused ({status} {code})" + (f" for {key}" if key else "")
    if code in _FULL or status == 507:
        return NoSpaceError(what)
    if code in _DENIED or status in (401, 403):
        return NotAllowedError(
            what,
            hint=f"check the credentials (aws sts get-caller-identity) and grant {PERMISSIONS[operation]} on {bucket}",
        )
    if code == "NoSuchBucket":
        return NotFoundError(f"there is no bucket {bucket} at {url}", hint=f"aws s3 mb s3://{bucket}")
    if code in _ELSEWHERE or status in (301, 307, 308):
        return ConfigError(what, hint=f"bucket {bucket} is in another region: set the remote's region")
    if status == 404 and operation in ("put", "create"):
        # Writing needs nothing to be there but the bucket.
        return ConfigError(f"{what}: no such bucket, or a wrong endpoint", hint="maskreg config show --origin")
    if status == 404:
        return NotFoundError(f"{url}: there is no {key}" if key else f"there is no bucket {bucket} at {url}")
    if status == 501:
        lacks = "create-only writes" if operation == "create" else f"what {operation} needs"
        return ConfigError(f"{url}: the service does not support {lacks}")
    if status == 429 or status >= 500 or code in _PASSING:
        return UnavailableError(what, hint="try again in a moment")
    return ConfigError(what)


def _of_client(error: Exception, url: str, operation: str) -> MaskregError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    name = type(error).__name__
    if kinds & _NO_CREDENTIALS:
        return NotAllowedError(f"{url}: no usable credentials ({name})", hint="set AWS_PROFILE, or run: aws configure")
    if "SSLError" in kinds:
        return UnavailableError(
            f"{url}: {operation}: the service's certificate was not accepted", hint="set the remote's ca_bundle"
        )
    # A service that redirects to itself for ever: what the recursion meets first decides which error it surfaces in.
    endless = isinstance(getattr(error, "kwargs", {}).get("error"), RecursionError)
    if endless or (kinds & _NOT_USABLE and "HTTPClientError" not in kinds):
        return ConfigError(f"{url}: the S3 settings are not usable ({name})", hint="maskreg config show --origin")
    return UnavailableError(f"{url}: {operation}: the service does not answer ({name})", hint="check the endpoint")
