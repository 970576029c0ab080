"""Names, keys, digests and addresses that are made to reach something else."""

from __future__ import annotations

import http.client
import re
from urllib.parse import quote, urlsplit

import pytest

from maskreg.service.app import create_app
from maskreg.service.gateway.policy import Kind, parse_key
from tests.service.security.conftest import SECRET, Site, routes
from tests.service.serving import ADMIN, ROOT, asking, headers, listening

NAMES = [
    *("..", "../home-evil/secret", "../../home-evil/secret", "/etc/passwd", "//etc/passwd", "file:///etc/passwd"),
    *("C:\\Windows\\win.ini", "..\\home-evil\\secret", "\uff0e\uff0e/secret", "%2e%2e%2fhome-evil%2fsecret"),
    *("team\0", "team\n", "team#../../etc/passwd", "team?x=../../etc/passwd", "TEAM", "con", "a" * 300, "\u202eteam"),
]
"""What is sent in place of every name."""

WRONG = ("a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", "\u0661" * 64, "../" * 3 + "home-evil/secret")
DIGESTS = [
    *(f"sha256:{digits}" for digits in (*WRONG, "../" * 21 + "a")),
    *(f"{kind}{'a' * 64}" for kind in ("sha512:", "SHA256:", "")),
]


async def test_no_name_in_a_path_reaches_out_of_the_server(site: Site) -> None:
    before = site.around()
    client = asking(create_app(site.service))
    client.headers.update(headers(ADMIN))
    count = 0
    for method, path in routes():
        for parameter in re.findall(r"{[^}]+}", path):
            for name in NAMES:
                address = re.sub(r"{[^}]+}", "team", path.replace(parameter, quote(name, safe="")))
                answer = await client.request(method, address)
                count += 1
                case = f"{method} {address}"
                assert answer.status_code < 500, f"{case}: {answer.text}"
                assert not (method != "GET" and answer.status_code in (200, 201) and "team" not in name), case
                for secret in (SECRET, "root:x:", "Traceback", str(site.folder)):
                    assert secret not in answer.text, case
    assert count > 500
    assert site.around() == before
    keys = [info.key for info in site.service.registry.store.list("")]
    assert [key for key in keys if parse_key(key).kind is Kind.FOREIGN] == []


ADDRESSES = [
    *("/../../../../etc/passwd", "/static/../../../../etc/passwd", "/static/x/..%2f..%2f..%2fetc%2fpasswd"),
    *("/api/v1/objects/../../../home-evil/secret", "/api/v1/objects/%2e%2e/home-evil/secret"),
    *("/api/v1/objects//etc/passwd", "/api/v1/objects/%00"),
    "/api/v1/objects/artifacts/sha256/../../../home-evil/secret",
    "http://127.0.0.1/api/v1/objects/../../home-evil/secret",
]


def test_no_raw_address_reaches_out_of_the_server(site: Site) -> None:
    with listening(create_app(site.service)) as url:
        for path in ADDRESSES:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
            connection.request("GET", path, headers={"Host": "localhost", **headers(ADMIN)})
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            assert answer.status in (400, 404, 422), path
            assert SECRET not in text and "root:x:" not in text


@pytest.mark.parametrize("digest", DIGESTS)
def test_what_is_no_digest_is_refused_by_every_route(digest: str, site: Site) -> None:
    client = site.client(ADMIN)
    quoted = quote(digest, safe="")
    addresses = [(method, path.replace("{digest}", quoted)) for method, path in routes() if "{digest}" in path]
    addresses += [("GET", f"/api/v1/artifacts?digest={quoted}")]
    for kind in ("artifacts", "announced", "names", "doomed"):
        key = quote(f"{kind}/{digest.replace(':', '/')}/manifest.json", safe="")
        addresses += [("GET", f"/api/v1/objects/{key}"), ("HEAD", f"/api/v1/objects/{key}")]
    for method, address in addresses:
        assert client.request(method, address).status_code in (404, 422), f"{method} {address}"
    body = {"artifact": digest}
    put = client.put("/api/v1/projects/team/refs/opd/v2", json=body, headers={"If-None-Match": "*"})
    assert put.status_code in (404, 422)


def test_a_project_whose_name_only_begins_alike_is_another(site: Site) -> None:
    client = site.client("reader-token")
    for project in ("team-evil", "tea"):
        site.service.accounts.projects.ensure(project, ROOT)
        assert client.get(f"/api/v1/projects/{project}").status_code == 404
        assert client.get("/api/v1/objects", params={"prefix": f"refs/{project}/"}).text.count("\n") == 1
    for prefix in ("refs/tea", "refs/team", "artifacts/sha256/" + site.digests["opd"].hex[:10]):
        assert client.get("/api/v1/objects", params={"prefix": prefix}).status_code == 422
    assert "refs/team/opd" in client.get("/api/v1/objects", params={"prefix": "refs/team/"}).text


def test_what_lies_beside_the_home_is_no_object_of_it(site: Site) -> None:
    client = site.client(ADMIN)
    for prefix in ("../home-evil/", "/", "./", f"{site.folder}/home-evil/", "..%2fhome-evil/"):
        answer = client.get("/api/v1/objects", params={"prefix": prefix})
        assert answer.status_code == 422 or '"count": 0' in answer.text
    assert "home-evil" not in client.get("/api/v1/objects", params={"prefix": ""}).text
