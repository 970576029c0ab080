"""That a digest opens nothing, and is not confirmed either: writers of other projects learn nothing by sending."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import maskreg
from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.settings import Settings
from maskreg.store.entry import NAMES, RefEntry, put_back_reference
from tests.checkpoints import make_checkpoint, moved
from tests.service.labs import SOURCE
from tests.service.security.conftest import Site
from tests.service.security.test_bodies import OBJECTS
from tests.service.serving import stated
from tests.store.memory import MemoryStore

STRANGER = "stranger-token"


def _answers(site: Site, digest: Digest) -> list[tuple[int, str]]:
    client = site.client(STRANGER)
    answers = []
    for name in ("data.zarr/zarr.json", "tensors.json", "nothing/of/it", "doomed"):
        key = artifact_prefix(digest) + name
        answers.append(client.put(f"{OBJECTS}/{key}", content=b"x", headers=stated(b"x")))
        row = {"key": key, "size": 1, "sha256": str(Digest.of(b"x"))}
        answers.append(client.post("/api/v1/uploads", json=row))
        answers.append(client.post("/api/v1/uploads/finished", json={"key": key, "number": "0" * 32}))
    results = []
    for answer in answers:
        text = answer.text.replace(digest.hex, "HEX").replace(digest.short, "SHORT")
        results.append((answer.status_code, text.replace(answer.headers["x-request-id"], "ID")))
    return results


def test_no_client_learns_which_artifacts_of_others_are_here_by_sending_objects(site: Site) -> None:
    hidden = _answers(site, site.digests["hidden"])
    assert hidden == _answers(site, Digest.of(b"nothing"))
    assert {status for status, _ in hidden} == {422}


def _taking(site: Site, entry: RefEntry, digest: Digest) -> list[int]:
    client, prefix, store = site.client(STRANGER), artifact_prefix(digest), MemoryStore()
    listed = client.get(OBJECTS, params={"prefix": prefix})
    looks = [client.head(f"{OBJECTS}/{prefix}{name}") for name in (MANIFEST, "tensors.json")]
    sends = [client.put(f"{OBJECTS}/{prefix}tensors.json", content=b"x", headers=stated(b"x"))]
    entry = replace(entry, project="elsewhere", name=digest.hex[:8], by="eve", digest=digest)
    put_back_reference(store, entry)
    (back,) = (info.key for info in store.list(NAMES))
    client.put(f"{OBJECTS}/{back}", content=store.get(back, max_bytes=1 << 14), headers=stated(entry.to_bytes()))
    names = [client.put(f"{OBJECTS}/{entry.key}", content=entry.to_bytes(), headers=stated(entry.to_bytes()))]
    reads = [client.get(f"{OBJECTS}/{prefix}{MANIFEST}"), client.get(f"/api/v1/artifacts/{digest}")]
    assert listed.text.count("\n") == 1
    return [answer.status_code for answer in (*looks, *sends, *names, *reads)]


REFUSED = [404, 404, 422, 404, 404, 404]


def test_what_was_sent_and_not_named_yet_is_named_by_its_sender_alone(site: Site, tmp_path: Path) -> None:
    with maskreg.Workspace(Settings.load(home=str(tmp_path / "ada"))) as space:
        target = {name: moved(tensor, 0.3, 9) for name, tensor in SOURCE.items()}
        pair = make_checkpoint(tmp_path / "source", SOURCE), make_checkpoint(tmp_path / "target", target)
        digest = maskreg.extract(*pair, "team/sent:v1", workspace=space).digest
        head = replace(space.local.live(Ref("team", "sent", "v1")), by="ada")
        prefix, ada = artifact_prefix(digest), site.client("writer-token")
        store = space.local.store
        objects = {info.key: store.get(info.key, max_bytes=1 << 26) for info in store.list(prefix)}
    manifest = objects.pop(prefix + MANIFEST)
    sent = {f"announced/sha256/{digest.hex}/{MANIFEST}": manifest, **objects, prefix + MANIFEST: manifest}
    for key, data in sent.items():
        assert _taking(site, head, digest) == REFUSED, key
        assert ada.put(f"{OBJECTS}/{key}", content=data, headers=stated(data)).status_code == 201
    assert _taking(site, head, digest) == REFUSED
    assert ada.head(f"{OBJECTS}/{prefix}{MANIFEST}").status_code == 200
    assert ada.get(OBJECTS, params={"prefix": prefix}).text.count("\n") == len(objects) + 2
    entry = head.to_bytes()
    assert ada.put(f"{OBJECTS}/{head.key}", content=entry, headers=stated(entry)).status_code == 201
    assert site.client("reader-token").get(f"{OBJECTS}/{prefix}{MANIFEST}").content == manifest


def test_a_server_without_back_references_lets_the_same_people_in(site: Site) -> None:
    store, digest = site.service.registry.store, site.digests["opd"]
    store.delete([info.key for info in store.list(NAMES)])
    head = replace(site.service.registry.live(Ref("team", "opd", "v1")), n=1, previous=None)
    assert _taking(site, head, digest) == REFUSED
    assert site.client("reader-token").get(f"{OBJECTS}/{artifact_prefix(digest)}{MANIFEST}").status_code == 200
