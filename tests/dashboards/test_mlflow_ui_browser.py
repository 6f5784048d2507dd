"""MLflow's own pages on a sweep as the tracker writes it: nested runs, one chart for all trials, datasets, tags."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.dashboards import nested
from tests.support.dashboards.browser import hosts_asked
from tests.support.tracking.server import Server


@dataclass(frozen=True)
class Pages:
    """Where MLflow shows an experiment; `parent` and `trials` are run ids."""

    address: str
    experiment: str
    parent: str
    trials: dict[float, str]

    def runs(self, mode: str = "TABLE") -> str:
        return f"{self.address}/#/experiments/{self.experiment}/runs?compareRunsMode={mode}"

    def run(self, run_id: str) -> str:
        return f"{self.address}/#/experiments/{self.experiment}/runs/{run_id}"

    def comparison(self) -> str:
        """Where `Compare` leads from the chosen trials."""
        asked = (quote(json.dumps(ids)) for ids in (list(self.trials.values()), [self.experiment]))
        return "{}/#/compare-runs?runs={}&experiments={}".format(self.address, *asked)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, browser: Chrome) -> Iterator[Pages]:
    browser.set_page_load_timeout(240)
    browser.set_window_size(1600, 1400)  # charts are drawn when they come into view
    home = tmp_path_factory.mktemp("home")
    server = Server(home)
    found = nested.sweep(server.store, home)
    server.start()
    try:
        server.wait()
        yield Pages(server.uri, *found)
    finally:
        server.stop()


def links(browser: Chrome, pages: Pages) -> dict[str, str]:
    """Run id -> name, of every run that the page links."""
    script = """return [...document.querySelectorAll('a[href*="/runs/"]')].map(a => [a.href, a.textContent])"""
    shown = {address.rsplit("/runs/", 1)[1].split("?")[0]: text for address, text in browser.execute_script(script)}
    return {run_id: text for run_id, text in shown.items() if run_id in (pages.parent, *pages.trials.values())}


def text(browser: Chrome) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def waiting(browser: Chrome) -> WebDriverWait[Chrome]:
    return WebDriverWait(browser, 60, ignored_exceptions=[StaleElementReferenceException])


def unfold(browser: Chrome, pages: Pages) -> None:
    """Opens the parent's nested runs by the button beside its name; the page remembers that they are open."""
    waiting(browser).until(lambda page: links(page, pages))
    if len(links(browser, pages)) == 1:
        cell = f"//*[@role='gridcell'][.//a[contains(@href, '{pages.parent}')]]//button"
        waiting(browser).until(lambda page: page.find_elements(By.XPATH, cell))[0].click()
    waiting(browser).until(lambda page: len(links(page, pages)) == 1 + len(pages.trials))


def test_the_trials_are_nested_in_their_sweep(browser: Chrome, pages: Pages) -> None:
    browser.get("about:blank")
    browser.get(pages.runs())
    waiting(browser).until(lambda page: links(page, pages))
    assert links(browser, pages) == {pages.parent: "sweep_mask_ratio-retromae-tiny-5eed"}, "trials are folded in"
    unfold(browser, pages)
    names = {run_id: name for run_id, name in links(browser, pages).items() if run_id != pages.parent}
    assert names == {run_id: nested.name_of(ratio) for ratio, run_id in pages.trials.items()}
    assert f"{nested.SQUAD.name} ({nested.SQUAD.digest})" in text(browser)


def test_one_chart_overlays_all_trials_by_step(browser: Chrome, pages: Pages) -> None:
    browser.get("about:blank")
    browser.get(pages.runs("CHART"))
    unfold(browser, pages)
    card = f"//*[@data-testid='experiment-view-compare-runs-card'][contains(., '{nested.KEY}')]"
    curves = f"{card}//*[contains(@class, 'scatterlayer')]/*[contains(@class, 'trace')]"
    waiting(browser).until(lambda page: len(page.find_elements(By.XPATH, curves)) >= len(pages.trials))
    axis = browser.find_element(By.XPATH, f"{card}//*[contains(@class, 'xtitle')]").text
    assert axis.lower() == "step"


def test_a_comparison_shows_the_same_keys_of_all_trials(browser: Chrome, pages: Pages) -> None:
    browser.get("about:blank")
    browser.get(pages.comparison())
    values = [str(nested.measure_of(ratio)) for ratio in nested.RATIOS]
    waiting(browser).until(lambda page: all(value in text(page) for value in values))
    metrics = text(browser).split("\nMetrics\n")[1].split("\nArtifacts\n")[0].splitlines()
    assert {nested.KEY, nested.MEASURE} <= set(metrics) and set(values) <= set(metrics)


def test_a_runs_page_shows_its_dataset_tags_parent_and_model(browser: Chrome, pages: Pages) -> None:
    browser.get("about:blank")
    browser.get(pages.run(pages.trials[0.3]))
    wanted = [nested.SQUAD.name, nested.SQUAD.digest, "midmask.recipe", nested.MEASURE]
    wanted += [nested.name_of(0.3), "sweep_mask_ratio-retromae-tiny-5eed"]
    waiting(browser).until(lambda page: all(word in text(page) for word in wanted))
    model = nested.name_of(0.3).replace(" ", "-").replace(".", "-")
    where = (By.XPATH, f'//a[contains(@href, "/models/m-") and normalize-space()="{model}"]')
    waiting(browser).until(expected_conditions.presence_of_element_located(where))
    browser.get("about:blank")
    browser.get(pages.run(pages.parent))
    waiting(browser).until(lambda page: "retromae 0.3" in text(page))


def test_no_page_asked_another_host(browser: Chrome, pages: Pages) -> None:
    browser.get("about:blank")
    browser.get(pages.runs())
    waiting(browser).until(lambda page: links(page, pages))
    assert hosts_asked(browser) == {"127.0.0.1"}
