"""Random damages to an artifact, each followed by apply: never silent, and nothing is left behind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import DataError, NotFoundError
from maskreg.flow.apply.on_disk import apply
from tests.checkpoints import make_pair
from tests.damage import damaged_copy
from tests.flow.making import extracted
from tests.store.memory import MemoryStore

DAMAGES = 300


def test_no_damage_is_silent(tmp_path: Path) -> None:
    # Objects of every kind, and little to decode: much of the damage is in objects that apply does not read.
    source, target = make_pair(tmp_path / "pair", words=100)
    (target / "config.json").write_text('{"changed": true}')
    artifact = extracted(tmp_path / "root", open_checkpoint(source), open_checkpoint(target), reversible=True, jobs=1)
    digest, files = artifact.digest, artifact.store
    objects = {info.key: files.get(info.key, max_bytes=1 << 27) for info in files.list(artifact_prefix(digest))}
    out = tmp_path / "out"
    rng = random.Random(11)
    for _ in range(DAMAGES):
        damaged, touched = damaged_copy(objects, rng)
        store = MemoryStore()
        for key, data in damaged.items():
            store.put(key, data)
        with pytest.raises((DataError, NotFoundError)) as caught:
            apply(Artifact.open(store, digest), open_checkpoint(source), out, jobs=1)
        manifest_is_gone = artifact_prefix(digest) + "manifest.json" not in damaged
        assert manifest_is_gone or any(key in str(caught.value) for key in touched), (touched, caught.value)
        assert not out.exists()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["pair", "root"]
