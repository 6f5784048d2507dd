"""What the browser tests do on every page: read a table, choose in a box, wait for what they assert.

A page may be drawn again at any time, so what is asserted is read in one look, by one script, and waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PAGES = ("", "compare", "sweep", "search")
"""Addresses of all pages; "" is the leaderboard's."""


@dataclass(frozen=True)
class Site:
    """Where the pages of the store that the browser's tests share are served, the store, and the verdict's folder."""

    address: str
    uri: str
    verdict: Path


DRAWN = "[data-test-script-state=notRunning]"
PATIENCE = 180
"""Seconds until a page must show what is waited for."""


def wait_for(browser: Chrome, look: Callable[[Chrome], Any], patience: float = PATIENCE) -> Any:
    """What a look at the page finds as soon as it is true. A look that meets a page being drawn is taken again."""
    return WebDriverWait(browser, patience, 0.1, ignored_exceptions=[WebDriverException]).until(look)


def wait_until_equal(browser: Chrome, look: Callable[[Chrome], Any], expected: Any) -> None:
    """Until a look finds this and the page's script has run to its end."""
    last = None

    def is_there(page: Chrome) -> bool:
        nonlocal last
        last = look(page)
        return bool(last == expected and page.find_elements(By.CSS_SELECTOR, DRAWN))

    try:
        wait_for(browser, is_there)
    except TimeoutException as error:
        raise AssertionError(f"{last!r}, not {expected!r}") from error


def wait_for_text(browser: Chrome, *words: str, patience: float = PATIENCE) -> str:
    """The page's text, once all of these stand in it. What a test asserts of the text is among them: the rest of a page
    may still be drawn.
    """

    def look(page: Chrome) -> str:
        found = text(page)
        return found if all(one in found for one in words) else ""

    try:
        return str(wait_for(browser, look, patience))
    except TimeoutException as error:
        raise AssertionError(f"not all of {words} in {text(browser)}") from error


def text(browser: Chrome) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def texts(browser: Chrome, where: str) -> list[str]:
    """The texts of all elements that a CSS selector finds."""
    script = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent.trim())"
    return list(browser.execute_script(script, where))


def board(browser: Chrome) -> list[dict[str, str]]:
    """The leaderboard's lines as screen readers have them: head -> cell."""
    script = """const [heads, ...lines] = [...document.querySelectorAll("[data-testid=stDataFrame] [role=row]")]
        .map(row => [...row.children].map(cell => cell.textContent));
        return lines.map(line => Object.fromEntries(line.map((cell, at) => [heads[at], cell])))"""
    return list(browser.execute_script(script))


def systems(browser: Chrome) -> list[str]:
    """The systems of the leaderboard in the order in which they stand there."""
    return [line.get("System", "") for line in board(browser)]


def wait_for_systems(browser: Chrome, expected: list[str]) -> None:
    """Until the leaderboard shows these systems in this order and the page's script has run to its end."""
    wait_until_equal(browser, systems, expected)


def wait_for_table(browser: Chrome, label: str, ready: Callable[[list[list[str]]], bool] | int) -> list[list[str]]:
    """The texts of a table's lines, cell by cell, as one look found them ready, or that many of them, the page's script
    at its end.
    """
    script = """return [...document.querySelectorAll(`table[aria-label="${arguments[0]}"] tbody tr`)]
        .map(line => [...line.cells].map(cell => cell.innerText.trim()))"""

    def look(page: Chrome) -> list[list[str]]:
        lines = list(page.execute_script(script, label))
        is_ready = len(lines) == ready if isinstance(ready, int) else ready(lines)
        return lines if is_ready and page.find_elements(By.CSS_SELECTOR, DRAWN) else []

    return list(wait_for(browser, look))


def wait_until_drawn(browser: Chrome) -> None:
    """Until the page has its heading, its script has run to its end, and what it drew has stopped to fade in."""
    still = "return document.getAnimations().every(one => one.playState !== 'running')"
    heading = (By.CSS_SELECTOR, "[data-testid=stHeading]")
    stale = (By.CSS_SELECTOR, "[data-stale=true], [data-testid=stSkeleton]")

    def look(page: Chrome) -> bool:
        whole = page.find_elements(*heading) and page.find_elements(By.CSS_SELECTOR, DRAWN)
        return bool(whole) and not page.find_elements(*stale) and bool(page.execute_script(still))

    wait_for(browser, look)


def click(browser: Chrome, where: str) -> None:
    """Clicks what a CSS selector or an XPath finds, once the page's script is at its end: the element itself, since
    its place on the screen may change while other parts of the page are drawn.
    """
    by = By.XPATH if where.startswith("//") else By.CSS_SELECTOR

    def press(page: Chrome) -> bool:
        found = page.find_element(by, where)
        is_ready = found.is_displayed() and bool(page.find_elements(By.CSS_SELECTOR, DRAWN))
        if is_ready:
            page.execute_script("arguments[0].click()", found)
        return is_ready

    wait_for(browser, press)


def type_into(browser: Chrome, where: str, words: str) -> None:
    """Types into the box that a CSS selector finds, and enters it."""

    def press(page: Chrome) -> bool:
        box = page.find_element(By.CSS_SELECTOR, where)
        box.click()
        box.send_keys(words, Keys.ENTER)
        return True

    wait_for(browser, press)


def choose(browser: Chrome, key: str, value: str) -> None:
    """Types into a select box, found by the class that Streamlit makes of a widget's key."""
    type_into(browser, f".st-key-{key} input", value)


def wait_for_query(browser: Chrome, **expected: str) -> None:
    """Until these values stand in the address behind the question mark."""

    def look(page: Chrome) -> dict[str, list[str] | None]:
        return {name: parse_qs(urlsplit(page.current_url).query).get(name) for name in expected}

    wait_until_equal(browser, look, {name: [value] for name, value in expected.items()})
