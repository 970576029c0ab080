"""Paths in buckets beside paths on a disk: the same answers for the same files."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from maskreg import errors
from maskreg.bucket import BucketPath, Location, is_url, on_disk
from maskreg.bucket.client import of_answer
from maskreg.settings import StoreOptions
from tests.buckets import options_of, upload
from tests.servers import S3Server

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "empty": b"", "inner/deep/x.bin": b"deep"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "step-60"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(params=["disk", "bucket"])
def root(request: pytest.FixtureRequest, folder: Path, server: S3Server, bucket: str) -> Location:
    return folder if request.param == "disk" else upload(server, folder, bucket, "runs/step-60")


def test_a_folder_and_its_files(root: Location) -> None:
    assert sorted(entry.name for entry in root.iterdir()) == ["config.json", "empty", "inner", "model.safetensors"]
    assert root.is_dir()
    assert not root.is_file()
    inner = root / "inner"
    assert (inner.is_dir(), inner.is_file(), inner.exists()) == (True, False, True)
    assert [entry.name for entry in (inner / "deep").iterdir()] == ["x.bin"]
    for name, data in FILES.items():
        path = root / name
        assert (path.is_dir(), path.is_file(), path.exists()) == (False, True, True)
        assert path.read_bytes() == data
        assert path.stat().st_size == len(data)
    missing = root / "missing"
    assert (missing.is_dir(), missing.is_file(), missing.exists()) == (False, False, False)
    with pytest.raises(FileNotFoundError):
        missing.read_bytes()


def test_names(root: Location) -> None:
    path = root / "model.safetensors"
    assert (path.name, path.suffix, path.parent) == ("model.safetensors", ".safetensors", root)
    assert (root.name, root.suffix) == ("step-60", "")
    assert str(path) == f"{root}/model.safetensors"
    assert str(path.with_suffix(".bin")) == f"{root}/model.bin"
    assert path.absolute() == path
    assert sorted([root / "b", root / "a"]) == [root / "a", root / "b"]


def test_urls() -> None:
    path = BucketPath.of("s3://team//runs/step-60/")
    assert (str(path), path.key, path.bucket.root) == ("s3://team/runs/step-60", "runs/step-60", "s3://team")
    assert str(BucketPath.of("gs://team")) == "gs://team"
    assert path != BucketPath.of("s3://team/runs/step-60", StoreOptions(region="eu-central-1"))
    for url in (
        "s3://",
        "s3:///key",
        "http://host/x",
        "s3://team/../x",
        "s3://user:word@team/x",
        "s3://team/x?y=1",
        "s3://team/x\n",
    ):
        with pytest.raises(errors.ConfigError):
            BucketPath.of(url)
    assert is_url("s3://team")
    assert not any(map(is_url, ("s3:/team", "org/name", "s3", "file:///x")))


def test_what_needs_a_disk_says_so() -> None:
    with pytest.raises(errors.UsageError, match=r"training .*s3://team/x") as caught:
        on_disk(BucketPath.of("s3://team/x"), "training")
    assert "aws s3 cp --recursive s3://team/x/ " in caught.value.hint
    with pytest.raises(errors.UsageError) as caught:
        on_disk(BucketPath.of("gs://team/x"), "training")
    assert "gcloud storage cp -r gs://team/x/ FOLDER" in caught.value.hint
    assert on_disk(Path("x"), "training") == Path("x")


def test_a_folder_is_as_it_was_first_seen(server: S3Server, folder: Path, bucket: str) -> None:
    path = upload(server, folder, bucket, "seen")
    before = {entry.name for entry in path.iterdir()}
    server.client.put_object(Bucket=bucket, Key="seen/late.json", Body=b"{}")
    assert {entry.name for entry in path.iterdir()} == before
    assert (BucketPath.of(str(path), options_of(server)) / "late.json").is_file()


def test_an_object_that_marks_a_folder_is_no_file(server: S3Server, bucket: str) -> None:
    server.client.put_object(Bucket=bucket, Key="marked/", Body=b"")
    server.client.put_object(Bucket=bucket, Key="marked/x.json", Body=b"{}")
    assert [entry.name for entry in BucketPath.of(f"s3://{bucket}/marked").iterdir()] == ["x.json"]


def test_what_lies_beside_a_checkpoint_does_not_matter(server: S3Server, folder: Path, bucket: str) -> None:
    path = upload(server, folder, bucket, "beside/step-60")
    server.client.put_object(Bucket=bucket, Key="beside/a\nb/x.json", Body=b"{}")
    assert path.is_dir()
    assert (path / "config.json").read_bytes() == b"{}"
    with pytest.raises(errors.FormatError, match=r"'beside/a\\nb/'"):
        BucketPath.of(f"s3://{bucket}/beside", options_of(server)).exists()


def test_what_the_service_refuses(server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.NotFoundError, match="s3://no-such-bucket"):
        BucketPath.of("s3://no-such-bucket/x").exists()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(errors.NotAllowedError, match="SignatureDoesNotMatch") as caught:
        BucketPath.of(f"s3://{bucket}/x").exists()
    assert "s3:ListBucket" in caught.value.hint
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(errors.RefusedError, match=f"s3://{bucket}: "):
        BucketPath.of(f"s3://{bucket}/x").exists()


def test_other_services_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.bucket.path.RETRIES", 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(errors.NotAllowedError, match="gs://other-team/x: ") as caught:
        BucketPath.of("gs://other-team/x").exists()
    assert "gcloud auth" in caught.value.hint
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(errors.ConfigError, match="az://team") as incomplete:
        BucketPath.of("az://team/x").exists()
    assert "AZURE_STORAGE_ACCOUNT_NAME" in incomplete.value.hint


def test_a_service_that_does_not_answer(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.bucket.path.RETRIES", 0)
    with pytest.raises(errors.UnavailableError):
        BucketPath.of("s3://team/x", StoreOptions(endpoint="http://127.0.0.1:9")).exists()


@pytest.mark.usefixtures("server")
def test_a_signal_ends_the_wait_for_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def interrupt() -> None:
            connection, _ = listener.accept()
            with connection:
                os.kill(os.getpid(), signal.SIGINT)
                is_over.wait()
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        service = threading.Thread(target=interrupt)
        service.start()
        path = BucketPath.of("s3://team/x", StoreOptions(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        with pytest.raises(KeyboardInterrupt):
            path.exists()
        (request,) = (thread for thread in threading.enumerate() if thread.name == "maskreg-request")
        is_over.set()
        service.join()
        request.join()


def test_a_clock_that_is_wrong_is_named() -> None:
    answer = {"Error": {"Code": "RequestTimeTooSkewed"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    error = of_answer(ClientError(answer, "GetObject"), "s3://masks/team", "masks", "get", "maskreg.json")  # type: ignore[arg-type]
    assert isinstance(error, errors.RefusedError)
    assert error.hint == "timedatectl"
