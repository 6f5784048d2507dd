"""The leaderboard in a real headless Chromium: what it shows, filters, order, CSV, what lies in its address."""

import csv

from selenium.webdriver import Chrome

from tests.support.dashboards import pages

SQUAD = ["dupmae", "retromae", "none", "bm25"]
PYDOCS = ["RetroMAE", "BM25", "MLM", "No middle training"]
TINY = ["retromae", "none", "bm25"]
GROUPS = "table[aria-label=systems] th.group"


def test_systems_with_seeds_as_one_line_superscripts_and_costs(browser: Chrome, site: pages.Site) -> None:
    browser.get(site.address)  # it opens on the newest results
    lines = pages.wait_for_systems(browser, SQUAD)
    pages.wait_until_equal(browser, lambda page: pages.texts(page, GROUPS), ["squad dev, 60 queries"])
    assert [line[0].split() for line in lines] == [["1", "1-2"], ["2", "1-2"], ["3"], ["4"]]
    assert [line[1].split()[0] for line in lines] == ["a", "b", "c", "d"]
    assert lines[3][1].split() == ["d", "bm25"], "its representation has the name of the system, its training none"
    best, spread = lines[0][2].splitlines()
    assert best.endswith("cd") and spread.startswith("± 0.0")
    hours, size, search, seeds = lines[0][4:8]
    assert (hours.split(), size, search) == (["4h00m", "CPU"], "512 B", "1.25 ms")
    assert seeds == "0 1 2"
    assert lines[3][5] == "—", "BM25 keeps no vectors"
    bold = "table[aria-label=systems] td.best"
    pages.wait_until_equal(browser, lambda page: [one[:5] for one in pages.texts(page, bold)], [best[:5], "0.618"])
    links = browser.execute_script("return [...document.querySelectorAll('td a')].slice(0, 10).map(one => one.href)")
    assert len(set(links)) == 10 and all(str(link).startswith("http://127.0.0.1:5999/#/experiments/") for link in links)
    pages.wait_for_text(browser, "pre-trained on corpus, representation dense, protocol in_batch, backbone tiny.")


def test_all_corpora_side_by_side_and_what_has_not_finished(browser: Chrome, site: pages.Site) -> None:
    browser.get(f"{site.address}/?corpus=all&split=all")
    rest = sorted([*SQUAD, *TINY])
    parted = lambda found: (found[:4], sorted(found[4:]))  # noqa: E731
    pages.wait_until_equal(browser, lambda page: parted(pages.systems(page)), (PYDOCS, rest))
    lines = pages.wait_for_table(browser, "systems", len(PYDOCS + rest))
    assert lines[0][2] == "0.6412" and lines[1][8:10] == ["—", "—"]
    groups = ["pydocs dev, 1,204 queries", "pydocs test, 1,190 queries", "squad dev, 60 queries"]
    groups += ["tiny dev, 12 queries", "cranfield dev, 1,204 queries (split made here)"]
    pages.wait_until_equal(browser, lambda page: sorted(pages.texts(page, GROUPS)), sorted(groups))
    pages.wait_until_equal(browser, lambda page: pages.texts(page, "th.order"), ["nDCG@10"])
    left = {line[0]: line[2] for line in pages.wait_for_table(browser, "unfinished", lambda lines: len(lines) > 1)}
    assert left.items() >= {"pretrain alive": "running", "pretrain broken": "failed"}.items()


def test_a_filter_narrows_the_table_and_lies_in_the_address(browser: Chrome, site: pages.Site) -> None:
    browser.get(f"{site.address}/?corpus=all&split=all")
    pages.wait_for_table(browser, "systems", len(PYDOCS + SQUAD + TINY))
    pages.choose(browser, "split", "test")
    by_test = ["BM25", "RetroMAE", "MLM", "No middle training"]
    pages.wait_for_systems(browser, by_test)
    pages.wait_for_query(browser, split="test")
    copied = browser.current_url
    browser.get("about:blank")
    browser.get(copied)
    pages.wait_for_systems(browser, by_test)
    browser.get(f"{site.address}/?corpus=squad&find=dense&measures=RR%4010")
    pages.wait_for_systems(browser, SQUAD[:3])
    browser.get(f"{site.address}/?find=MAE+dense")
    pages.wait_for_systems(browser, SQUAD[:2])
    browser.get(f"{site.address}/?corpus=cranfield&split=test")
    pages.wait_for_text(browser, "No system was evaluated on this split of this corpus")


def test_a_column_orders_and_then_the_other_way_round(browser: Chrome, site: pages.Site) -> None:
    browser.get(f"{site.address}/?corpus=squad")
    pages.wait_for_systems(browser, SQUAD)
    pages.choose(browser, "order", "Train hours")
    pages.wait_for_systems(browser, ["bm25", "none", "retromae", "dupmae"])
    pages.wait_for_query(browser, order="Train hours")
    browser.get(f"{site.address}/?corpus=squad&order=Train+hours&reverse=true")
    pages.wait_for_systems(browser, SQUAD)


def test_the_csv_holds_the_shown_view(browser, site, tmp_path) -> None:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.get(f"{site.address}/?corpus=squad&find=dense&order=Train+hours")
    expected = ["none", "retromae", "dupmae"]
    pages.wait_for_systems(browser, expected)
    pages.click(browser, "//button[contains(., 'CSV')]")
    pages.wait_for(browser, lambda page: (tmp_path / "leaderboard.csv").exists())
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").open()))
    assert [line["System"] for line in lines] == expected and lines[0]["Seeds"].count(";") == 2
