"""What the browser tests do on every page: read a table, choose in a box, wait until a page has been drawn."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

PAGES = ("", "compare", "progress", "sweep", "training", "embeddings", "lineage", "search")
"""Addresses of all pages; "" is the leaderboard's."""

DRAWN = "[data-test-script-state=notRunning]"
PATIENCE = 90
"""Seconds until a page must show what is waited for."""


def table(browser: Chrome, label: str) -> list[list[str]]:
    """The texts of a table's lines, cell by cell."""
    script = """return [...document.querySelectorAll(`table[aria-label="${arguments[0]}"] tbody tr`)]
        .map(line => [...line.cells].map(cell => cell.innerText.trim()))"""
    return list(browser.execute_script(script, label))


def systems(browser: Chrome) -> list[str]:
    """The systems of the leaderboard in the order in which they stand there."""
    script = """return [...document.querySelectorAll("table[aria-label=systems] tbody tr")]
        .map(line => line.dataset.system)"""
    return list(browser.execute_script(script))


def wait_for_systems(browser: Chrome, expected: list[str]) -> list[list[str]]:
    """The leaderboard's lines, once it shows these systems in this order and the page's script has run to its end."""
    try:
        return wait_for_table(browser, "systems", lambda lines: bool(lines) and systems(browser) == expected)
    except TimeoutException as error:
        raise AssertionError(f"it shows {systems(browser)}") from error


def wait_for_lines(browser: Chrome, label: str, number: int) -> list[list[str]]:
    """A table's lines, once there are that many and the page's script has run to its end."""
    return wait_for_table(browser, label, lambda lines: len(lines) == number)


def wait_for_table(browser: Chrome, label: str, ready: Callable[[list[list[str]]], bool]) -> list[list[str]]:
    """A table's lines as one look found them ready, the page's script at its end: another look after the wait could
    meet a page that is being drawn again.
    """

    def look(page: Chrome) -> list[list[str]]:
        lines = table(page, label)
        return lines if ready(lines) and page.find_elements(By.CSS_SELECTOR, DRAWN) else []

    return WebDriverWait(browser, PATIENCE).until(look)


def wait_until_drawn(browser: Chrome) -> None:
    """Until the page has its heading, its script has run to its end, and what it drew has stopped to fade in."""
    still = "return document.getAnimations().every(one => one.playState !== 'running')"
    heading = (By.CSS_SELECTOR, "[data-testid=stHeading]")
    stale = (By.CSS_SELECTOR, "[data-stale=true], [data-testid=stSkeleton]")

    def look(page: Chrome) -> bool:
        whole = page.find_elements(*heading) and page.find_elements(By.CSS_SELECTOR, DRAWN)
        return bool(whole) and not page.find_elements(*stale) and bool(page.execute_script(still))

    WebDriverWait(browser, PATIENCE).until(look)


def text(browser: Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def wait_for_text(browser: Chrome, words: str, patience: float = PATIENCE) -> str:
    WebDriverWait(browser, patience).until(lambda page: words in text(page))
    return text(browser)


def choose(browser: Chrome, key: str, value: str) -> None:
    """Types into a select box, found by the class that Streamlit makes of a widget's key."""
    where = (By.CSS_SELECTOR, f".st-key-{key} input")
    box = WebDriverWait(browser, 30).until(expected_conditions.element_to_be_clickable(where))
    box.click()
    box.send_keys(value, Keys.ENTER)


def wait_for_axis(browser: Chrome, label: str) -> None:
    """Until a chart is drawn across this label, the script at its end. A select box that depends on another would
    forget what is typed into it before."""

    def look(page: Chrome) -> bool:
        titles = page.execute_script("return [...document.querySelectorAll('.xtitle')].map(title => title.textContent)")
        return label in titles and bool(page.find_elements(By.CSS_SELECTOR, DRAWN))

    WebDriverWait(browser, PATIENCE).until(look)


def query(browser: Chrome) -> dict[str, list[str]]:
    """What stands in the address behind the question mark."""
    return parse_qs(urlsplit(browser.current_url).query)
