from __future__ import annotations

import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.opening import HubId
from maskreg.errors import ConfigError, NotFoundError, UnavailableError
from maskreg.extras import install_command
from tests.checkpoints import bf16, make_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache as the library lays it out, holding org/tiny, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "hub" / "models--org--tiny"
    (model / "blobs").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    (model / "refs" / "v1").write_text(COMMIT)
    files = make_checkpoint(tmp_path / "files", {name: bf16((4,)) for name in "abcd"}, shards=2)
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(files.iterdir())):
        file.rename(model / "blobs" / f"{number:064}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number:064}")
    return snapshot


@pytest.mark.parametrize("spec", ["org/tiny", "org/tiny@main", "org/tiny@v1", f"org/tiny@{COMMIT}"])
@pytest.mark.parametrize("download", [False, True])
def test_a_cached_model_opens_without_network(cache: Path, spec: str, download: bool) -> None:
    with open_checkpoint(spec, download=download) as checkpoint:
        assert checkpoint.path.resolve() == cache
        assert checkpoint.hub == f"org/tiny@{COMMIT}"
        assert set(checkpoint.tensors) == set("abcd")
        assert set(checkpoint.small_files()) == {"config.json", "tokenizer.json"}


def test_a_path_into_the_cache_is_recognized(cache: Path) -> None:
    for path in (cache, cache / "model-00001-of-00002.safetensors"):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.hub == f"org/tiny@{COMMIT}"


def test_a_path_that_exists_wins(cache: Path, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "org" / "tiny", {"mine": bf16((4,))})
    with open_checkpoint("org/tiny") as checkpoint:
        assert set(checkpoint.tensors) == {"mine"}
        assert checkpoint.hub == ""


@pytest.mark.parametrize("spec", ["org/other", "org/tiny@v2", "org/tiny@refs/pr/1"])
def test_not_cached(cache: Path, spec: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        open_checkpoint(spec)
    assert caught.value.facts["options"] == {"download": True}
    with pytest.raises(UnavailableError):
        open_checkpoint(spec, download=True)


@pytest.mark.parametrize("missing", ["model-00002-of-00002.safetensors", INDEX_NAME])
def test_a_download_that_was_interrupted(cache: Path, missing: str) -> None:
    (cache / missing).unlink()
    (cache / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(NotFoundError, match="org/tiny@v1") as caught:
        open_checkpoint("org/tiny@v1")
    assert "org/tiny --revision v1" in caught.value.hint


def test_without_the_hub_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError) as caught:
        open_checkpoint("org/tiny")
    assert caught.value.hint == install_command("hub")


@pytest.mark.parametrize("spec", ["", "  ", "nowhere", "./org/tiny", "/nowhere/at/all", "~no-such-user/x", "a\0b"])
def test_nothing_there(cache: Path, spec: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        open_checkpoint(spec)
    assert "org/name[@revision]" in caught.value.hint


def test_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(NotFoundError, match="link"):
        open_checkpoint(tmp_path / "link")


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path / "c", {"w": bf16((4,))})
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_checkpoint("~/c") as checkpoint:
        assert set(checkpoint.tensors) == {"w"}


@pytest.mark.parametrize(
    "text",
    [
        *("org", "org/a/b", "../x", "org/..", "org/x@../../y", "org/x@/y"),
        *("org/-x", "org/a--b", "org/x@", "org/x@a\nb", "http://a/b"),
    ],
)
def test_not_a_hub_id(text: str) -> None:
    assert HubId.parse(text) is None


def test_hub_ids() -> None:
    assert HubId.parse("Qwen/Qwen3-8B") == HubId("Qwen/Qwen3-8B")
    assert HubId.parse("a/b@refs/pr/1") == HubId("a/b", "refs/pr/1")
    assert str(HubId("a/b", "v1")) == "a/b@v1"
