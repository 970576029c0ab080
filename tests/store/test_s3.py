from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from maskreg import errors
from maskreg.settings import StoreOptions
from maskreg.store import open_store
from maskreg.store.probe import probe
from maskreg.store.s3 import S3Store
from tests.buckets import log_in
from tests.servers import S3Server
from tests.store.hosting import Answer, Host, serve

SECRET = "wJalrXUtnFEMI-not-to-be-seen"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testkey")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@contextmanager
def client(endpoint: str, bucket: str = "bucket", attempts: int = 2, seconds: float = 30) -> Iterator[S3Store]:
    options = StoreOptions(endpoint=endpoint)
    store = S3Store(bucket, "p", options, connect_seconds=seconds, read_seconds=seconds, attempts=attempts)
    yield store
    store.close()


@contextmanager
def scripted(*answers: Answer, attempts: int = 2) -> Iterator[tuple[S3Store, Host]]:
    with serve(*answers) as script, client(script.url, attempts=attempts) as store:
        yield store, script


def every_method(store: S3Store) -> list[errors.MaskregError]:
    raised = []
    for action in (
        lambda: store.get("a", max_bytes=10),
        lambda: store.head("a"),
        lambda: store.put("a", b"x"),
        lambda: store.create("a", b"x"),
        lambda: store.list(""),
        lambda: store.delete(["a"]),
        lambda: store.clock(),
    ):
        with pytest.raises(errors.MaskregError) as caught:
            action()
        raised.append(caught.value)
    return raised


def test_a_wrong_secret_is_not_allowed(s3_server: S3Server, bucket: str) -> None:
    with client(s3_server.endpoint, bucket) as store:
        raised = every_method(store)
        assert {type(error) for error in raised} == {errors.RefusedError}
        for error, operation in zip(raised, ("get", "head", "put", "create", "list", "delete"), strict=False):
            assert f" {operation} was refused (403" in str(error)
        assert not any(SECRET in f"{error} {error.hint} {error!r}" for error in raised)
        with pytest.raises(errors.NotAllowedError, match="s3:PutObject"):
            probe(store)
        assert SECRET not in f"{store} {store!r} {store.url}"


def test_without_credentials_it_says_so(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with client(s3_server.endpoint, bucket) as store:
        for error in every_method(store):
            assert isinstance(error, errors.RefusedError)


def test_a_missing_bucket_is_named(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    with client(s3_server.endpoint, "absent-bucket") as store:
        for action in (lambda: store.get("a", max_bytes=1), lambda: store.list("a/"), lambda: store.clock()):
            with pytest.raises(errors.NotFoundError, match="s3://absent-bucket/p"):
                action()
    with scripted(Answer(404)) as (other, _), pytest.raises(errors.NotFoundError, match="s3://bucket/p"):
        other.list("a/")
    # SeaweedFS makes a bucket that is written to; others refuse.
    with scripted(Answer(404, code="NoSuchBucket")) as (other, _):
        for write in (lambda: other.put("a", b""), lambda: other.create("a", b"")):
            with pytest.raises(errors.NotFoundError, match="s3://bucket/p"):
                write()


def test_a_write_to_no_service_is_a_wrong_address() -> None:
    with scripted(Answer(404)) as (store, _):
        for write in (lambda: store.put("a", b""), lambda: store.create("a", b""), lambda: probe(store)):
            with pytest.raises(errors.ConfigError) as caught:
                write()
            assert caught.value.facts["setting"] == "endpoint"


def test_a_hung_server_is_unavailable_and_works_again_later(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    with client(s3_server.endpoint, bucket) as store:
        store.put("kept", b"before")
    with client(s3_server.endpoint, bucket, attempts=1, seconds=0.3) as store:
        s3_server.stop()
        try:
            raised = every_method(store)
        finally:
            s3_server.cont()
        assert {type(error) for error in raised} == {errors.UnavailableError}
    with client(s3_server.endpoint, bucket) as store:
        # Not "a": what was asked while it hung, a delete too, can be done once it goes on.
        assert store.get("kept", max_bytes=10) == b"before"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with serve(Answer()) as script:
        gone = script.url
    with client(gone) as store:
        assert {type(error) for error in every_method(store)} == {errors.UnavailableError}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(500, code="InternalError"), errors.UnavailableError),
        (Answer(503, code="SlowDown"), errors.UnavailableError),
        (Answer(429, code="TooManyRequests"), errors.UnavailableError),
        (Answer(200, b"not what was asked"), errors.UnavailableError),
        (Answer(403, code="AccessDenied"), errors.NotAllowedError),
        (Answer(401, code="Unauthorized"), errors.NotAllowedError),
        (Answer(400, code="ExpiredToken"), errors.NotAllowedError),
        (Answer(404, code="NoSuchBucket"), errors.NotFoundError),
        (Answer(301, code="PermanentRedirect"), errors.ConfigError),
        (Answer(400, code="AuthorizationHeaderMalformed"), errors.ConfigError),
        (Answer(400, code="InvalidRequest"), errors.ConfigError),
        (Answer(501, code="NotImplemented"), errors.ConfigError),
        (Answer(507, code="XMinioStorageFull"), errors.NoSpaceError),
        (Answer(403, code="QuotaExceeded"), errors.NoSpaceError),
    ],
    ids=lambda value: f"{value.status} {value.code}" if isinstance(value, Answer) else "",
)
def test_what_a_service_answers_becomes_one_of_our_errors(answer: Answer, error: type[errors.MaskregError]) -> None:
    with scripted(answer) as (store, _), pytest.raises(error):
        store.list("")


def test_a_body_that_breaks_off_is_asked_for_again() -> None:
    half = Answer(200, b"01234", declared=10)
    with scripted(half, Answer(200, b"0123456789")) as (store, script):
        assert store.get("a", max_bytes=10) == b"0123456789"
        assert [method for method, *_ in script.asked] == ["GET", "GET"]
    with scripted(half, attempts=3) as (store, script), pytest.raises(errors.UnavailableError, match=r"\b3\b"):
        store.get("a", max_bytes=10)
    assert len(script.asked) == 3


def test_a_body_that_is_too_large_is_not_read() -> None:
    # Were it read, it would break off.
    with scripted(Answer(200, b"x", declared=1 << 40)) as (store, script), pytest.raises(errors.LimitError):
        store.get("a", max_bytes=10)
    assert len(script.asked) == 1


PAGE = b"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.mark.parametrize(
    ("request_", "answer", "result"),
    [
        (lambda store: store.get("a", max_bytes=9), Answer(200, b"data"), b"data"),
        (lambda store: store.put("a", b"x"), Answer(200), None),
        (lambda store: store.create("a", b"x"), Answer(200), True),
        (lambda store: store.create("a", b"x"), Answer(412, code="PreconditionFailed"), False),
        (lambda store: store.list(""), Answer(200, PAGE), []),
        (lambda store: store.delete(["a"]), Answer(204), None),
        (lambda store: store.head("a"), Answer(404), None),
    ],
    ids=["get", "put", "create", "created", "list", "delete", "head"],
)
def test_a_service_at_work_on_a_key_is_asked_again(
    request_: Callable[[S3Store], object], answer: Answer, result: object
) -> None:
    conflict = Answer(409, code="OperationAborted")
    with scripted(conflict, Answer(409, code="ConditionalRequestConflict"), answer, attempts=3) as (store, script):
        value = request_(store)
        assert (list(value) if isinstance(value, Iterator) else value) == result
        assert len(script.asked) == 3
    with scripted(conflict) as (store, script), pytest.raises(errors.UnavailableError, match=r"\b2\b"):
        request_(store)
    assert len(script.asked) == 2


def test_a_lost_answer_to_create_looks_like_another_write() -> None:
    with scripted(Answer(500, code="InternalError"), Answer(412, code="PreconditionFailed")) as (store, _):
        assert store.create("a", b"x") is False


def test_settings_are_checked_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in (f"http://user:{SECRET}@host", f"http://{SECRET}@host", f"https://host/?secret={SECRET}"):
        with pytest.raises(errors.ConfigError) as caught:
            S3Store("bucket", "", StoreOptions(endpoint=endpoint))
        assert SECRET not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(errors.ConfigError, match="localhost:9000"):
        S3Store("bucket", "", StoreOptions(endpoint="localhost:9000"))
    with pytest.raises(errors.ConfigError, match="/absent"):
        S3Store("bucket", "", StoreOptions(ca_bundle="/absent"))
    with pytest.raises(errors.ConfigError, match="ProfileNotFound"):
        S3Store("bucket", "", StoreOptions(profile="absent")).list("")


def test_two_prefixes_of_a_bucket_are_two_stores(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    bucket, options = s3_server.new_bucket(), StoreOptions(endpoint=s3_server.endpoint)
    one, two, whole = (S3Store(bucket, prefix, options) for prefix in ("team", "team-two/", ""))
    one.put("a", b"1")
    two.put("a", b"2")
    assert (one.get("a", max_bytes=1), two.get("a", max_bytes=1)) == (b"1", b"2")
    assert [info.key for info in one.list("")] == ["a"]
    assert [info.key for info in whole.list("")] == ["team-two/a", "team/a"]
    for store in (one, two, whole):
        store.close()


@pytest.mark.parametrize("checksums", ["when_required", "when_supported"])
def test_either_checksum_mode_works(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, checksums: str) -> None:
    log_in(s3_server, monkeypatch)
    # The endpoint comes from the environment here, and asks for the bucket in the path anyway.
    store = open_store(f"s3://{s3_server.new_bucket()}/p", StoreOptions(checksums=checksums))  # type: ignore[arg-type]
    assert isinstance(store, S3Store)
    store.put("a", b"x" * 100_000)
    assert store.get("a", max_bytes=100_000) == b"x" * 100_000
    assert store.create("a", b"y") is False
    store.close()
