"""Attacks on the documents of an artifact and on ref entries: mutated, sealed and hashed again, then used."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from maskreg.artifact.layout import MANIFEST, TENSORS, artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.digest import Digest, sealed
from maskreg.document import canonical
from maskreg.errors import DataError
from maskreg.ref import Card, Ref
from maskreg.store.entry import RefEntry, entry_key
from maskreg.update.delta import Delta
from tests.artifact.making import agree, pair, write
from tests.mutation import damaged, mutated, written
from tests.store.memory import MemoryStore


class Target:
    """One real artifact, and attacks on it.

    Attributes:
        objects: its objects by key.
        manifest: its manifest.
    """

    def __init__(self, root: Path) -> None:
        digest = write(root, pair())
        folder = root / artifact_prefix(digest)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.manifest: dict[str, Any] = json.loads(files.pop(MANIFEST))
        self.objects = files
        self.documents = {key: json.loads(data) for key, data in files.items() if key.endswith(".json")}
        self.shards = [key for key in files if "/c/" in key]

    def attack(self, case: int) -> str:
        """Run one case; the same number is always the same case.

        Returns:
            How it ended: ``fine``, or the name of the error.
        """
        rng = random.Random(case)
        store = MemoryStore()
        kind = rng.choice(("manifest", "table", "zarr", "zarr", "shard", "entry"))
        try:
            if kind == "entry":
                _use_entry(rng)
            else:
                _use(store, self._forged(store, kind, rng))
        except DataError as error:
            return f"{kind} {type(error).__name__}"
        return f"{kind} fine"

    def _forged(self, store: MemoryStore, kind: str, rng: random.Random) -> Digest:
        objects, manifest = dict(self.objects), json.loads(json.dumps(self.manifest))
        if kind == "table":
            objects[TENSORS] = written(mutated(self.documents[TENSORS], rng), rng)
        elif kind == "zarr":
            key = rng.choice([key for key in self.documents if key != TENSORS])
            objects[key] = written(mutated(self.documents[key], rng), rng)
        elif kind == "shard":
            key = rng.choice(self.shards)
            objects[key] = damaged(objects[key], rng)
        agree(manifest, objects)
        if kind == "manifest":
            manifest = mutated(manifest, rng)
        data = written(manifest, rng) if kind == "manifest" else canonical(manifest)
        digest = Digest.of(data)
        for key, content in {**objects, MANIFEST: data}.items():
            store.put(artifact_prefix(digest) + key, content)
        return digest


def _use(store: MemoryStore, digest: Digest) -> None:
    """Read everything that an artifact holds, as its commands do."""
    artifact = Artifact.open(store, digest)
    artifact.check_layout()
    list(recount(artifact))
    for part in artifact.manifest.parts:
        artifact.files(part)
    for revert in {"reverse" in artifact.manifest.parts, False}:
        delta = Delta(artifact, revert=revert)
        for tensor in delta.values():
            for span in tensor.spans():
                assert span.stop <= (tensor.after.numel if tensor.after else 0)


def _use_entry(rng: random.Random) -> None:
    ref, made = Ref("project", "name", "tag"), datetime(2026, 1, 1, tzinfo=UTC)
    point = (ref.project, ref.name, ref.tag, 2, Digest.of(b"x"), False, Card(family="f"))
    entry = RefEntry(*point, by="ada", at=made, write_id="w", previous=Digest.of(b"y"))
    row = mutated(json.loads(entry.to_bytes()), rng)
    try:
        data = sealed(row) if isinstance(row, dict) and rng.random() < 0.9 else written(row, rng)
    except ValueError:  # what cannot be written canonically is stored as it is
        data = written(row, rng)
    RefEntry.parse(entry_key(ref, 2), data)
