"""The page of an artifact: what it says, and what it does not give away."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.service.app import create_app
from maskreg.workspace.verbs import keys
from tests.service.pages.conftest import EVIL, LAYERS, MODULES
from tests.service.serving import ADMIN, headers, service_in


def section(text: str, anchor: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"<h[23]", text.partition(f'id="{anchor}"')[2])[0]


def plain(markup: str) -> str:
    """The text alone, without definitions."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r'<span class="tip".*?</span>', "", markup)).split())


def test_it_says_what_it_is(client: TestClient) -> None:
    text = client.get("/p/team/toy-opd:v1").text
    answer = plain(section(text, "answer").partition("</div>")[0])
    assert "gives the target bit for bit" in answer
    assert re.search(r"[\d.]+.% of 10,240 coordinates moved under the rule exact\.", answer)
    assert re.search(r"lie in the FFN: [\d.]+x its share", answer)


def test_it_has_a_cell_for_every_layer_and_module(client: TestClient) -> None:
    cells = re.findall(r'<td class="c(\d+)">([\d.]+)</td>', section(client.get("/p/team/toy-opd:v1").text, "layers"))
    assert len(cells) == LAYERS * len(MODULES)
    low, high = min(cells, key=lambda cell: float(cell[1])), max(cells, key=lambda cell: float(cell[1]))
    assert int(low[0]) < int(high[0])


def test_its_lines_can_be_typed(client: TestClient) -> None:
    text = section(client.get("/p/team/toy-opd:v1").text, "use")
    assert "maskreg pull team/toy-opd:v1 --remote server | maskreg apply" in text
    assert "maskreg remote add server http://localhost" in text
    python = re.search(r"import maskreg.*?</code>", text, re.DOTALL)
    assert python is not None
    compile(python[0].removesuffix("</code>").replace("&#34;", '"'), "page", "exec")
    assert "| maskreg apply" not in section(client.get("/p/team/both").text, "use")


def test_its_lineage_leads_to_what_it_was_made_of(client: TestClient) -> None:
    text = section(client.get("/p/team/both").text, "lineage")
    assert set(re.findall(r'<a href="/p/([^"]+)">', text)) == {"team/toy-opd:v1", "team/toy-rlvr:v1"}
    assert "10,240 params" in text
    assert "target" in section(client.get("/p/team/toy-opd:v1").text, "lineage")


def test_ancestors_that_a_reader_may_not_know_have_no_name(client: TestClient) -> None:
    assert "secret" not in client.get("/p/team/both").text
    # The same artifact has a second name, which an administrator may see.
    assert "secret/plan" not in client.get("/p/team/toy-opd:v1").text


def test_the_history_says_who_changed_it_from_what_to_what(client: TestClient) -> None:
    text = section(client.get("/p/team/toy-opd:v1").text, "history")
    assert re.findall(r"<td>(created|annotated)</td>", text) == ["annotated", "created"]
    digest = re.findall(r"@(sha256:[0-9a-f]{64})", text)[0]
    pinned = client.get(f"/p/team/toy-opd:v1@{digest}")
    assert pinned.status_code == 200
    assert "earlier version" not in pinned.text


def test_a_digest_that_the_name_never_had_is_not_shown(client: TestClient) -> None:
    shown = client.get("/p/team/toy-rlvr:v1").text
    digest = re.findall(r"@(sha256:[0-9a-f]{64})", shown)[0]
    answer = client.get(f"/p/team/toy-opd:v1@{digest}")
    assert answer.status_code == 404
    assert "never pointed to" in answer.text


@pytest.mark.parametrize("reference", ["nothing", "toy-opd:v9", "UPPER", "a:b:c", "..", "%2e%2e", "toy-opd@sha256:00"])
def test_what_does_not_exist_says_so_and_nothing_else(client: TestClient, reference: str) -> None:
    answer = client.get(f"/p/team/{reference}")
    assert answer.status_code in (404, 422)
    assert "/home" not in answer.text
    assert "secret" not in answer.text
    assert "file://" not in answer.text


def test_a_name_of_a_project_that_one_may_not_read_does_not_exist(client: TestClient) -> None:
    unreadable = client.get("/p/secret/plan:v1", headers=headers("reader-token"))
    missing = client.get("/p/nowhere/plan:v1", headers=headers("reader-token"))
    assert unreadable.status_code == missing.status_code == 404
    assert unreadable.text.replace("secret", "nowhere") == missing.text
    assert client.get("/p/secret/plan:v1", headers=headers(ADMIN)).status_code == 200


@pytest.mark.parametrize("path", ["/p/team/toy-opd:v1", "/?q=toy", "/?q=%3Cscript%3Ealert(1)%3C/script%3E"])
def test_what_people_wrote_stays_text(client: TestClient, path: str) -> None:
    text = client.get(path).text
    assert "<script>" not in text
    assert not re.search(r"<[^>\"]*(\"[^\"]*\"[^>\"]*)*\sonerror", text)
    assert not re.search(r'href="(?!https?://|/|#)', text)
    assert not re.search(r"<(?!/)[^>]* style=", text)


def test_what_people_wrote_is_shown(client: TestClient) -> None:
    text = client.get("/p/team/toy-opd:v1").text
    assert "<strong>on purpose</strong>" in text
    assert '<a href="https://example.org/a" rel="nofollow noopener noreferrer">recipe</a>' in text
    assert EVIL in unescape(text)


def test_it_says_who_vouches_for_the_tag(client: TestClient, home: Path, tmp_path: Path) -> None:
    assert "Unsigned: the project has no key." in client.get("/p/team/toy-opd:v1").text
    folder = tmp_path / "home"
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("service.db*", "catalog.db*"))
    with maskreg.Workspace(maskreg.Settings(home=folder, config_path=folder / "config.toml")) as space:
        key = keys.create("team", workspace=space).key
        maskreg.annotate("team/toy-opd:v1", license="mit", workspace=space)
    signed = TestClient(create_app(service_in(folder, frozenset({"team"}))), "http://localhost")
    verification = plain(section(signed.get("/p/team/toy-opd:v1").text, "verification"))
    assert f"is signed, by the key {key}" in verification


def test_programs_get_problems_and_browsers_pages(client: TestClient) -> None:
    answer = client.get("/p/team/nothing", headers={"Accept": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.text)["title"] == "there is no team/nothing"
    assert client.get("/p/secret/plan", headers={"Accept": "*/*"}).status_code == 401
