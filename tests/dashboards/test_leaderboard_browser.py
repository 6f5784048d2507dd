"""The leaderboard in a real headless Chromium: what it shows, filters, order, exports, what lies in its address."""

import csv
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.dashboards import tracked
from tests.support.dashboards.browser import ROOT, hosts_asked, served
from tests.support.dashboards.pages import (
    choose,
    query,
    systems,
    wait_for_lines,
    wait_for_systems,
    wait_for_table,
    wait_for_text,
)

PAGE = ROOT / "dashboards" / "leaderboard.py"
SQUAD = ["dupmae", "retromae", "none", "bm25"]
PYDOCS = ["RetroMAE", "BM25", "MLM", "No middle training"]


def test_systems_with_seeds_as_one_line_superscripts_and_costs(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/?corpus=squad")
    lines = wait_for_systems(browser, SQUAD)
    assert [line[0].split() for line in lines] == [["1", "1-2"], ["2", "1-2"], ["3"], ["4"]]
    bars = "return [...document.querySelectorAll('td.rank')].map(cell => cell.querySelectorAll('.lane').length)"
    assert browser.execute_script(bars) == [1, 1, 0, 0], "the first two are a tie"
    assert [line[1].split()[0] for line in lines] == ["a", "b", "c", "d"]
    assert lines[3][1].split() == ["d", "bm25"], "its representation has the name of the system, its training none"
    best, spread = lines[0][2].splitlines()
    assert best.endswith("cd") and spread.startswith("± 0.0")
    hours, size, search, gain, seeds = lines[0][4:9]
    assert (hours.split(), size, search) == (["4h00m", "CPU"], "512 B", "1.25 ms")
    assert gain.startswith("+4.") and seeds == "0 1 2"
    assert lines[3][5] == "—", "BM25 keeps no vectors"
    bold = [cell.text[:5] for cell in browser.find_elements(By.CSS_SELECTOR, "table[aria-label=systems] td.best")]
    assert len(bold) == 2 and bold[0] == best[:5]
    links = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "td a")][:10]
    assert len(set(links)) == 10 and all(str(link).startswith("http://127.0.0.1:5999/#/experiments/") for link in links)
    shared = "All that are trained: pre-trained on corpus, representation dense, protocol in_batch, backbone tiny."
    assert shared in wait_for_text(browser, "letters: the systems it is significantly better than")
    browser.find_element(By.XPATH, "//summary[contains(., 'How to read this table')]").click()
    assert "Superscripts: the systems that a row is significantly better" in wait_for_text(browser, "Gain per hour: ")


def test_it_opens_on_the_newest_results_and_finds_systems_by_their_names(browser: Chrome, address: str) -> None:
    browser.get(address)
    wait_for_systems(browser, SQUAD)
    groups = [head.text for head in browser.find_elements(By.CSS_SELECTOR, "table[aria-label=systems] th.group")]
    assert groups == ["squad dev, 60 queries"]
    browser.get(f"{address}/?find=MAE+dense")
    wait_for_systems(browser, SQUAD[:2])
    browser.get(f"{address}/?find=nothing+of+the+kind")
    wait_for_text(browser, "No system matches these choices")


def test_a_system_that_is_clicked_has_a_card_and_costs_have_a_chart(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/?corpus=squad&cost=Training")
    wait_for_systems(browser, SQUAD)
    labels = (By.CSS_SELECTOR, ".st-key-quality_cost .textpoint text")
    WebDriverWait(browser, 90).until(lambda page: len(page.find_elements(*labels)) == 4)
    assert {label.text for label in browser.find_elements(*labels)} == {"dupmae", "retromae", "none", "bm25"}
    browser.find_element(By.CSS_SELECTOR, "tr[data-system=none] button[data-open]").click()
    facts = dict(wait_for_table(browser, "system", lambda lines: ["System", "none"] in lines))
    assert facts["Rank by squad dev nDCG@10"] == "3" and facts["Training"] == "30m00s CPU"
    assert facts["Runs, by seed"] == "0 · 1 · 2"
    WebDriverWait(browser, 30).until(lambda page: query(page).get("system", [""])[0].startswith("none"))


def test_all_corpora_side_by_side_and_what_has_not_finished(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/?corpus=all&split=all")
    lines = wait_for_systems(browser, [*PYDOCS, *SQUAD])
    groups = [head.text for head in browser.find_elements(By.CSS_SELECTOR, "table[aria-label=systems] th.group")]
    assert groups == [
        "pydocs dev, 1,204 queries",
        "pydocs test, 1,190 queries",
        "squad dev, 60 queries",
        "cranfield dev, 1,204 queries (split made here)",
    ]
    assert lines[0][2] == "0.6412" and lines[1][8:10] == ["—", "—"]
    assert [head.text for head in browser.find_elements(By.CSS_SELECTOR, "th.order")] == ["nDCG@10"]
    left = {line[0]: line[2] for line in wait_for_lines(browser, "unfinished", 2)}
    assert left == {"pretrain alive": "running", "pretrain broken": "failed"}


def test_a_filter_narrows_the_table_and_lies_in_the_address(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/?corpus=all&split=all")
    wait_for_systems(browser, [*PYDOCS, *SQUAD])
    choose(browser, "split", "test")
    by_test = ["BM25", "RetroMAE", "MLM", "No middle training"]
    wait_for_systems(browser, by_test)
    WebDriverWait(browser, 30).until(lambda page: query(page).get("split") == ["test"])
    copied = browser.current_url
    browser.get("about:blank")
    browser.get(copied)
    wait_for_systems(browser, by_test)
    browser.get(f"{address}/?corpus=squad&representation=dense&marks=tie+groups&measures=RR%4010&baseline=bm25")
    lines = wait_for_systems(browser, SQUAD[:3])
    assert [line[2].splitlines()[0][5:] for line in lines] == ["a", "a", "b"]
    browser.get(f"{address}/?corpus=cranfield&split=test")
    wait_for_text(browser, "No system was evaluated on this split of this corpus")


def test_the_head_of_a_column_orders_by_it_and_then_the_other_way_round(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/?corpus=squad")
    wait_for_systems(browser, SQUAD)
    head = 'table[aria-label=systems] th[data-key="Train hours"] button'
    browser.find_element(By.CSS_SELECTOR, head).click()
    wait_for_systems(browser, ["bm25", "none", "retromae", "dupmae"])
    WebDriverWait(browser, 30).until(lambda page: query(page).get("order") == ["Train hours"])
    browser.find_element(By.CSS_SELECTOR, head).click()
    wait_for_systems(browser, ["dupmae", "retromae", "none", "bm25"])
    WebDriverWait(browser, 30).until(lambda page: query(page).get("reverse") == ["true"])
    browser.get(f"{address}/?corpus=squad&order=Gain+per+hour")
    assert wait_for_systems(browser, ["retromae", "dupmae", *systems_without_gain(browser)])


def systems_without_gain(browser: Chrome) -> list[str]:
    WebDriverWait(browser, 90).until(lambda page: len(systems(page)) == 4)
    return systems(browser)[2:]


def test_exports_hold_the_shown_view_and_the_html_opens_from_disk(
    browser: Chrome, address: str, tmp_path: Path
) -> None:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.get(f"{address}/?corpus=squad&representation=dense&order=Train+hours")
    expected = ["none", "retromae", "dupmae"]
    wait_for_systems(browser, expected)
    for name, file in (("CSV", "csv"), ("Markdown", "md"), ("HTML", "html")):
        browser.find_element(By.XPATH, f"//button[contains(., '{name}')]").click()
        WebDriverWait(browser, 60).until(lambda page, file=file: (tmp_path / f"leaderboard.{file}").exists())
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").open()))
    assert [line["System"] for line in lines] == expected and lines[0]["Seeds"].count(";") == 2
    assert len((tmp_path / "leaderboard.md").read_text().split("\n\n")[0].splitlines()) == 5
    hosts_asked(browser)
    browser.get((tmp_path / "leaderboard.html").as_uri())
    assert systems(browser) == expected and hosts_asked(browser) == set()
    browser.find_element(By.CSS_SELECTOR, 'th[data-key="squad dev nDCG@10"]').click()
    assert systems(browser) == expected, "sorted by its own script, the lowest first"
    browser.find_element(By.CSS_SELECTOR, 'th[data-key="squad dev nDCG@10"]').click()
    assert systems(browser) == expected[::-1]
    view = browser.find_element(By.TAG_NAME, "a").get_attribute("href")
    assert view is not None and "representation=dense" in view and "baseline=none" in view
    browser.get(view)
    wait_for_systems(browser, expected)


def test_the_surface_of_the_sweep(browser: Chrome, address: str) -> None:
    browser.get(f"{address}/sweep")
    read = "return [...document.querySelectorAll('.heatmap-label text')].map(cell => cell.textContent)"  # all at once
    wanted = sorted(f"{tracked.DEV[ratios]:.4f}" for ratios in tracked.RATIOS[1:])
    WebDriverWait(browser, 90).until(lambda page: sorted(page.execute_script(read)) == wanted)
    wait_for_text(browser, "Best nDCG@10 0.5800 at encoder 0.5, decoder 0.9")


def test_on_a_phone_nothing_but_the_table_scrolls_sideways(browser: Chrome, address: str) -> None:
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get(f"{address}/?corpus=all&split=all")
        wait_for_systems(browser, [*PYDOCS, *SQUAD])
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
        said = wait_for_text(browser, words[-1])
        assert all(word in said for word in words), said
        assert "secret" not in browser.page_source
    assert not (tmp_path / "none.db").exists()
    assert "secret" not in (tmp_path / "streamlit.log").read_text()
