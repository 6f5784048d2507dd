"""The leaderboard in a real headless Chromium: what it shows, what a filter does, what lies in its address."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from tests.dashboards import tracked
from tests.dashboards.browser import ROOT, chromium, hosts_asked, served

PAGE = ROOT / "dashboards" / "leaderboard.py"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, browser: Chrome) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    uri = f"sqlite:///{home}/mlflow.db"
    tracked.everything(uri, home)
    with served(PAGE, ["--tracking-uri", uri, "--mlflow-ui", "http://127.0.0.1:5999"], home / "streamlit.log") as found:
        yield found


def table(browser: Chrome, label: str) -> list[list[str]]:
    script = """return [...document.querySelectorAll(`table[aria-label="${arguments[0]}"] tbody tr`)]
        .map(line => [...line.cells].map(cell => cell.innerText.trim()))"""
    return list(browser.execute_script(script, label))


def wait_for_rows(browser: Chrome, number: int) -> list[list[str]]:
    """The table's lines, once it has that many and the page's script has run to its end."""
    ended = "[data-test-script-state=notRunning]"
    WebDriverWait(browser, 90).until(
        lambda page: len(table(page, "systems")) == number and page.find_elements(By.CSS_SELECTOR, ended)
    )
    return table(browser, "systems")


def choose(browser: Chrome, key: str, value: str) -> None:
    """Types into a select box, found by the class that Streamlit makes of a widget's key."""
    where = (By.CSS_SELECTOR, f".st-key-{key} input")
    box = WebDriverWait(browser, 30).until(expected_conditions.element_to_be_clickable(where))
    box.click()
    box.send_keys(value, Keys.ENTER)


def query(browser: Chrome) -> dict[str, list[str]]:
    return parse_qs(urlsplit(browser.current_url).query)


def test_systems_measures_and_the_best_in_bold(browser: Chrome, address: str) -> None:
    browser.get(address)
    lines = wait_for_rows(browser, 9)
    assert lines[0][0].splitlines() == ["BM25", "cranfield · devsplit made here"]
    assert lines[1][0].splitlines() == ["RetroMAE", "pydocs · dev"]
    assert lines[1][1:6] == ["0.6412", "0.5912", "0.8412", "retromae", "3"]
    bold = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "table[aria-label=systems] td.best")]
    assert bold == ["0.3812", "0.3312", "0.5812", "0.6412", "0.5912", "0.8412", "0.6455", "0.5955", "0.8455"]
    link = browser.find_element(By.CSS_SELECTOR, "table[aria-label=systems] a").get_attribute("href")
    assert link is not None and link.startswith("http://127.0.0.1:5999/#/experiments/")
    WebDriverWait(browser, 30).until(lambda page: len(table(page, "unfinished")) == 2)
    left = {line[0]: line[2] for line in table(browser, "unfinished")}
    assert left == {"pretrain alive": "running", "pretrain broken": "failed"}


def test_a_filter_narrows_the_table_and_lies_in_the_address(browser: Chrome, address: str) -> None:
    browser.get(address)
    wait_for_rows(browser, 9)
    choose(browser, "split", "test")
    assert [line[0].splitlines()[0] for line in wait_for_rows(browser, 4)] == [
        "BM25",
        "RetroMAE",
        "MLM",
        "No middle training",
    ]
    WebDriverWait(browser, 30).until(lambda page: query(page).get("split") == ["test"])
    copied = browser.current_url
    browser.get("about:blank")
    browser.get(copied + "&objective=mlm")
    assert [line[:2] for line in wait_for_rows(browser, 1)] == [["MLM\npydocs · test", "0.5990"]]
    browser.get(f"{address}/?trials=true&objective=retromae&split=dev")
    assert len(wait_for_rows(browser, 9)) == 9


def test_the_surface_of_the_sweep(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/sweep")
    cells = (By.CSS_SELECTOR, ".heatmap-label text")
    WebDriverWait(browser, 90).until(lambda page: len(page.find_elements(*cells)) == 8)
    shown = {cell.text for cell in browser.find_elements(*cells)}
    assert shown == {f"{tracked.DEV[ratios]:.4f}" for ratios in tracked.RATIOS[1:]}
    best = "Best nDCG@10 0.5800 at encoder 0.5, decoder 0.9"
    WebDriverWait(browser, 30).until(lambda page: best in page.find_element(By.TAG_NAME, "body").text)


def test_on_a_phone_nothing_but_the_table_scrolls_sideways(browser: Chrome, address: str) -> None:
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get(address)
        wait_for_rows(browser, 9)
        wide = "return [document.documentElement.scrollWidth, document.querySelector('.mm-scroll').scrollWidth]"
        page, inner = browser.execute_script(wide)
        assert page <= 390 < inner
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("sqlite:///{home}/none.db", ["Nothing has been evaluated", "make demo", "jobs/sweep_mask_ratio.py"]),
        ("http://me:secret@127.0.0.1:9", ["***@127.0.0.1:9 does not answer", "start the server"]),
        ("file:///tmp/mlruns", ["is a folder", "sqlite:///mlflow.db"]),
    ],
)
def test_a_store_with_nothing_to_show_says_what_to_type(
    browser: Chrome, tmp_path: Path, uri: str, words: list[str]
) -> None:
    with served(PAGE, ["--tracking-uri", uri.format(home=tmp_path)], tmp_path / "streamlit.log") as found:
        browser.get(found)
        WebDriverWait(browser, 90).until(lambda page: page.find_elements(By.CSS_SELECTOR, "[data-testid=stAlert]"))
        WebDriverWait(browser, 30).until(lambda page: words[-1] in page.find_element(By.TAG_NAME, "body").text)
        text = browser.find_element(By.TAG_NAME, "body").text
        assert all(word in text for word in words), text
        assert "secret" not in browser.page_source
    assert not (tmp_path / "none.db").exists()
    assert "secret" not in (tmp_path / "streamlit.log").read_text()


def test_no_page_asked_another_host(browser: Chrome, address: str) -> None:
    browser.get(address)
    wait_for_rows(browser, 9)
    assert hosts_asked(browser) == {"127.0.0.1"}
