from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.errors import ConfigError, UsageError
from maskreg.settings import StoreOptions
from maskreg.store import FileStore, open_store
from maskreg.store.s3 import S3Store


def test_a_path_or_file_url_opens_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "with space#and%hash"
    for url in (str(folder), folder.as_uri(), "~/with space#and%hash"):
        assert isinstance(store := open_store(url), FileStore)
        assert store.root == folder
    assert open_store(FileStore(folder).url).url == FileStore(folder).url


def test_an_s3_url_names_bucket_and_prefix() -> None:
    options = StoreOptions(endpoint="http://localhost:9000")
    store = open_store("s3://bucket/team/a/", options)
    assert isinstance(store, S3Store) and store.options == options
    assert (store.url, repr(store)) == ("s3://bucket/team/a", "S3Store('s3://bucket/team/a')")
    assert open_store("s3://bucket").url == "s3://bucket"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://registry.example",
        "https://host?x=1",
        "file://host/a",
        "s3:///prefix",
        "s3://bucket/a/../b",
        "ftp://x",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises((ConfigError, UsageError)):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["s3://key:hunter2@bucket/a", "s3://bucket/a?secret=hunter2", "https://hunter2@host/", "s3://k:hunt/er2@b"]
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value!r}"
