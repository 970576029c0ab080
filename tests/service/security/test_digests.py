"""That a digest opens nothing, and is not confirmed either: whoever may write elsewhere learns nothing by sending."""

from __future__ import annotations

from typing import Any

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from tests.service.security.conftest import Site
from tests.service.security.test_bodies import OBJECTS, stated

STRANGER = "stranger-token"


def _answers(site: Site, digest: Digest) -> list[tuple[int, dict[str, Any]]]:
    """What a writer of another project is told of an artifact, without the artifact's name in it."""
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
        results.append((answer.status_code, {"text": text.replace(answer.headers["x-request-id"], "ID")}))
    return results


def test_nobody_learns_which_artifacts_of_others_are_here_by_sending_objects(site: Site) -> None:
    hidden = _answers(site, site.digests["hidden"])
    assert hidden == _answers(site, Digest.of(b"nothing"))
    assert {status for status, _ in hidden} == {422}
    assert all("not known here" in row["text"] for _, row in hidden)


def test_who_has_the_manifest_may_send_what_it_lists(site: Site) -> None:
    hidden = site.digests["hidden"]
    manifest = site.service.registry.store.get(artifact_prefix(hidden) + MANIFEST, max_bytes=4 << 20)
    client = site.client(STRANGER)
    announced = f"{OBJECTS}/announced/sha256/{hidden.hex}/{MANIFEST}"
    assert client.put(announced, content=manifest, headers=stated(manifest)).status_code == 201
    tensors = site.service.registry.store.get(artifact_prefix(hidden) + "tensors.json", max_bytes=64 << 20)
    where = f"{OBJECTS}/{artifact_prefix(hidden)}tensors.json"
    assert client.put(where, content=tensors, headers=stated(tensors)).status_code == 201
    other = client.put(where, content=b"other", headers=stated(b"other"))
    assert (other.status_code, other.json()["code"]) == (422, "DIGEST_MISMATCH")
