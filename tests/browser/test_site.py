"""The published site in Chromium: no other host, nothing said on the console, a phone's width, both themes, and the machine in the page."""

import functools
import http.server
import importlib.metadata
import json
import threading

import pytest

from helpers.front.site.build import build
from tests.browser.conftest import Complaints

pytestmark = pytest.mark.slow  # all of them: the site that they look at takes longer to make than each of them

LESSONS = ("00", "01")
PAGES = ("index", "00_start_here", "01_naive", "glossary", "cheatsheet", "ladder", "validation")
PAGES += ("index.zh", "00_start_here.zh", "01_naive.zh")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a site of two lessons."""
    folder = tmp_path_factory.mktemp("site") / "site"
    assert build(folder, LESSONS, say=lambda text: None) == 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def page(chromium, site):
    opened = chromium.new_page(viewport={"width": 1280, "height": 900})
    complaints = Complaints()
    complaints.watch(opened, site)
    yield opened
    opened.close()
    assert complaints.errors == []


def axe() -> str:
    files = importlib.metadata.distribution("axe-playwright-python")
    return files.locate_file("axe_playwright_python/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width, theme", [(390, "dark"), (1280, "light")])
def test_every_page_can_be_read_by_all(page, site, width, theme):
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme)
    text = axe()
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        page.evaluate(text)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [(item["id"], item["nodes"][0]["html"][:200]) for item in found if item["impact"] in ("serious", "critical")]
        assert serious == [], name


def test_every_link_inside_the_site_leads_somewhere(page, site):
    wanted = set()
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
        wanted |= set(page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"))
    here = {link for link in wanted if link.startswith(site)}
    anchors = {}
    for link in sorted(here):
        address, _, anchor = link.partition("#")
        if address not in anchors:
            assert page.goto(address).status == 200, link
            anchors[address] = set(page.eval_on_selector_all("[id]", "parts => parts.map(part => part.id)"))
        assert not anchor or anchor in anchors[address] or page.evaluate("name => decodeURIComponent(name)", anchor) in anchors[address], (
            link
        )
    assert len(anchors) == len(PAGES) + 1  # and the sheet to print


def test_search_theme_and_frames_work(page, site):
    page.goto(f"{site}/01_naive.html")
    page.fill("#words", "sector")
    page.wait_for_selector("#found a")
    assert "sector" in page.inner_text("#found").lower()
    page.keyboard.press("Escape")
    page.click("#theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    frames = page.locator(".frames:has(select)").first
    before = frames.locator(".frame:not([hidden]) img").get_attribute("alt")
    frames.locator("select").first.select_option(index=1)
    assert frames.locator(".frame:not([hidden]) img").get_attribute("alt") != before


def test_the_machine_answers_in_the_page_as_it_did_when_the_page_was_made(page, site):
    page.goto(f"{site}/01_naive.html")
    page.set_default_timeout(120_000)
    trial = page.locator(".try")
    recorded = json.loads(trial.locator("script").text_content())["answers"]
    trial.locator("[data-field=start]").click()
    for variant in (0, 2):
        page.wait_for_function(f"document.querySelector('.try').dataset.answered?.includes('01_naive-{variant}/64')")
        answer = json.loads(trial.get_attribute("data-answered"))
        assert answer["rows"] == recorded[answer["key"]]["rows"]
        assert "in your browser" in trial.locator(".status").inner_text() and trial.locator("svg").count() == 1
        trial.locator("[data-field=kernel]").select_option(index=2)
