"""Signing in and out, the settings of a person and of a project, and that no page elsewhere can act for either."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from maskreg.ref import README_CHARS, Ref
from maskreg.service.app import create_app
from maskreg.service.pages.signing_in import local
from tests.service.labs import Lab
from tests.service.serving import ADMIN, ROOT, headers, service_in

OWN = {"Origin": "http://localhost"}
FORM = {"role": "writer", "days": "7", "project": "team"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with service_in(tmp_path) as service:
        yield TestClient(create_app(service), "http://localhost", headers={"Accept": "text/html"})


def signed_in(client: TestClient, token: str = ADMIN) -> None:
    data = {"token": token, "next": "/glossary"}
    answer = client.post("/sign-in", data=data, headers=OWN, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/glossary")


@pytest.mark.parametrize(
    "address",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "evil", ""),
        *("\\\\evil.example", "/\n/evil.example", "/\t/evil.example", "http:/evil.example", " //evil.example"),
    ],
)
def test_the_next_page_is_on_this_server(client: TestClient, address: str) -> None:
    assert local(address) == "/"
    answer = client.post("/sign-in", data={"token": ADMIN, "next": address}, headers=OWN, follow_redirects=False)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    ("change", "status"), [({"role": "admin"}, 403), ({"role": "owner"}, 422), ({"days": "0"}, 422)], ids=str
)
def test_a_person_gets_no_token_beyond_their_own_role(client: TestClient, change: dict[str, str], status: int) -> None:
    signed_in(client, "writer-token")
    answer = client.post("/settings/tokens", data={**FORM, **change}, headers=OWN)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")


def test_a_token_is_not_exchanged_for_one_that_may_more_or_lasts_longer(client: TestClient) -> None:
    def made(token: str, project: str, role: str) -> int:
        form = {**FORM, "role": role, "project": project}
        return client.post("/settings/tokens", data=form, headers=headers(token)).status_code

    for project in ("team", "*", "elsewhere"):
        assert {made("writer-token", project, role) for role in ("reader", "writer", "admin")} <= {403, 404}
    assert made("stranger-token", "elsewhere", "reader") == 200


def test_a_typo_in_the_name_of_a_project_makes_none(client: TestClient) -> None:
    signed_in(client)
    answer = client.post("/settings/tokens", data={**FORM, "project": "tema"}, headers=OWN)
    assert answer.status_code == 404
    assert 'aria-describedby="project-fault"' in answer.text
    for path, data in (("members", {"name": "dave", "role": "reader"}), ("visibility", {"public": "true"})):
        assert client.post(f"/settings/p/tema/{path}", data=data, headers=OWN).status_code == 404
    assert "tema" not in client.get("/settings").text
    assert "dave" not in client.get("/activity").text


def test_admins_see_how_much_of_its_quota_a_project_uses(lab: Lab) -> None:
    client = lab.client(ADMIN)
    sizes = {name: lab.workspace.find(f"team/{name}").size for name in ("opd:v1", "rlvr")}
    assert "without a limit" in client.get("/settings/p/team").text
    lab.service.accounts.projects.change("team", ROOT, max_bytes=10 * sum(sizes.values()), max_artifacts=3)
    text = client.get("/settings/p/team").text
    assert f'max="{10 * sum(sizes.values())}"' in text and f'value="{sum(sizes.values())}"' in text
    assert "2 of 3 artifacts" in text and f"{sum(sizes.values()):,} of" in text


def test_an_admin_changes_who_reads_and_writes_a_project(client: TestClient) -> None:
    visitor = TestClient(client.app, "http://localhost", headers={"Accept": "text/html"}, follow_redirects=False)
    signed_in(client)
    assert 'href="/settings/p/team"' in client.get("/settings").text
    members = "/settings/p/team/members"
    assert ">dave<" in client.post(members, data={"name": "dave", "role": "reader"}, headers=OWN).text
    assert ">dave<" not in client.post(members, data={"name": "dave"}, headers=OWN).text
    assert visitor.get("/p/team").status_code == 303
    assert "checked" in client.post("/settings/p/team/visibility", data={"public": "true"}, headers=OWN).text
    assert visitor.get("/p/team").status_code == 200
    assert ">root<" in client.get("/settings/p/*").text
    every = client.post("/settings/p/*/members", data={"name": "dave", "role": "reader"}, headers=OWN).text
    assert ">dave<" in every and 'name="public"' not in every


def test_a_writer_edits_the_readme_of_a_tag(tmp_path: Path, home: Path) -> None:
    with service_in(shutil.copytree(home, tmp_path / "home")) as service:
        client = TestClient(create_app(service), "http://localhost", headers={"Accept": "text/html"})
        signed_in(client, "writer-token")
        address, ref = "/p/team/toy-rlvr:v1", Ref.parse("team/toy-rlvr:v1")
        form = client.get(f"{address}/readme").text
        entry = re.search(r'name="entry" value="([^"]+)"', form)
        assert entry is not None
        said = {"entry": entry[1], "readme": "# Use\r\n\r\n- *first*\r\n"}
        assert "<em>first</em>" in client.post(f"{address}/readme", data=said, headers=OWN).text
        assert service.registry.live(ref).card.readme == ""
        said["save"] = "true"
        assert "<em>first</em>" in client.post(f"{address}/readme", data=said, headers=OWN).text
        assert service.registry.live(ref).card.readme == "# Use\n\n- *first*"
        assert client.post(f"{address}/readme", data=said).status_code == 403
        long = {**said, "readme": "x" * (README_CHARS + 1)}
        for other, status, text in ((long, 422, long["readme"]), (said, 412, "# Use\n\n- *first*</textarea>")):
            answer = client.post(f"{address}/readme", data=other, headers=OWN)
            assert answer.status_code == status and text in answer.text
            assert service.registry.live(ref).id in answer.text
        signed_in(client, "reader-token")
        assert f'{address}/readme"' not in client.get(address).text
        assert client.get(f"{address}/readme").status_code == 403
