"""Marks as scipy finds them, gains, order, and what leaves the page."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.leaderboard.board import GAIN, HOURS, NEWEST, board_of
from midmask.leaderboard.entries import entries
from midmask.leaderboard.export import as_csv
from midmask.leaderboard.html import document
from midmask.leaderboard.marks import MOST, MOST_MARKED, Marks, marks_of
from midmask.leaderboard.rows import LeaderboardRow, rows
from tests.support.dashboards import compared
from tests.support.dashboards.boards import DEV, NDCG, SHOWN, board, per_query, view


def test_superscripts_are_those_of_paired_t_tests_with_bonferroni() -> None:
    shown = board(view())
    assert [line.entry.recipe for line in shown.lines] == ["dupmae", "retromae", "none", "bm25"]
    assert [line.letter for line in shown.lines] == ["a", "b", "c", "d"]
    for measure in compared.MEASURES:
        seeds = {name: compared.SEEDS if name != "bm25" else (0,) for name in compared.LEVELS}
        means = {
            name: np.mean([[*compared.values(name, seed, measure).values()] for seed in own], axis=0)
            for name, own in seeds.items()
        }
        expected: dict[str, set[str]] = {name: set() for name in means}
        for one, other in combinations(means, 2):
            if 6 * stats.ttest_rel(means[one], means[other]).pvalue < 0.05:
                better, worse = (one, other) if means[one].mean() > means[other].mean() else (other, one)
                expected[better].add(worse)
        cells = {line.entry.recipe: line.cells[f"squad dev {measure}"] for line in shown.lines}
        got = {name: {other.partition(" ")[0] for other in cell.better_than} for name, cell in cells.items()}
        assert got == expected and expected["dupmae"] == {"none", "bm25"}, "the first two are a tie"
        assert [name for name, cell in cells.items() if cell.best] == [max(means, key=lambda name: means[name].mean())]
    ties = {line.entry.recipe: line.cells[NDCG].ties for line in board(view("ties")).lines}
    assert ties == {"dupmae": "a", "retromae": "a", "none": "b", "bm25": "c"}


def test_what_cannot_be_paired_is_named_and_never_compared() -> None:
    found = entries(rows(compared.tracked_rows()))

    def half(row: LeaderboardRow) -> pa.Table | None:
        own = {"none": 30, "bm25": 0}.get(row.recipe, 60)
        keep = set(compared.QUERIES[:own])
        table = per_query(row)
        return table.filter(pa.array([query in keep for query in table["query_id"].to_pylist()])) if own else None

    marks = marks_of(found, SHOWN, ["nDCG@10", "AP"], half, "better_than")
    assert {name.partition(" ")[0] for name, _, _ in marks.better_than} == {"dupmae", "retromae"}
    assert "none ·" in marks.text and "bm25 ·" in marks.text
    one_seed = marks_of(found, SHOWN, ["nDCG@10"], lambda row: per_query(row) if row.seed == "0" else None, "ties")
    assert "Nothing was compared" in one_seed.text, "a mean over three seeds is not tested on one"
    many = [replace(found[0], note=str(number)) for number in range(MOST + 1)]
    assert f"down to {MOST}" in marks_of(many, SHOWN, ["nDCG@10"], per_query, "ties").text
    copies = [replace(entry, note=str(at)) for at in range(MOST_MARKED // len(found) + 1) for entry in found]
    shown = board(view(), copies)
    assert len(copies) > MOST_MARKED and shown.view.marks == "none", "ranks and bars, but no superscripts"
    assert all(len(line.cells[NDCG].better_than) > 2 for line in shown.lines if line.entry.recipe == "dupmae")


def test_gain_per_hour_is_counted_from_the_baseline_of_the_same_kind() -> None:
    other = [compared.tagged(run, protocol="p2") for run in compared.tracked_rows()]
    found = entries(rows([*compared.tracked_rows(), *(run for run in other if run.run_id.startswith("dupmae"))]))
    lines = {(line.entry.recipe, line.entry.protocol): line for line in board(view("none"), found).lines}
    means = {name: lines[name, "in_batch"].cells[NDCG].sorts_by for name in ("dupmae", "none")}
    expected = 100 * (means["dupmae"] - means["none"]) / compared.HOURS["dupmae"]  # type: ignore[operator]
    assert lines["dupmae", "in_batch"].cells[GAIN].number == pytest.approx(expected)
    assert lines["dupmae", "p2"].cells[GAIN].number is None, "nothing to hold it against"
    assert lines["none", "in_batch"].cells[GAIN].number is None
    assert lines["bm25", "in_batch"].cells[GAIN].number is None, "it was not trained"
    assert lines["dupmae", "in_batch"].cells[HOURS].number == 4.0


def test_filters_trials_and_columns() -> None:
    runs = compared.tracked_rows()
    runs += [compared.tagged(run, step="trial") for run in runs]
    found = entries(rows(runs))
    assert len(board(view("none"), found).lines) == 4 and len(board(view("none", trials=True), found).lines) == 8
    dense = board(view("none", filters={"representation": "dense"}), found)
    assert {line.entry.recipe for line in dense.lines} == {"dupmae", "retromae", "none"}
    assert not board(view("none", places={DEV._replace(split="test"): "squad test"}), found).lines
    newest = replace(runs[3], started=runs[3].started + timedelta(days=1))
    (first, *_) = board(view("none", NEWEST), entries(rows([newest, *runs]))).lines
    assert first.entry.recipe == newest.tags["midmask.recipe"]
    assert board(view("none"), entries(rows(runs[:1]))).fields == []
    other = compared.tagged(runs[0], pretrain_on="other")
    assert board(view("none"), entries(rows([runs[0], other]))).fields == ["pretrain_on"], "they differ in it"


def test_csv_holds_numbers_in_full() -> None:
    shown = board(view())
    lines = list(csv.DictReader(io.StringIO(as_csv(shown))))
    assert [line["System"] for line in lines] == ["dupmae", "retromae", "none", "bm25"]
    cell = shown.lines[0].cells[NDCG]
    assert cell.value is not None
    assert (float(lines[0][NDCG]), float(lines[0][f"{NDCG} spread"])) == (cell.value.mean, cell.value.spread)
    assert lines[0]["Runs"].split(";") == ["dupmae-0", "dupmae-1", "dupmae-2"] and lines[0]["Seeds"] == "0;1;2"
    assert lines[3]["Bytes per passage"] == "" and lines[0][f"{NDCG} better than"].count(";") == 1


class Links(HTMLParser):
    """Attributes by which a page would ask for something, and its visible texts."""

    def __init__(self) -> None:
        super().__init__()
        self.asks: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.asks += [f"{tag} {name}" for name, _ in attrs if name in ("src", "srcset", "data", "action")]
        self.asks += [tag] * (tag in ("link", "iframe", "img", "object", "base"))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_file_asks_for_nothing_and_escapes_what_it_is_told() -> None:
    evil = [compared.tagged(run, recipe='<img src="x">') for run in compared.tracked_rows()]
    found = entries(rows([*compared.tracked_rows(), *evil[:1]]))
    unmarked = board_of(found, view("none"), lambda shown: Marks())
    text = document(unmarked, source="<s>", address='http://h/?a="b', when=datetime(2026, 1, 2, tzinfo=UTC))
    page = Links()
    page.feed(text)
    assert page.asks == [] and "@import" not in text and "url(" not in text
    assert '<img src="x">' in page.texts and any("2026-01-02 00:00" in told for told in page.texts)
