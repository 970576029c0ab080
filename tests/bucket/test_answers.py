"""What a bucket's service answers, as errors of this package."""

from __future__ import annotations

from botocore.exceptions import ClientError

from maskreg.bucket.client import of_answer
from maskreg.errors import RefusedError


def test_a_clock_that_is_wrong_is_named() -> None:
    answer = {"Error": {"Code": "RequestTimeTooSkewed"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    error = of_answer(ClientError(answer, "GetObject"), "s3://masks/team", "masks", "get", "maskreg.json")  # type: ignore[arg-type]
    assert isinstance(error, RefusedError)
    assert "clocks of this machine and of the service differ" in error.message
    assert error.hint == "timedatectl"
