"""The pages as people see them, by day and by night, on a phone, by keyboard, and with no script at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe

from maskreg.service.app import create_app
from maskreg.workspace.verbs.jobs import JobProgress, JobState
from tests.browser import CONTRASTS, Opened
from tests.service.pages.test_jobs import submitted
from tests.service.pages.test_reading import PAIR, TABS
from tests.service.pages.test_runs import serving_run
from tests.service.patching import Site
from tests.service.patching import module_site as site
from tests.service.serving import ADMIN, headers, listening

__all__ = ["site"]

PAGES = [
    *("/", "/?method=opd&density=0.1..&sort=size:asc", "/runs", "/runs/team/run:latest", "/p/team/run:latest"),
    *("/p/team/both", "/p/team/nothing", "/compare", "/glossary", "/docs/names", "/sign-in", "/settings"),
    *("/settings/p/team", "/activity", "/jobs"),
    *(f"/p/team/toy-opd:v1{rest}" for rest in ("", "/readme", *(f"?tab={tab}" for tab in TABS[1:]))),
    *(f"{PAIR}{third}" for third in ("", "&ref=team/toy-random")),
]


def opened(browser: Any, address: str, **options: Any) -> Opened:
    return Opened(browser, address, "light", viewport={"width": 1280, "height": 800}, **options)


@pytest.fixture(scope="module")
def window(browser: Any, served: str) -> Iterator[Opened]:
    """A window that goes from page to page."""
    with opened(browser, f"{served}/glossary") as view:
        yield view


@pytest.fixture(scope="module")
def unguarded(browser: Any, served: str) -> Iterator[Opened]:
    """Another one, which runs what is put into a page past the page's policy."""
    with opened(browser, f"{served}/glossary", bypass_csp=True) as view:
        yield view


def visit(view: Opened, address: str, until: str = "load") -> None:
    is_for_admins = re.search("/(settings|activity|jobs)|/readme$", address)
    view.page.set_extra_http_headers(headers(ADMIN) if is_for_admins else {})
    view.said.clear()
    view.asked.clear()
    view.page.goto(address, wait_until=until)


PAINTED = "new Promise(done => new PerformanceObserver(() => done()).observe({type: 'paint', buffered: true}))"

SHIFTS = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
  const observer = new PerformanceObserver(() => {});
  observer.observe({type: "layout-shift", buffered: true});
  done(observer.takeRecords().filter(shift => !shift.hadRecentInput).map(shift => (
    [shift.value, ...shift.sources.map(({node}) => node?.outerHTML?.slice(0, 80))])));
})))"""
"""What has moved on a page, and how far."""


def visit_slowly(view: Opened, address: str) -> None:
    """Visit a page whose script comes after the first paint."""
    held: list[Any] = []
    view.page.route("**/*.js", lambda route: held.append(route))
    visit(view, address, "commit")
    view.page.evaluate(PAINTED)
    for route in held:
        route.continue_()
    view.page.unroute("**/*.js")
    view.page.wait_for_load_state()


@pytest.mark.parametrize("path", PAGES)
def test_every_reader_can_use_them(window: Opened, unguarded: Opened, served: str, path: str) -> None:
    page = unguarded.page
    page.emulate_media(color_scheme="light")
    visit(unguarded, f"{served}{path}")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    # Contrasts are measured below, in both schemes.
    violations = Axe().run(page, options={"rules": {"color-contrast": {"enabled": False}}}).response["violations"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in violations] == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert [pair for pair in page.evaluate(CONTRASTS) if pair[0] < 4.5] == []
    for width in (360, 768, 1440):
        window.page.set_viewport_size({"width": width, "height": 800})
        visit_slowly(window, f"{served}{path}")
        assert window.page.evaluate(SHIFTS) == []
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(address.startswith(served) for address in window.asked)
    # A refused page is an error to the browser too; nothing else must be.
    assert [line for line in window.said if "404" not in line and "422" not in line] == []
    assert window.page.title() != "owned"


def test_without_a_script_everything_is_there(browser: Any, served: str) -> None:
    with opened(browser, f"{served}/", java_script_enabled=False) as view:
        page = view.page
        page.get_by_label("Search").fill("rlvr")
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**/?text=rlvr*")
        assert page.locator("table.list tbody tr").count() == 1
        page.get_by_role("link", name="All names").click()
        page.get_by_role("link", name="Density").click()
        page.locator(".facets").get_by_role("link", name="rlvr").click()
        page.wait_for_url("**/?sort=density%3Adesc&method=rlvr")
        page.get_by_role("link", name="toy-rlvr:v1").click()
        page.wait_for_url("**/p/team/toy-rlvr:v1")
        assert page.locator("#answer").is_visible() and not page.get_by_role("button", name="Copy").count()
        page.get_by_role("navigation", name="About toy-rlvr").get_by_role("link", name="Files").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Mask as safetensors").click()
        assert download.value.suggested_filename == "team-toy-rlvr-v1-mask.safetensors"
        assert download.value.path().stat().st_size > 10_240
        page.get_by_role("link", name="Compare with").click()
        assert page.get_by_label("First mask").input_value() == "team/toy-rlvr:v1"
        page.goto(f"{served}/runs/team/run:latest")
        assert page.get_by_role("img", name="Size").is_visible() and not page.get_by_role("slider").count()


def test_results_come_as_one_types(browser: Any, served: str) -> None:
    from playwright.sync_api import expect

    with opened(browser, f"{served}/") as view:
        rows = view.page.locator("table.list tbody tr")
        expect(rows).to_have_count(5)
        view.page.get_by_label("Search").press_sequentially("rlvr")
        expect(rows).to_have_count(1)
        assert view.page.url == f"{served}/?text=rlvr"
        view.page.get_by_label("Search").fill("nosuchname")
        expect(view.page.get_by_text("No name matches.")).to_be_visible()
        view.page.get_by_label("Search").fill("")
        expect(rows).to_have_count(5)
        slider = view.page.get_by_label("Density, to")
        for key, count in (("Home", 1), ("End", 5)):
            slider.press(key)
            expect(rows).to_have_count(count)
            expect(slider).to_be_focused()
        view.page.get_by_label("Compare team/both").check()
        view.page.keyboard.press("/")
        expect(view.page.get_by_label("Search")).to_be_focused()
        view.page.get_by_label("Search").fill("rlvr")
        expect(rows).to_have_count(1)
        view.page.get_by_label("Compare team/toy-rlvr").check()
        view.page.get_by_role("button", name="Compare ticked").click()
        expect(view.page).to_have_url(f"{served}/compare?ref=team%2Ftoy-rlvr%3Av1&ref=team%2Fboth")
        view.page.evaluate("delete Navigator.prototype.clipboard")
        view.page.evaluate("addEventListener('copy', event => { name = event.clipboardData.getData('text'); })")
        view.page.get_by_role("button", name="Copy").click()
        assert view.page.evaluate("name").startswith("maskreg compare team/toy-rlvr")
        assert view.said == []


def test_curves_of_a_run_are_zoomed_and_read_together(browser: Any, tmp_path: Path) -> None:
    with (
        listening(serving_run(tmp_path, 6).app) as url,  # type: ignore[arg-type]
        opened(browser, f"{url}/runs/team/long:latest", extra_http_headers=headers(ADMIN)) as view,
    ):
        page, reading, slider = view.page, view.page.locator(".reading"), view.page.get_by_role("slider")
        canvas, cells = page.locator("canvas").first, page.get_by_role("row", name="2 1 ").inner_text().split("\t")

        def beneath(picture: int, share: float) -> str:
            over = page.locator(".u-over").nth(picture)
            over.hover(position={"x": share * over.bounding_box()["width"], "y": 9})
            lines = page.locator(".u-cursor-x").evaluate_all("each => each.map(line => line.style.transform)")
            assert lines[0] == lines[1]
            return str(reading.inner_text()).partition(",")[0]

        assert beneath(0, 0.25) == "Version 2"
        assert [cell in reading.inner_text() for cell in cells] == [True, True, False, True, True, True, False]
        beneath(0, 0.51)
        page.mouse.down()
        beneath(0, 0.99)
        page.mouse.up()
        assert [beneath(picture, 0.1) for picture in (0, 1)] == ["Version 4", "Version 4"]
        slider.press("Home")
        assert slider.get_attribute("aria-valuetext") == reading.inner_text()
        assert beneath(1, 0.9) == "Version 3"
        page.get_by_role("button", name="Show all").press("Enter")
        assert beneath(1, 0.9) == "Version 6"
        before = canvas.evaluate("each => each.toDataURL()")
        page.emulate_media(color_scheme="dark")
        # Not wait_for_function, which the policy for scripts forbids from the second look on.
        while canvas.evaluate("each => each.toDataURL()") == before:
            page.wait_for_timeout(20)
        page.set_viewport_size({"width": 360, "height": 800})
        while canvas.evaluate("each => each.clientWidth") != 320:
            page.wait_for_timeout(20)
        page.emulate_media(media="print")
        assert page.get_by_role("img", name="Size").is_visible() and not canvas.is_visible()
        assert view.said == []


FOCUS = """() => {
  const node = document.activeElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
  node.dataset.visited = "";
  return {lost: node === document.body, at: node.outerHTML.slice(0, 120),
          seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && style.outlineStyle !== "none"};
}"""

UNVISITED = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter(node => node.tabIndex >= 0 && node.checkVisibility() && !("visited" in node.dataset))
  .map(node => node.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("path", ["/", "/runs/team/run:latest", "/p/team/toy-opd:v1?tab=use", "/settings"])
def test_the_tab_key_goes_everywhere_and_is_never_lost(window: Opened, served: str, path: str) -> None:
    window.page.set_viewport_size({"width": 1280, "height": 800})
    visit(window, f"{served}{path}")
    stops: list[dict[str, Any]] = []
    while not stops or not stops[-1]["lost"]:
        assert len(stops) < 300, "the focus goes round within the page"
        window.page.keyboard.press("Tab")
        stops.append(window.page.evaluate(FOCUS))
    assert [stop["at"] for stop in stops[:-1] if not stop["seen"]] == []
    assert window.page.evaluate(UNVISITED) == []


def test_a_person_signs_in_reads_and_signs_out(browser: Any, served: str) -> None:
    with Opened(browser, f"{served}/p/secret", "light") as view:
        page = view.page
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Token").fill(ADMIN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/p/secret")
        page.get_by_role("link", name="plan:v1").wait_for()
        page.get_by_role("link", name="root").click()
        page.get_by_label("Project", exact=True).select_option("team")
        page.get_by_role("button", name="Make token").click()
        secret = page.get_by_label("The new token").inner_text()
        known = httpx2.get(f"{served}/api/v1/whoami", headers=headers(secret)).json()
        assert (known["name"], list(known["projects"])) == ("root", ["team"])
        page.goto(f"{served}/settings")
        assert secret not in page.content()
        page.get_by_role("button", name=f"Revoke {secret.split('_')[1]}").click()
        page.get_by_text("Expired and revoked", exact=True).click()
        page.get_by_role("cell", name="revoked").first.wait_for()
        assert httpx2.get(f"{served}/api/v1/whoami", headers=headers(secret)).status_code == 401
        session = page.context.cookies()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign in").wait_for()
        page.context.add_cookies(session)
        page.goto(f"{served}/p/secret")
        assert "/sign-in" in page.url


def test_a_job_is_followed_to_its_end(site: Site, browser: Any) -> None:
    from playwright.sync_api import expect

    job = submitted(site, "live")
    claim = site.queue.claim("worker")
    assert claim is not None and claim.job.id == job
    with (
        listening(create_app(site.service)) as url,
        Opened(browser, f"{url}/jobs/{job}", "light", extra_http_headers=headers(ADMIN)) as view,
    ):
        expect(view.page.get_by_text("Running", exact=True)).to_be_visible()
        site.queue.report(claim, JobProgress("patch", 1 << 20, 4 << 20), ["10:00:00 <b>patch"])
        expect(view.page.get_by_text("10:00:00 <b>patch")).to_be_visible()
        expect(view.page.get_by_role("progressbar")).to_have_attribute("value", str(1 << 20))
        assert view.page.evaluate(SHIFTS) == []
        view.page.set_viewport_size({"width": 360, "height": 800})
        assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
        view.page.get_by_role("button", name="Cancel").click()
        expect(view.page.get_by_text("Stopping", exact=True)).to_be_visible()
        site.queue.finish(claim, JobState.FAILED, error={"code": "DATA", "title": "leaf <3> differs", "hint": "wait"})
        expect(view.page.get_by_text("Leaf <3> differs.")).to_be_visible()
        assert view.page.get_by_role("button", name="Cancel").count() == 0
        assert view.said == []
