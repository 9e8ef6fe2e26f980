"""The planner's page in a browser."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Locator, Page, expect, sync_playwright

from streaming.simulate.web.serve import command
from tests.simulate.test_web import SMALL

pytestmark = pytest.mark.long

LIMIT_S = 60
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
CHART = "[data-testid=stVegaLiteChart]"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page that begins with two plans."""
    port = free_port()
    plans = [SMALL, {**SMALL, "workers": 4}]
    log = tmp_path_factory.mktemp("page") / "log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            command(plans, "127.0.0.1", port, show=False), stdout=out, stderr=out
        ) as server,
    ):
        try:
            until = time.monotonic() + LIMIT_S
            while not is_up(f"http://127.0.0.1:{port}/_stcore/health"):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as response:
            return response.status == 200  # type: ignore[no-any-return]
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is missing (make system installs it)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1500, "height": 1400})
    page.set_default_timeout(1000 * LIMIT_S)
    expect.set_options(timeout=1000 * LIMIT_S)
    page.goto(url)
    page.wait_for_selector(CHART)
    settle(page)
    yield page
    pictures = os.environ.get("PICTURES")  # a folder to look at them in
    if pictures:
        page.screenshot(
            path=f"{pictures}/{os.environ['PYTEST_CURRENT_TEST'].split('::')[1][:30]}.png"
        )
    page.close()


def settle(page: Page) -> None:
    """Wait until the page has drawn what it was told, and shows that it has nothing to do."""
    page.wait_for_selector("[data-testid=stStatusWidget]", state="detached")
    page.wait_for_selector("[data-stale=true]", state="detached")


def throughput(page: Page) -> list[str]:
    return page.locator("[data-testid=stMetricValue]").all_inner_texts()


def picture(page: Page) -> bytes:
    return page.locator(CHART).screenshot()


def slider(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=True).get_by_role("slider")


def test_a_slider_changes_the_plots(page: Page) -> None:
    before, numbers = picture(page), throughput(page)
    assert len(numbers) == 2
    slider(page, "Workers of each rank").press("ArrowLeft")
    expect(page.locator("[data-testid=stMetricValue]").first).not_to_have_text(numbers[0])
    settle(page)
    assert throughput(page)[1] == numbers[1]
    assert picture(page) != before


def test_bad_input_is_explained_beside_its_field(page: Page) -> None:
    field = page.get_by_label("Cache limit", exact=True)
    field.fill("lots")
    field.press("Enter")
    error = page.locator("[data-testid=stAlert]", has_text="give a number of bytes")
    expect(error).to_be_visible()
    where, below = field.bounding_box(), error.bounding_box()
    assert where is not None
    assert below is not None
    assert 0 < below["y"] - where["y"] < 100
    assert len(throughput(page)) == 1  # the other plan is shown all the same
    field.fill("1gb")
    field.press("Enter")
    expect(page.locator("[data-testid=stMetricValue]")).to_have_count(2)
    expect(error).to_have_count(0)


def test_a_plan_is_copied_changed_and_taken_home(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.locator("[data-testid=stMetricValue]")).to_have_count(3)
    settle(page)
    before = picture(page)
    slider(page, "Workers of each rank").press("ArrowLeft")
    expect(page.locator("[data-testid=stMetricValue]").nth(2)).not_to_have_text(throughput(page)[0])
    settle(page)
    assert picture(page) != before
    with page.expect_download() as settings:
        page.get_by_role("button", name="Settings, for shardstream plan").click()
    settings.value.save_as(tmp_path / "plan.yaml")
    assert yaml.safe_load((tmp_path / "plan.yaml").read_text())["workers"] == 1
    with page.expect_download() as report:
        page.get_by_role("button", name="Report, as a page").click()
    report.value.save_as(tmp_path / "plan.html")
    assert "<svg" in (tmp_path / "plan.html").read_text()
    page.goto((tmp_path / "plan.html").as_uri())
    expect(page.get_by_role("heading", name="Epochs")).to_be_visible()


def test_better_settings_are_taken(page: Page) -> None:
    numbers = throughput(page)
    page.get_by_text("Look for better settings").click()
    page.get_by_role("button", name="Take it").first.click()
    expect(page.locator("[data-testid=stMetricValue]").first).not_to_have_text(numbers[0])


def test_nothing_is_asked_of_other_hosts(browser: Any, url: str) -> None:
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.wait_for_selector(CHART)
    settle(page)
    page.close()
    elsewhere = [each for each in asked if not each.startswith((url, "data:", "blob:"))]
    assert not elsewhere
