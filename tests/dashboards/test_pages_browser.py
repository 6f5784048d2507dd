"""The pages beside the leaderboard in a real headless Chromium: what they show, and what they say that they cannot."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from midmask.artifact import Place
from midmask.leaderboard.embeddings import draw_sample, encodings, map_embeddings
from midmask.leaderboard.lineage import lineage
from midmask.leaderboard.per_query import PerQueryFiles
from midmask.leaderboard.queries import pair_systems, widest
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking import ARTIFACT, TrackedRow, Tracker, read_runs
from tests.support.dashboards import swept, tracked
from tests.support.dashboards.browser import ROOT, served
from tests.support.dashboards.pages import (
    PATIENCE,
    choose,
    query,
    wait_for_axis,
    wait_for_lines,
    wait_for_table,
    wait_for_text,
)

PAGE = ROOT / "dashboards" / "leaderboard.py"


@dataclass(frozen=True)
class Site:
    """The address of the pages on a store, and what lies in it. rows: recipe -> its row on dev."""

    address: str
    uri: str
    runs: dict[str, TrackedRow]
    rows: dict[str, LeaderboardRow]


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, browser: Chrome, worked_store: tuple[Path, dict[str, str]]
) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(worked_store[0] / "mlflow.db", home)
    uri = f"sqlite:///{home}/mlflow.db"
    with Tracker(uri, home, tracked.QUICK) as tracker:
        swept.track(tracker)
    runs = read_runs(uri)
    evaluated = {row.recipe: row for row in rows(runs) if row.corpus == "tiny"}
    by_recipe = {recipe: next(run for run in runs if run.run_id == row.run_id) for recipe, row in evaluated.items()}
    with served(PAGE, ["--tracking-uri", uri], home / "streamlit.log") as found:
        yield Site(found, uri, by_recipe, evaluated)


def place(run: TrackedRow) -> Place:
    return Place(run.tags[ARTIFACT])


def test_compare_counts_tests_and_shows_the_queries(browser: Chrome, site: Site, tmp_path: Path) -> None:
    own, base = (PerQueryFiles(site.uri, tmp_path)(site.rows[name]) for name in ("retromae", "bm25"))
    assert own is not None and base is not None
    pairing = pair_systems(own, base, "nDCG@10")
    browser.get(f"{site.address}/compare?place=tiny+dev&base=bm25&systems=retromae")
    (line,) = wait_for_lines(browser, "standings", 1)
    assert [int(count) for count in line[-3:]] == [pairing.wins, pairing.losses, pairing.ties]
    assert line[1] == f"{site.rows['retromae'].measures['nDCG@10']:.4f}"
    WebDriverWait(browser, PATIENCE).until(lambda page: cards(page))
    assert cards(browser) == widest(pairing, 5)
    assert "Judged relevant" in wait_for_text(browser, "Found by retromae")
    wait_for_text(browser, "Words of the query")
    choose(browser, "side", "losses")
    WebDriverWait(browser, PATIENCE).until(lambda page: query(page).get("side") == ["losses"])
    copied = browser.current_url
    browser.get("about:blank")
    browser.get(copied)
    wait_for_lines(browser, "standings", 1)
    WebDriverWait(browser, PATIENCE).until(lambda page: cards(page) == widest(pairing, 5, "losses"))
    last = cards(browser)[-1]
    browser.get(browser.find_element(By.CSS_SELECTOR, f'[data-query="{last}"] a').get_attribute("href") or "")
    WebDriverWait(browser, PATIENCE).until(lambda page: cards(page) == [last])
    (size,) = WebDriverWait(browser, PATIENCE).until(lambda page: page.execute_script(SQUARE))
    assert size[0] == pytest.approx(size[1], rel=0.02), "both axes of the scatter plot have one scale"


SQUARE = """return [...document.querySelectorAll('.st-key-scatter .xy .gridlayer')].length
    ? [document.querySelector('.st-key-scatter .nsewdrag')].map(found => found.getBoundingClientRect())
        .map(box => [box.width, box.height]) : []"""


def named(site: Site, recipe: str) -> str:
    """The run as its page's address has it."""
    row = site.rows[recipe]
    more = (row.representation, row.pretrain_on, row.protocol, f"seed {row.seed.strip()}", row.run_id[:8])
    parts = [recipe, *(part for part in more if part not in ("", "none", recipe))]
    return " · ".join(parts).replace(" ", "+")


def cards(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('.mm-query')].map(card => card.dataset.query)"
    return list(browser.execute_script(script))


def test_the_card_of_a_system_has_its_curves_and_its_model(browser: Chrome, site: Site) -> None:
    browser.get(f"{site.address}/?corpus=tiny&split=dev")
    row = (By.CSS_SELECTOR, "tr[data-system=retromae] button[data-open]")
    WebDriverWait(browser, PATIENCE).until(expected_conditions.element_to_be_clickable(row)).click()
    model = next(one for one in lineage(place(site.runs["retromae"])) if one.step == "finetune").place / "model"
    text = wait_for_text(browser, f"midmask search {model} --corpus")
    assert "Loss, pretrain" in text and "Loss, finetune" in text
    browser.get(f"{site.address}/?corpus=tiny&split=dev&find=bm25")
    row = (By.CSS_SELECTOR, "tr[data-system=bm25] button[data-open]")
    WebDriverWait(browser, PATIENCE).until(expected_conditions.element_to_be_clickable(row)).click()
    wait_for_text(browser, "It has no model folder")


def test_training_overlays_runs_and_keeps_the_phase_in_the_address(browser: Chrome, site: Site) -> None:
    browser.get(f"{site.address}/training")
    (line,) = wait_for_lines(browser, "trainings", 1)
    assert line[0].startswith("pretrain-retromae") and line[1:3] == ["finished", "3"]
    titles = ["Loss", "Decoder MLM", "Encoder MLM", "Learning rate", "Gradient norm", "Gradient norm of the heads"]
    titles += ["Tokens a second", "Waiting for data"]
    WebDriverWait(browser, PATIENCE).until(lambda page: sorted(plot_titles(page)) == sorted(titles))
    choose(browser, "across", "tokens")
    wait_for_axis(browser, "tokens")
    choose(browser, "phase", "finetune")
    assert {line[0].split("-")[1] for line in wait_for_lines(browser, "trainings", 2)} == {"retromae", "none"}
    assert query(browser)["phase"] == ["finetune"]


def plot_titles(browser: Chrome) -> list[str]:
    return [found.text for found in browser.find_elements(By.CSS_SELECTOR, ".js-plotly-plot .gtitle")]


def test_embeddings_show_the_divergences_of_the_sample(browser: Chrome, site: Site) -> None:
    browser.get(f"{site.address}/embeddings?runs={named(site, 'none')}")
    sample = draw_sample(encodings(place(site.runs["none"])), "dense")
    for perplexity in (30, 5):
        drawn = map_embeddings(sample, perplexity=perplexity, seed=0)
        kl = f"{drawn.divergence.kl:.3g}"
        (line,) = wait_for_table(browser, "divergences", lambda lines, kl=kl: [line[2] for line in lines] == [kl])
        assert line[1] == "12" and line[3] == f"{drawn.divergence.js:.3g}" and line[5] == f"{drawn.cosines.pairs:.3f}"
        if perplexity == 30:
            choose(browser, "perplexity", "5")
    assert query(browser)["perplexity"] == ["5"]
    wait_for_text(browser, "An illustration, not evidence")


def test_lineage_names_every_step_and_the_command(browser: Chrome, site: Site) -> None:
    run = site.runs["retromae"]
    links = lineage(place(run))
    browser.get(f"{site.address}/lineage?run={named(site, 'retromae')}&rerun=true")
    found = wait_for_lines(browser, "steps", len(links))
    assert [(line[1], line[-1]) for line in found] == [(one.step, one.fingerprint) for one in links]
    boxes = (By.CSS_SELECTOR, "[data-testid=stGraphVizChart] .node")
    WebDriverWait(browser, PATIENCE).until(lambda page: len(page.find_elements(*boxes)) == len(links))
    drawn = [box.text.splitlines() for box in browser.find_elements(*boxes)]
    assert sorted((box[0], box[-1]) for box in drawn) == sorted((one.step, one.fingerprint[:8]) for one in links)
    told = wait_for_text(browser, "jobs/evaluate_retriever.py")
    assert "--recipe retromae" in told and "--split dev" in told and "--set pretrain.steps=3" in told
    assert run.tags["midmask.fingerprint"] in told and "cannot be worked out" not in told


def test_a_sweep_tells_its_points_front_and_importance(browser: Chrome, site: Site) -> None:
    browser.get(f"{site.address}/sweep")
    found = wait_for_lines(browser, "points", len(swept.POINTS) + 3)
    assert found[0][:3] == [swept.label(*swept.BEST), "complete", f"{swept.value(*swept.BEST):.4f}"]
    others = {line[5] for line in found[1 : len(swept.POINTS)]}
    assert found[0][5] == "the best" and others == {"worse", "not told apart"}
    told = wait_for_text(browser, "Pareto front")
    assert "64/128 is <best>; it is *not* distinguishable" in told, "a sentence is text, not Markdown"
    assert "13 points ran to the end, 1 pruned" in told
    choose(browser, "across", "N")
    wait_for_axis(browser, "N")
    choose(browser, "up", "CLS width")
    cells = (By.CSS_SELECTOR, ".heatmap-label text")
    WebDriverWait(browser, PATIENCE).until(lambda page: len(page.find_elements(*cells)) == 12)
    shown = {cell.text for cell in browser.find_elements(*cells)}
    assert shown == {f"{swept.value(width, words):.4f}" for width, words in swept.POINTS if words}
    assert (query(browser)["across"], query(browser)["up"]) == (["N"], ["CLS width"])


WITHOUT_ARTIFACTS = {
    "compare": "keep no values per query",
    "training": "No training has been tracked",
    "embeddings": "does not tell where its artifact lies",
    "lineage": "does not tell where its artifact lies",
    "sweep": "Best nDCG@10 0.5800 at encoder 0.5, decoder 0.9",
}


def test_what_cannot_be_shown_of_runs_without_artifacts_is_said(browser: Chrome, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracked.everything(uri, tmp_path)
    with served(PAGE, ["--tracking-uri", uri], tmp_path / "streamlit.log") as found:
        for path, expected in WITHOUT_ARTIFACTS.items():
            browser.get(f"{found}/{path}")
            wait_for_text(browser, expected)
