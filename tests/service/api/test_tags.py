"""Names of a project, their history, and changes that lose no work."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

import maskreg
from tests.service.labs import Lab
from tests.service.serving import ADMIN

V1 = "/api/v1/projects/team/refs/opd/v1"
NEW = "/api/v1/projects/team/refs/opd/new"


def test_a_tag_has_its_card_and_the_id_of_its_entry_as_etag(shared: Lab) -> None:
    answer = shared.client().get(V1)
    document = answer.json()
    (entry,) = maskreg.log("team/opd:v1", workspace=shared.workspace)
    assert (document["digest"], document["id"], document["n"]) == (shared.digests["opd"], entry.id, 1)
    empty = dict.fromkeys(("license", "description", "readme"), "")
    assert document["card"] == {"family": "toy", "method": "opd", "meta": {}, **empty}
    assert answer.headers["etag"] == f'"{entry.id}"'
    assert shared.client().get(V1, headers={"If-None-Match": f'"{entry.id}"'}).status_code == 304


def change(lab: Lab, method: str, path: str, token: str = "writer-token", **kwargs: Any) -> httpx2.Response:
    return lab.client(token).request(method, path, **kwargs)


def test_a_tag_is_set_moved_annotated_removed_and_restored(lab: Lab) -> None:
    body = {"artifact": "team/opd:v1"}
    made = change(lab, "PUT", NEW, json=body, headers={"If-None-Match": "*"})
    assert (made.status_code, made.json()["by"], made.json()["card"]["family"]) == (201, "ada", "toy")
    body = {"artifact": lab.digests["rlvr"], "card": {"family": "other"}}  # type: ignore[dict-item]
    moved = change(lab, "PUT", NEW, json=body, headers={"If-Match": made.headers["etag"]})
    assert (moved.status_code, moved.json()["digest"]) == (200, lab.digests["rlvr"])
    edited = change(
        lab, "PATCH", NEW, json={"license": "mit", "meta": {"seed": "1"}}, headers={"If-Match": moved.headers["etag"]}
    )
    card = {name: value for name, value in edited.json()["card"].items() if value}
    assert card == {"family": "other", "license": "mit", "meta": {"seed": "1"}}
    assert change(lab, "DELETE", NEW, headers={"If-Match": "*"}).status_code == 403
    assert change(lab, "DELETE", NEW, ADMIN, headers={"If-Match": edited.headers["etag"]}).status_code == 204
    assert lab.client().get(NEW).status_code == 404
    history = lab.get("/projects/team/refs/opd/new/history")["items"]
    assert [(row["action"], row["by"]) for row in history] == [
        *(("removed", "root"), ("annotated", "ada"), ("moved", "ada"), ("created", "ada"))
    ]
    back = change(lab, "POST", f"{NEW}/restore", ADMIN, headers={"If-Match": f'"{history[0]["id"]}"'})
    assert (back.status_code, back.json()["card"], back.json()["n"]) == (200, edited.json()["card"], 5)
    older = lab.get("/projects/team/refs/opd/new/history", limit=2)
    rest = lab.get("/projects/team/refs/opd/new/history", cursor=older["next"])
    assert [row["n"] for row in (*older["items"], *rest["items"])] == [5, 4, 3, 2, 1]


def test_a_name_whose_last_tag_was_removed_is_for_admins(lab: Lab) -> None:
    maskreg.tag("team/opd:v1", "team/zzz:a", "team/zzz:b", workspace=lab.workspace)
    other, new, body = f"{V1[:-6]}zzz/other", {"If-None-Match": "*"}, {"artifact": "team/opd:v1"}
    maskreg.remove("team/zzz:a", workspace=lab.workspace)
    assert change(lab, "PUT", other, json=body, headers=new).status_code == 201
    for tag in ("b", "other"):
        maskreg.remove(f"team/zzz:{tag}", workspace=lab.workspace)
    for path in (f"{V1[:-6]}zzz/third", other):
        refused = change(lab, "PUT", path, json=body, headers=new)
        assert (refused.status_code, refused.json()["code"]) == (403, "DENIED"), refused.text
    assert change(lab, "PUT", f"{V1[:-6]}zzz/third", ADMIN, json=body, headers=new).status_code == 201
    assert change(lab, "PUT", f"{V1[:-6]}zzz/fourth", json=body, headers=new).status_code == 201


def test_a_change_to_what_another_client_has_changed_is_refused(lab: Lab) -> None:
    etag = lab.client().get(V1).headers["etag"]
    maskreg.annotate("team/opd:v1", license="mit", by="carl", workspace=lab.workspace)
    for method, path, token in (("PUT", V1, "writer-token"), ("PATCH", V1, "writer-token"), ("DELETE", V1, ADMIN)):
        body = {"PUT": {"artifact": lab.digests["rlvr"]}, "PATCH": {"license": "gpl"}}.get(method)
        answer = change(lab, method, path, token, json=body, headers={"If-Match": etag})
        assert (answer.status_code, answer.json()["code"]) == (412, "STALE")
        answer = change(lab, method, path, token, json=body)
        assert (answer.status_code, answer.json()["code"]) == (428, "PRECONDITION_REQUIRED")
    made = change(lab, "PUT", V1, json={"artifact": "team/rlvr"}, headers={"If-None-Match": "*"})
    assert (made.status_code, made.json()["code"]) == (412, "STALE")
    assert len(maskreg.log("team/opd:v1", workspace=lab.workspace)) == 2


@pytest.mark.parametrize("header", ['W/"sha256:00"', "nonsense", '"sha256:00"', '"a", "b"'])
def test_a_malformed_condition_is_refused(shared: Lab, header: str) -> None:
    answer = change(shared, "PATCH", V1, json={"license": "mit"}, headers={"If-Match": header})
    assert answer.status_code == 422


def test_no_writer_gets_an_artifact_by_pointing_a_tag_at_it(lab: Lab) -> None:
    hidden = lab.digests["hidden"]
    for artifact in (hidden, "secret/hidden", f"secret/hidden@{hidden}", f"team/opd:v1@{hidden}"):
        answer = change(lab, "PUT", NEW, json={"artifact": artifact}, headers={"If-None-Match": "*"})
        assert answer.status_code == 404, artifact
    assert lab.client().get(f"/api/v1/artifacts/{hidden}").status_code == 404
    assert change(lab, "PUT", NEW, json={"artifact": hidden[:30]}, headers={"If-Match": "*"}).status_code == 422
