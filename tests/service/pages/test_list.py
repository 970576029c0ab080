"""The first page: what it lists, and for whom."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from maskreg.service.pages.listing import sparkline
from tests.service.serving import ADMIN, headers

LINKS = re.compile(r'<a href="/p/([^/"]+/[^"]+)">')


def names(client: TestClient, address: str = "/", token: str = "") -> list[str]:
    answer = client.get(address, headers=headers(token))
    assert answer.status_code == 200
    return LINKS.findall(answer.text)


def test_readers_see_the_projects_that_they_may_read(client: TestClient) -> None:
    assert names(client) == ["team/toy-random:latest", "team/both:latest", "team/toy-opd:v1", "team/toy-rlvr:v1"]
    assert "secret/plan:v1" in names(client, token=ADMIN)
    assert "secret" not in client.get("/", headers=headers("stranger-token")).text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=rlvr", ["team/toy-rlvr:v1"]),
        ("method=opd", ["team/toy-opd:v1"]),
        ("kind=baseline", ["team/toy-random:latest"]),
        ("density_min=30", ["team/toy-rlvr:v1"]),
        ("density_max=10", ["team/both:latest"]),
        ("q=&family=&density_min=&kind=mask", ["team/both:latest"]),
        ("sort=name&method=rlvr", ["team/toy-rlvr:v1"]),
        ("rlvr_overlap_min=1", []),
    ],
)
def test_filters(client: TestClient, query: str, expected: list[str]) -> None:
    assert names(client, f"/?{query}") == expected


def test_a_project_has_a_list_of_its_own(client: TestClient) -> None:
    assert len(names(client, "/p/team")) == 4
    assert client.get("/p/secret", headers=headers("reader-token")).status_code == 404
    assert client.get("/p/secret", follow_redirects=False).headers["location"] == "/sign-in?next=%2Fp%2Fsecret"


def test_pages_follow_each_other(client: TestClient) -> None:
    shown, address = [], "/?q=t&limit=3&sort=name"
    while address:
        shown.append(names(client, address))
        following = re.search(r'href="([^"]+)" rel="next"', client.get(address).text)
        address = unescape(following[1]) if following else ""
    assert shown == [["team/both:latest", "team/toy-opd:v1", "team/toy-random:latest"], ["team/toy-rlvr:v1"]]
    assert client.get("/?after=nonsense").status_code == 422


def test_what_no_number_can_be_is_refused(client: TestClient) -> None:
    for query in ("density_min=much", "limit=0", "limit=1001", "sort=nonsense", "density_min=90&density_max=10"):
        answer = client.get(f"/?{query}")
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert 'role="alert"' in answer.text


def test_a_wrong_filter_keeps_the_form_and_names_the_field(client: TestClient) -> None:
    text = client.get("/?q=toy&density_min=much&ffn_lift_min=-1&sort=name").text
    for kept in ('value="toy"', 'name="density_min" value="much"', 'name="ffn_lift_min" value="-1"'):
        assert kept in text
    assert "Density, from %: " in text and 'aria-describedby="fault-ffn_lift_min"' in text
    assert '<option value="name" selected>' in text
    assert LINKS.findall(text) == []
    assert "&lt;script" in client.get("/?density_min=<script>").text


def test_rows_have_the_density_of_each_layer(client: TestClient) -> None:
    assert client.get("/").text.count('<svg class="spark"') == 4


def test_files_are_kept_for_good_under_their_digest(client: TestClient) -> None:
    text = client.get("/").text
    for name in ("site.css", "site.js", "icon.svg"):
        path = re.findall(f'"(/static/[^"]*/{name})"', text)[0]
        assert client.get(path).headers["cache-control"] == "public, max-age=31536000, immutable"
        assert client.get(f"/static/0/{name}").headers["cache-control"] == "no-cache"
    assert client.get("/static/0/site.py").status_code == 404


def test_pages_are_not_kept_for_another_reader(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["vary"] == "Cookie, Authorization"


def test_the_first_page_is_light(client: TestClient) -> None:
    text = client.get("/").text
    files = [client.get(path).content for path in re.findall(r'"(/static/[^"]*)"', text)]
    fixed = len(text.partition("<tbody")[0]) + sum(map(len, files))
    rows = re.findall(r"<tr role.*?</tr>", text, re.DOTALL)
    bare = max(len(re.sub(r"<svg.*?</svg>", "", row, flags=re.DOTALL)) for row in rows)
    # A model of many layers, whose densities all differ.
    spark = len(sparkline([0.1 + layer / 200 for layer in range(96)]))
    assert spark < 500
    assert fixed + 40 * (bare + spark) < 100_000
