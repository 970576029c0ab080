"""A part appears as a whole or not at all, also when the process that moves its objects dies between two of them."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from pathlib import Path

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import CorruptError, PartAbsentError
from maskreg.registry import Registry
from maskreg.registry.archive import export_file, import_file
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.verify import verify
from maskreg.store import FileStore
from tests.registry.conftest import REF
from tests.registry.steps import Killed


class Dies:
    """Kills after so many renames into an artifact."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self.rename = Path.replace
        monkeypatch.setattr(Path, "replace", lambda path, to: self(path, to))

    def __call__(self, path: Path, to: Path) -> Path:
        if "incoming" in path.parts:
            if not self.left:
                raise Killed
            self.left -= 1
        return self.rename(path, to)


@pytest.mark.parametrize("way", ["pull", "import"])
def test_killed_between_two_moves(
    way: str, local: Registry, remote: Registry, digest: Digest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(local, remote, REF)
    out = io.BytesIO()
    export_file(local, REF, out)

    def bring(registry: Registry) -> None:
        if way == "pull":
            pull(registry, remote, REF, jobs=1)
        else:
            import_file(registry, io.BytesIO(out.getvalue()))

    left, finished, pieces = 0, False, 0
    while not finished:
        folder = tmp_path / str(left)
        with Registry(FileStore(folder), root=folder) as home:
            pull(home, remote, REF, parts=("mask",))
            with monkeypatch.context() as patched:
                Dies(patched, left)
                try:
                    bring(home)
                    finished = True
                except Killed:
                    pass
            if not finished:
                present = home.artifact(digest).present()
                assert "mask" in present
                if "delta" not in present:
                    with pytest.raises(PartAbsentError):
                        home.artifact(digest).require("delta")
                assert verify(home).ok
                pieces += any(home.root.glob(f"{artifact_prefix(digest)}data.zarr/delta*")) if home.root else 0
                age_everything(home)
                collect(home, timedelta(0))
                assert home.artifact(digest).present() == present
                bring(home)
            assert {"mask", "delta"} <= home.artifact(digest).present()
            assert verify(home).ok
        left += 1
    assert pieces > 1


def age_everything(registry: Registry) -> None:
    assert registry.root is not None
    for path in registry.root.glob("incoming/**/*"):
        os.utime(path, (1, 1))


def test_pieces_that_nothing_completes_are_damage(local: Registry, digest: Digest) -> None:
    local.store.delete([artifact_prefix(digest) + "data.zarr/delta/zarr.json"])
    with pytest.raises(CorruptError, match="missing"):
        local.artifact(digest).present()
    assert not verify(local).ok


def test_a_stray_is_refused_by_every_reader(local: Registry, remote: Registry, digest: Digest) -> None:
    local.store.put(artifact_prefix(digest) + "data.zarr/stray", b"")
    for read in (
        lambda: push(local, remote, REF),
        lambda: export_file(local, REF, io.BytesIO()),
        lambda: local.artifact(digest).present(),
    ):
        with pytest.raises(CorruptError, match="not an object of this artifact"):
            read()
    assert list(remote.store.list("")) == []
