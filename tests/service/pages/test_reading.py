"""The pages that show names, an artifact and a comparison: what they say, to whom, and what they do not give away."""

from __future__ import annotations

import ast
import asyncio
import gc
import io
import re
import shutil
import socket
import tarfile
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from html import unescape
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.analysis.pairwise import PairMatrix
from maskreg.analysis.verdict import null_label
from maskreg.artifact.analysis import write_analysis
from maskreg.errors import CorruptError, LimitError
from maskreg.reports.modules import CIVIDIS
from maskreg.service.app import create_app
from maskreg.service.gateway.visibility import Remembered
from maskreg.service.jobs.config import JobConfig
from maskreg.service.middleware import Punctual
from maskreg.service.pages import compare as comparing
from maskreg.service.pages.artifact import in_turn
from maskreg.settings import Remote
from maskreg.words import percent, times
from maskreg.workspace.verbs import keys
from tests.checkpoints import flip
from tests.service.pages.conftest import EVIL, LAYERS, MODULES
from tests.service.serving import ADMIN, WEB, headers, service_in, until

OPD = "/p/team/toy-opd:v1"
TABS = ("card", "layers", "evidence", "files", "lineage", "history", "use")
PAIR = "/compare?ref=team/toy-opd:v1&ref=team/toy-rlvr:v1"
NAMES = ["team/toy-random:latest", "team/run:latest", "team/both:latest", "team/toy-opd:v1", "team/toy-rlvr:v1"]


def names(client: TestClient, address: str = "/", token: str = "") -> list[str]:
    answer = client.get(address, headers=headers(token))
    assert answer.status_code == 200
    return re.findall(r'<a href="/p/([^/"]+/[^"]+)">', answer.text)


def section(text: str, anchor: str) -> str:
    return re.split(r"<h[23]", text.partition(f'id="{anchor}"')[2])[0]


def links(markup: str) -> list[str]:
    return re.findall(r'<a href="/p/([^"]+)">', markup)


def plain(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r'<span class="tip".*?</span>', "", markup)).split())


def test_readers_see_the_projects_that_they_may_read(client: TestClient) -> None:
    assert names(client) == names(client, "/p/team") == NAMES
    assert "secret/plan:v1" in names(client, token=ADMIN)
    assert "secret" not in client.get("/", headers=headers("stranger-token")).text
    assert client.get("/p/secret", headers=headers("reader-token")).status_code == 404
    assert client.get("/p/secret", follow_redirects=False).headers["location"] == "/sign-in?next=%2Fp%2Fsecret"


def test_pages_follow_each_other(client: TestClient) -> None:
    shown: list[list[str]] = []
    address = "/?text=t&limit=3&sort=name:asc"
    first, last, ordered = ("1 to 3 of 5 names", "next"), ("4 to 5 of 5 names", "prev"), sorted(NAMES)
    for place, direction in (first, last, first):
        shown.append(names(client, address))
        text = client.get(address).text
        assert place in text
        following = re.search(rf'href="([^"]+)" rel="{direction}"', text)
        assert following is not None
        address = unescape(following[1])
    assert shown == [ordered[:3], ordered[3:], ordered[:3]]
    assert client.get("/?text=team/*&limit=3&page=2&sort=name:asc").text.count('class="tick"') == 2


@pytest.mark.parametrize(
    ("address", "token"), [("/", ""), ("/", ADMIN), ("/p/team?kind=delta", ""), ("/?density=0.01..&kind=delta", "")]
)
def test_each_filter_leaves_as_many_names_as_it_says(client: TestClient, address: str, token: str) -> None:
    text = client.get(address, headers=headers(token)).text
    assert token or "secret" not in text
    facets = re.findall(r'<li><a href="([^"]+)">[^<]+</a> <span>(\d+)</span>', text)
    bars = re.findall(r'<a href="([^"]+)" tabindex="-1"[^>]*><title>[^<]*: (\d+) names?</title>', text)
    assert facets and bars
    for link, number in facets + bars:
        assert len(names(client, unescape(link), token)) == int(number), link


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "sort=nonsense", "density=0.9..0.1", "density=<script>"),
        *("page=0", "page=2001", "page=nonsense", "kind=nonsense"),
    ],
)
def test_a_wrong_filter_is_refused_and_the_form_kept(client: TestClient, query: str) -> None:
    answer = client.get(f"/?text=toy&{query}")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text and 'value="toy"' in answer.text
    assert "<script>" not in answer.text


def test_many_names_have_estimated_counts(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.catalog.catalog.SAMPLE", 4)
    assert 'id="estimates"' in client.get("/?limit=1").text


def test_files_are_kept_for_good_under_their_digest_and_pages_are_not(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.headers["cache-control"], answer.headers["vary"]) == ("private, no-cache", "Cookie, Authorization")
    for name in ("site.css", "site.js", "icon.svg"):
        path = re.findall(f'"(/static/[^"]*/{name})"', answer.text)[0]
        assert client.get(path).headers["cache-control"] == "public, max-age=31536000, immutable"
        assert client.get(f"/static/0/{name}").headers["cache-control"] == "no-cache"
    assert client.get("/static/0/site.py").status_code == 404


def test_an_artifact_shows_where_it_moved(client: TestClient) -> None:
    text = client.get(f"{OPD}?tab=layers").text
    assert re.search(r"[\d.]+.% of 40,960 coordinates", plain(section(text, "answer")))
    assert section(text, "layers").count("<svg") == 1
    cells = re.findall(r'<td class="c(\d+)">([\d.]+)</td>', section(text, "layers"))
    assert len(cells) == LAYERS * len(MODULES)
    low, high = min(cells, key=lambda cell: float(cell[1])), max(cells, key=lambda cell: float(cell[1]))
    assert int(low[0]) < int(high[0])
    history = section(client.get(f"{OPD}?tab=history").text, "history")
    assert re.findall(r"<td>(created|annotated)</td>", history) == ["annotated", "created"]
    refused = client.get(f"{OPD}?tab=<script>")
    assert refused.status_code == 422 and "<script>" not in refused.text


def test_what_is_copied_can_be_run(client: TestClient) -> None:
    text, both = client.get(f"{OPD}?tab=use").text, client.get("/p/team/both?tab=use").text
    for anchor in ("python", "trl"):
        code = re.search(r"<code>(.*?)</code>", section(text, anchor), re.DOTALL)
        assert code is not None
        for node in ast.walk(ast.parse(unescape(code[1]))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "maskreg":
                assert node.attr in maskreg.__all__
    assert "| maskreg apply" in section(text, "use") and "| maskreg apply" not in section(both, "use")
    assert "weight-transfer-config" in section(client.get("/p/team/run?tab=use").text, "vllm")


def test_the_lineage_leads_both_ways_among_names_that_one_may_read(client: TestClient) -> None:
    both, text = (client.get(f"{path}?tab=lineage").text for path in ("/p/team/both", OPD))
    assert set(links(section(both, "lineage"))) == {"team/toy-opd:v1", "team/toy-rlvr:v1"}
    assert set(links(section(text, "children"))) == {"team/both:latest", "team/toy-random:latest"}
    assert links(section(both, "children")) == []
    # The first has a second name, which an admin can see.
    assert "secret" not in text + both


def test_an_analysis_is_no_run_and_tells_of_its_recipe_in_words(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")
    with service_in(tmp_path / "home", frozenset({"team"})) as service:
        of = service.workspace.find("team/toy-opd:v1").artifact
        recipe = {"kind": "analysis", "ranks": [16, 64], "presets": {"small": {"rank": 16}}}
        maskreg.tag(write_analysis(tmp_path / "home", of, {}, recipe), "team/found:v1", workspace=service.workspace)
        text = TestClient(create_app(service), "http://localhost").get("/p/team/found:v1").text
    assert "/runs/" not in text and "analysis, ranks 16 64" in plain(text) and "{" not in section(text, "facts")


def test_recorded_comparisons_are_shown_to_readers_of_both_masks(client: TestClient) -> None:
    address = f"{OPD}?tab=evidence"
    text = client.get(address).text
    assert links(section(text, "overlaps")) == ["team/toy-rlvr:v1"]
    assert links(section(text, "children")) == ["team/toy-random:latest"]
    assert "secret" not in text
    everything = client.get(address, headers=headers(ADMIN)).text
    assert set(links(section(everything, "overlaps"))) == {"team/toy-rlvr:v1", "secret/drawn:v1"}
    # The measurement is the first mask's, and names the second.
    assert links(section(client.get("/p/team/toy-rlvr:v1?tab=evidence").text, "overlaps")) == ["team/toy-opd:v1"]


def test_the_mask_comes_as_safetensors_and_goes_back(client: TestClient, home: Path, tmp_path: Path) -> None:
    files = client.get(f"{OPD}?tab=files").text
    _, address = re.findall(r'href="([^"]+)" download>', section(files, "downloads"))
    answer = client.get(address)
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.headers["content-disposition"].startswith("attachment;")
    (path := tmp_path / "mask.safetensors").write_bytes(answer.content)
    with maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml")) as space:
        whole = maskreg.load("team/toy-opd:v1", workspace=space)
        stored = maskreg.convert_from(path, "safetensors-mask", home.parent / "source", workspace=space)
        for name, mask in whole.mask.items():
            assert (stored.artifact.mask[name].to_bool() == mask.to_bool()).all()


def test_files_are_sent_to_few_at_a_time_and_turns_come_back(client: TestClient) -> None:
    addresses, taken = (f"{OPD}/mask.safetensors", f"{OPD}/artifact.tar"), []
    while (refused := client.get(addresses[0])).status_code == 200:
        taken.append(in_turn("testclient", [b"begun", b"not sent"]))
        next(taken[-1])
    assert [refused.status_code, client.get(addresses[1]).status_code] == [503, 503]
    # As a server drops the answer to a client that is gone.
    taken.pop()
    assert [client.get(address).status_code for address in addresses] == [200, 200]
    for pieces in taken:
        pieces.close()


def test_a_client_that_hangs_up_gives_its_turn_back(client: TestClient) -> None:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": f"{OPD}/artifact.tar", "query_string": b""}
    scope |= {"headers": [(b"host", b"localhost")], "scheme": "http", "http_version": "1.1"}

    async def hang_up() -> None:
        begun = asyncio.Event()

        async def receive() -> dict[str, object]:
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            begun.set()
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()  # as for a client that reads nothing

        await client.app(dict(scope), receive, send)

    async def hang_up_often() -> int:
        for _ in range(4):
            await hang_up()
        return (await asyncio.to_thread(client.get, scope["path"])).status_code

    gc.disable()
    try:
        assert asyncio.run(hang_up_often()) == 200
    finally:
        gc.enable()


@contextmanager
def stuck(served: str, patience_s: float) -> Iterator[str]:
    """Four connections of this machine that read the beginning of a file and no more; gives another file's address."""
    place = urlsplit(served)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr("maskreg.service.middleware.PATIENCE_S", patience_s)
        patch.setattr("maskreg.service.pages.artifact.parcel", lambda *_: (1 << 40, repeat(bytes(1 << 20))))
        for _ in range(4):
            client = stack.enter_context(socket.create_connection((place.hostname, place.port)))
            client.sendall(f"GET {OPD}/artifact.tar HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            client.recv(1)
        yield f"{served}{OPD}/mask.safetensors"


def test_clients_that_read_nothing_give_their_turns_back(served: str) -> None:
    with stuck(served, 0.1) as address:
        until(lambda: WEB.get(address).status_code == 200)


def test_a_client_that_holds_all_its_turns_leaves_those_of_others(served: str) -> None:
    near, far = (httpx2.HTTPTransport(local_address=f"127.0.0.{host}") for host in (1, 2))
    with stuck(served, 3600) as address, httpx2.Client(transport=near) as same, httpx2.Client(transport=far) as other:
        assert [same.get(address).status_code, other.get(address).status_code] == [503, 200]
        assert same.get(address, headers=headers("reader-token")).status_code == 200


def test_nothing_waits_for_a_client_that_is_gone(served: str) -> None:
    def known() -> int:
        gc.collect()
        return sum(type(each) is Punctual for each in gc.get_objects())

    before = known()
    with stuck(served, 3600):
        pass
    until(lambda: known() <= before)


@pytest.mark.parametrize("limit", ["MOST_COORDINATES", "MOST_TABLES"])
def test_what_is_too_large_names_the_command(
    home: Path, fresh: None, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr("maskreg.service.pages.artifact.MOST_COORDINATES", 100)
    monkeypatch.setattr(f"maskreg.service.pages.compare.{limit}", 2)
    with service_in(home, frozenset({"team"})) as service:
        client = TestClient(create_app(service), "http://localhost")
        answer = client.get(f"{OPD}/mask.safetensors")
        assert 'mask.safetensors" download' not in client.get(f"{OPD}?tab=files").text
        pair = client.get(PAIR, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (413, LimitError.code)
    assert "maskreg convert team/toy-opd:v1 --to safetensors-mask" in answer.json()["hint"]
    assert pair.status_code == 413 and "maskreg compare team/toy-opd:v1 team/toy-rlvr:v1" in pair.text


def test_the_tab_of_files_tells_of_an_artifact_that_lacks_an_object(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")
    with service_in(tmp_path / "home", frozenset({"team"})) as service:
        digest = service.workspace.find("team/toy-opd:v1").digest
        objects = tmp_path / f"home/artifacts/sha256/{digest.hex}/data.zarr"
        client = TestClient(create_app(service), "http://localhost", raise_server_exceptions=False)
        flip(objects / "delta/c/0", 9)
        cut = client.get(f"{OPD}/artifact.tar")
        assert len(cut.content) < int(cut.headers["content-length"])
        (objects / "mask/zarr.json").unlink()
        files, *answers = (client.get(OPD + of) for of in ("?tab=files", "/mask.safetensors", "/artifact.tar"))
    assert files.status_code == 200
    assert "data.zarr/mask/zarr.json: missing" in section(files.text, "verification")
    assert re.findall("<td>(yes|no)</td>", section(files.text, "parts")) == ["yes", "no"]
    assert "download>" not in files.text
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == 2 * [(422, CorruptError.code)]


def test_a_digest_is_shown_under_a_name_that_once_had_it(client: TestClient) -> None:
    digest = re.findall(r"@(sha256:[0-9a-f]{64})", client.get("/p/team/toy-rlvr:v1").text)[0]
    assert client.get(f"/p/team/toy-rlvr:v1@{digest}").status_code == 200
    assert client.get(f"{OPD}@{digest}").status_code == 404


def test_a_name_of_a_project_that_one_may_not_read_does_not_exist(client: TestClient) -> None:
    unreadable = client.get("/p/secret/plan:v1", headers=headers("reader-token"))
    missing = client.get("/p/nowhere/plan:v1", headers=headers("reader-token"))
    assert unreadable.status_code == missing.status_code == 404
    assert unreadable.text.replace("secret", "nowhere") == missing.text
    assert client.get("/p/secret/plan:v1", headers=headers(ADMIN)).status_code == 200


@pytest.mark.parametrize(
    "path", [OPD, *(f"{OPD}?tab={tab}" for tab in TABS), "/?text=toy", "/?text=%3Cscript%3Ealert(1)%3C/script%3E"]
)
def test_what_people_wrote_stays_text(client: TestClient, path: str) -> None:
    text = client.get(path).text
    assert "<script>" not in text
    assert not re.search(r"<[^>\"]*(\"[^\"]*\"[^>\"]*)*\sonerror", text)
    assert not re.search(r'href="(?!https?://|/|#)', text)
    assert not re.search(r"<(?!/)[^>]* style=", text)
    assert path != OPD or EVIL in unescape(text)


def test_an_artifact_says_who_vouches_for_the_tag(client: TestClient, home: Path, tmp_path: Path) -> None:
    assert "Unsigned" in client.get(f"{OPD}?tab=files").text
    folder = tmp_path / "home"
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("service.db*", "catalog.db*"))
    with maskreg.Workspace(maskreg.Settings(home=folder, config_path=folder / "config.toml")) as space:
        made = keys.create("team", fresh=timedelta(days=7), workspace=space)
        maskreg.annotate("team/toy-opd:v1", license="mit", workspace=space)
    with service_in(folder, frozenset({"team"})) as service:
        signed = TestClient(create_app(service), "http://localhost")
        files, answer = (signed.get(OPD + of) for of in ("?tab=files", "/artifact.tar"))
        assert names(signed, "/?signed=yes") == ["team/toy-opd:v1"]
    assert str(made.key) in plain(section(files.text, "verification"))
    assert f"{made.good_until:%Y-%m-%d %H:%M}" in section(files.text, "downloads")
    assert "signed" in plain(files.text.partition('class="badges"')[2].partition("</ul>")[0])
    # The whole artifact is a registry: its key vouches for the one tag in it.
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path, filter="data")
    remotes = {"parcel": Remote("parcel", str(tmp_path / "team-toy-opd-v1"))}
    with maskreg.Workspace(maskreg.Settings(tmp_path / "there", tmp_path / "there.toml", remotes=remotes)) as space:
        pulled = maskreg.pull("team/toy-opd:v1", remote="parcel", workspace=space)
        assert pulled.card.license == "mit" and pulled.artifact.present() == {"mask", "delta"}
        parcel = space.registry("parcel")
        assert list(map(str, parcel.refs.tags())) == ["team/toy-opd:v1"]
        assert parcel.trust.documents("team")[-1].key == made.key


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "KEPT", Remembered(1))


def test_two_masks_have_every_figure_of_the_command(
    client: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = client.get(PAIR).text
    with maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml")) as space:
        pair = maskreg.compare("team/toy-opd:v1", "team/toy-rlvr:v1", workspace=space).pairs[0]
    assert pair.verdict.sentence.replace(" %", "\u00a0%") in text
    shown, drawn = plain(section(text, "overlap")), section(text, "ladder")
    for null, beside in pair.whole.nulls.items():
        assert beside.expected is not None
        assert f"{null_label(null)} {percent(beside.expected / pair.whole.counts.most)}<" in drawn
        assert times(beside.ratio) in shown
    assert times(pair.layers["0"].overlap.lift) in text
    assert times(pair.modules["mlp.up_proj"].overlap.lift) in text
    assert 'id="source"' not in text
    # It is made once.
    monkeypatch.setattr(comparing, "compare_masks", None)
    assert client.get(PAIR).text == text


def test_more_than_two_have_a_heat_map_whose_cells_lead_to_pairs(
    client: TestClient, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = client.get(PAIR).text
    monkeypatch.setattr(comparing, "KEPT", Remembered(64))
    text = client.get(f"{PAIR}&ref=team/toy-random").text
    cells = re.findall(r'<td( class="c\d+")?><a href="(/compare[^"]+)"', section(text, "matrix"))
    links = {unescape(address) for _, address in cells}
    assert (len(cells), len(links)) == (6, 3)
    # A baseline of the first has no answer beside it, and no color.
    assert [bool(color) for color, address in cells if "opd" in address and "random" in address] == [False, False]
    assert section(text, "consensus")
    assert 'class="upset"' in section(text, "intersections")
    assert sorted(client.get(address).status_code for address in links) == [200] * 3
    assert client.get(PAIR).text == alone and "/sign-in?next=/compare%3Fref" in text


def test_colors_of_pairs_span_what_the_reader_asks_for(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairMatrix, "answered", property(lambda _: ~np.eye(3, dtype=bool)))
    found = []
    for colors in ("", "&colors=zero", "&colors=all", "&colors=shown"):
        text = client.get(f"{PAIR}&ref=team/toy-random{colors}").text
        ends = re.findall(r'"legend"><span>(.+?)</span>.*<span>(-?[\d.]+.%)</span>', text)[0]
        shades = [int(shade) for shade in re.findall(r'<td class="c(\d+)"', section(text, "matrix"))]
        found.append((*ends, min(shades), max(shades)))
    default, zero, every, shown = found
    assert default == zero and zero[0] == f"-{zero[1]}" == shown[0] != shown[1]
    assert every[:2] == ("-100\xa0%", "100\xa0%") and shown[2:] == (0, len(CIVIDIS) - 1)
    assert zero[2] == 0 and len(CIVIDIS) // 2 in (zero[3], zero[3] + 1) and every[2:] == 2 * (len(CIVIDIS) // 2,)


def test_without_the_source_the_page_says_who_can_offer_it(
    home: Path, tmp_path: Path, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home"
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("service.db*", "catalog.db*"))
    with service_in(folder, frozenset({"team"})) as service:
        text = TestClient(create_app(service), "http://localhost").get(PAIR).text
        assert "maskreg serve --sources" in plain(section(text, "source")) and "--source " not in text
        monkeypatch.setattr(comparing, "KEPT", Remembered(1))
        jobs = JobConfig(service.workspace.settings, *(None, ""), (home.parent,), tmp_path / "outputs")
        offering = replace(service, jobs=jobs)
        assert 'id="source"' not in TestClient(create_app(offering), "http://localhost").get(PAIR).text


@pytest.mark.parametrize(
    ("refs", "token", "status"),
    [
        (["team/toy-opd:v1", "nonsense name"], "", 422),
        (["team/toy-opd:v1", "team/nothing"], "", 404),
        (["team/toy-opd:v1"] * 9, "", 422),
        (["team/toy-opd:v1", "<script>alert(1)</script>"], "", 422),
        (["team/toy-opd:v1", "secret/plan:v1"], "", 303),
        (["team/toy-opd:v1", "secret/plan:v1"], "reader-token", 404),
        (["team/toy-opd:v1", "secret/plan:v1"], ADMIN, 200),
        (["", "team/toy-opd:v1", ""], "", 200),
        (['"><script>alert(1)</script>'], "", 200),
    ],
)
def test_what_cannot_be_compared_is_said(client: TestClient, refs: list[str], token: str, status: int) -> None:
    answer = client.get("/compare", params={"ref": refs}, headers=headers(token), follow_redirects=False)
    assert answer.status_code == status
    assert "<script>alert" not in answer.text
