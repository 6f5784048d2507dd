"""The leaderboard in a real headless Chromium: its table, several collections, what lies in its address.

Streamlit draws the table on a canvas; beside it stand the same cells for screen readers, which are read here.
"""

from selenium.webdriver import Chrome

from tests.support.dashboards import pages

SQUAD = ["dupmae", "retromae", "none", "bm25"]
PYDOCS = ["RetroMAE", "BM25", "MLM", "No middle training"]
TINY = ["retromae", "none", "bm25"]


def test_systems_with_seeds_as_one_line_marks_and_costs(browser: Chrome, site: pages.Site) -> None:
    browser.get(site.address)  # it opens on the newest results
    pages.wait_for_systems(browser, SQUAD)
    lines = pages.board(browser)
    assert [line["Rank"] for line in lines] == ["1", "2", "3", "4"]
    assert [line["Ranks allowed"] for line in lines[:2]] == ["1-2", "1-2"]
    assert "±" in lines[0]["nDCG@10"] and lines[0]["nDCG@10"].endswith("cd")
    pages.wait_for_text(browser, "squad dev, 60 queries", "pre-trained on corpus, representation dense")


def test_all_corpora_side_by_side_and_what_has_not_finished(browser: Chrome, site: pages.Site) -> None:
    browser.get(f"{site.address}/?corpus=all&split=all")
    rest = sorted([*SQUAD, *TINY])
    parted = lambda found: (found[:4], sorted(found[4:]))  # noqa: E731
    pages.wait_until_equal(browser, lambda page: parted(pages.systems(page)), (PYDOCS, rest))
    places = ["pydocs dev, 1,204 queries", "pydocs test, 1,190 queries", "squad dev, 60 queries"]
    places += ["tiny dev, 12 queries", "cranfield dev, 1,204 queries (split made here)"]
    pages.wait_for_text(browser, *places)
    left = {line[0]: line[2] for line in pages.wait_for_table(browser, "unfinished", lambda lines: len(lines) > 1)}
    assert left.items() >= {"pretrain alive": "running", "pretrain broken": "failed"}.items()


def test_a_filter_narrows_the_table_and_lies_in_the_address(browser: Chrome, site: pages.Site) -> None:
    browser.get(f"{site.address}/?corpus=all&split=all")
    pages.wait_until_equal(browser, lambda page: len(pages.systems(page)), len(PYDOCS + SQUAD + TINY))
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
    browser.get(f"{site.address}/?corpus=cranfield&split=test")
    pages.wait_for_text(browser, "No system was evaluated on this split of this corpus")
