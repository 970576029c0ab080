"""Random damage to a stored artifact: never silent."""

import random
from pathlib import Path

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.errors import DataError, NotFoundError
from maskreg.store.file import FileStore
from tests.artifact.making import pair, write
from tests.damage import damaged_copy
from tests.store.memory import MemoryStore

DAMAGES = 500


def test_every_damage_is_found_and_named(tmp_path: Path) -> None:
    digest = write(tmp_path, pair(), files={"config.json": b'{"a":1}', "chat_template.jinja": b"x"})
    files = FileStore(tmp_path)
    objects = {i.key: files.get(i.key, max_bytes=1 << 27) for i in files.list(artifact_prefix(digest))}
    rng = random.Random(7)
    for _ in range(DAMAGES):
        store = MemoryStore()
        damaged, touched = damaged_copy(objects, rng)
        for key, data in damaged.items():
            store.put(key, data)
        with pytest.raises((DataError, NotFoundError)) as caught:
            Artifact.open(store, digest).verify()
        assert f"{artifact_prefix(digest)}manifest.json" not in damaged or any(k in str(caught.value) for k in touched)
