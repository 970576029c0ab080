"""What was changed, in words: who did what, and no key of the store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import maskreg
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.pages.activity import ROWS, SAID
from maskreg.store.entry import entry_key
from maskreg.workspace.verbs.tag import annotate, remove, restore, tag
from tests.service.labs import Lab
from tests.service.serving import ADMIN, ROOT, stated


def listed(lab: Lab, path: str, token: str = ADMIN) -> list[str]:
    answer = lab.client(token).get(path)
    assert answer.status_code == 200
    rows = re.findall(r"</time> <span>(.*?)</span></li>", answer.text)
    return [re.sub(r"<[^>]*>", "", row) for row in rows]


def test_changes_are_told_in_words_with_links(lab: Lab) -> None:
    accounts = lab.service.accounts
    writer = lab.client("writer-token")
    body = {"artifact": str(lab.digests["opd"])}
    assert writer.put("/api/v1/projects/team/refs/both/v1", json=body, headers={"If-None-Match": "*"}).is_success
    token = accounts.tokens.create("ada", Scope("team", Role.READER), accounts.authenticate("writer-token"))
    accounts.tokens.revoke(token.id, ROOT)
    accounts.projects.change("team", ROOT, max_bytes=5 << 30, public=True)
    accounts.members.grant("team", "<i>dave", Role.READER, ROOT)
    assert listed(lab, "/activity/team")[:6] == [
        "root gave &lt;i&gt;dave the role reader in team",
        "root changed team: visitors can read it, 5.0 GiB at most",
        f"root revoked the token {token.id} of team",
        "ada made a token, reader in team",
        "ada published team/both:v1",
        "root made a token for bob, reader in team",
    ]
    assert 'href="/p/team/both:v1"' in lab.client(ADMIN).get("/activity").text
    assert lab.client("writer-token").get("/activity/team").status_code == 403


@pytest.mark.parametrize("said", ["published", "annotated", "removed", "restored"])
def test_an_entry_that_a_client_writes_is_told_by_what_it_did(lab: Lab, said: str) -> None:
    ref = maskreg.Ref.parse("team/opd:v1")
    with maskreg.Workspace(lab.workspace.settings) as space:
        match said:
            case "published":
                tag(lab.digests["rlvr"], ref, by="root", workspace=space)
            case "annotated":
                annotate(ref, license="mit", by="root", workspace=space)
            case _:
                remove(ref, by="root", workspace=space)
        if said == "restored":
            restore(ref, by="root", workspace=space)
        entry = space.local.refs.head(ref)
        assert entry is not None
        key = entry_key(ref, entry.n)
        data = space.local.store.get(key, max_bytes=1 << 20)
        space.local.store.delete([key])
    answer = lab.client(ADMIN).put(
        f"/api/v1/objects/{key}", content=data, headers={"If-None-Match": "*", **stated(data)}
    )
    assert answer.status_code == 201, answer.text
    assert listed(lab, "/activity/team")[0] == f"root {said} team/opd:v1"


def test_what_has_no_words_names_no_key_and_equal_changes_are_joined(lab: Lab) -> None:
    for number in range(ROWS + 5):
        lab.service.accounts.log(ROOT, "delete object", subject=f"artifacts/sha256/{number}")
    lab.service.accounts.log(ROOT, "something new", subject="refs/team/opd/v1/1.json")
    assert listed(lab, "/activity") == ["root: something new", f"root deleted objects of the store {ROWS - 1} times"]
    text = lab.client(ADMIN).get("/activity").text
    older = re.search(r'href="(/activity\?before=\d+)" rel="next"', text)
    assert older is not None
    assert listed(lab, older[1])[0] == "root deleted objects of the store 6 times"
    assert "artifacts/sha256" not in text + lab.client(ADMIN).get(older[1]).text


def test_every_action_that_the_server_logs_has_words() -> None:
    sources = "".join(path.read_text() for path in Path(maskreg.__file__).with_name("service").rglob("*.py"))
    logged = re.findall(r'audited="([^"]+)"|\b(?:record|\.log)\((?:connection|principal), (?:\w+, )?"([^"]+)"', sources)
    assert {first or second for first, second in logged} <= SAID.keys()
    assert len(logged) > 10
