"""Marks as scipy finds them, gains, ranks, order, collections of one name, and what leaves the page."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from midmask.leaderboard import board as boards
from midmask.leaderboard.entries import MOST, Marks, entries, marks_of
from midmask.leaderboard.export import as_csv
from midmask.leaderboard.export import table as html_table
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, place_names, rows
from midmask.tracking.reading import TrackedRow
from tests.support.dashboards import compared
from tests.support.dashboards.compared import DEV, NDCG, SHOWN, board, per_query_of, view
from tests.support.dashboards.page import captions, page


def test_superscripts_are_those_of_paired_t_tests_with_bonferroni() -> None:
    shown = board(view())
    assert [line.entry.recipe for line in shown.lines] == ["dupmae", "retromae", "none", "bm25"]
    assert [line.letter for line in shown.lines] == ["a", "b", "c", "d"]
    for measure in compared.MEASURES:
        seeds = {name: compared.SEEDS if name != "bm25" else (0,) for name in compared.LEVELS}
        values = {name: [[*compared.values(name, seed, measure).values()] for seed in seeds[name]] for name in seeds}
        means = {name: np.mean(own, axis=0) for name, own in values.items()}
        expected: dict[str, set[str]] = {name: set() for name in means}
        for one, other in combinations(means, 2):
            if 6 * stats.ttest_rel(means[one], means[other]).pvalue < 0.05:
                better, worse = (one, other) if means[one].mean() > means[other].mean() else (other, one)
                expected[better].add(worse)
        cells = {line.entry.recipe: line.cells[f"squad dev {measure}"] for line in shown.lines}
        got = {name: {other.partition(" ")[0] for other in cell.better_than} for name, cell in cells.items()}
        assert got == expected and expected["dupmae"] == {"none", "bm25"}, "the first two are a tie"
        assert [name for name, cell in cells.items() if cell.best] == [max(means, key=lambda name: means[name].mean())]


def test_what_cannot_be_paired_is_named_and_never_compared() -> None:
    found = entries(rows(compared.tracked_rows()))

    def half(row: LeaderboardRow) -> pa.Table | None:
        own = {"none": 30, "bm25": 0}.get(row.recipe, 60)
        keep = set(compared.QUERIES[:own])
        table = per_query_of(row)
        return table.filter(pa.array([query in keep for query in table["query_id"].to_pylist()])) if own else None

    marks = marks_of(found, SHOWN, ["nDCG@10", "AP"], half)
    assert {name.partition(" ")[0] for name, _, _ in marks.cells} == {"dupmae", "retromae"}
    assert "none ·" in marks.text and "bm25 ·" in marks.text
    one_seed = marks_of(found, SHOWN, ["nDCG@10"], lambda row: per_query_of(row) if row.seed == "0" else None)
    assert "Nothing was compared" in one_seed.text, "a mean over three seeds is not tested on one"
    many = [replace(found[0], note=str(number)) for number in range(MOST + 1)]
    assert f"down to {MOST}" in marks_of(many, SHOWN, ["nDCG@10"], per_query_of).text


def test_filters_trials_and_columns() -> None:
    runs = compared.tracked_rows()
    runs += [compared.tagged(run, step="trial") for run in runs]
    found = entries(rows(runs))
    assert len(board(view(), found).lines) == 4 and len(board(view(trials=True), found).lines) == 8
    dense = board(view(find="DENSE"), found)
    assert {line.entry.recipe for line in dense.lines} == {"dupmae", "retromae", "none"}
    assert not board(view(places={DEV._replace(split="test"): "squad test"}), found).lines
    newest = replace(runs[3], started=runs[3].started + timedelta(days=1))
    (first, *_) = board(view(boards.NEWEST), entries(rows([newest, *runs]))).lines
    assert first.entry.recipe == newest.tags["midmask.recipe"]
    assert board(view(), entries(rows(runs[:1]))).fields == []
    other = compared.tagged(runs[0], pretrain_on="other")
    assert board(view(), entries(rows([runs[0], other]))).fields == ["pretrain_on"], "they differ in it"


def test_the_table_escapes_what_it_is_told() -> None:
    evil = [compared.tagged(run, recipe='<img src="x">') for run in compared.tracked_rows()]
    found = entries(rows([*compared.tracked_rows(), *evil[:1]]))
    shown = boards.board_of(found, view(), lambda systems: Marks())
    text = html_table(shown, shown.lines, link=lambda row: 'http://h/?a="b')
    assert "<img" not in text and "&lt;img src=&#34;x&#34;&gt;" in text and 'href="http://h/?a=&#34;b"' in text


def by_recipe(found: dict[str, object]) -> dict[str, object]:
    return {name.partition(" ")[0]: value for name, value in found.items()}


@pytest.mark.parametrize(("order", "reverse"), [(NDCG, False), (boards.HOURS, True)])
def test_ranks_are_those_of_the_measure_in_any_order(order: str, reverse: bool) -> None:
    shown = board(view(order=order, reverse=reverse))
    assert by_recipe(shown.ranks) == {"dupmae": 1, "retromae": 2, "none": 3, "bm25": 4}
    ranges = by_recipe({line.entry.name: boards.range_of(shown, line) for line in shown.lines})
    assert ranges == {"dupmae": "1-2", "retromae": "1-2", "none": "", "bm25": ""}


def test_exports_tell_ranks_and_without_tests_they_are_those_of_the_means() -> None:
    shown = board(view())
    assert boards.rank_text(shown, shown.lines[0]) == "1 (1-2)"
    assert as_csv(shown).splitlines()[1].startswith('1,1,2,"dupmae"')
    many = board(view(), [replace(shown.lines[0].entry, note=str(at)) for at in range(MOST + 1)])
    assert set(many.ranks.values()) == {1}, "equal means share a rank"
    assert not any(boards.range_of(many, line) for line in many.lines)


def test_it_opens_where_the_newest_results_are() -> None:
    runs = compared.tracked_rows()
    day, on_test = timedelta(days=1), compared.tracked_rows("test")
    later = [replace(run, run_id=f"{run.run_id}t", started=run.started + day) for run in on_test]
    assert boards.newest_place(entries(rows(runs))).split == "dev"
    assert boards.newest_place(entries(rows([*later[:1], *runs]))).split == "test"
    assert boards.newest_place(entries(rows([*later, *runs])), "squad").split == "test"
    trials = [replace(entry, trial=True) for entry in entries(rows(later))]
    both = [*trials, *entries(rows(runs))]
    assert {boards.newest_place(both, *of).split for of in ((), ("squad",))} == {"dev"}, "a newer trial of a sweep"
    assert boards.newest_place(trials).split == "test", "where there is nothing else"


ONE, FOUR = "3f2a90c1d2e3", "b07d11223344"
"""Fingerprints of pydocs of one package, and of four."""


VALUES = {("dupmae", ONE): 0.5, ("none", ONE): 0.4, ("dupmae", FOUR): 0.2, ("none", FOUR): 0.3}
RUNS = [compared.evaluated(*key, value, corpus="pydocs", queries=1204) for key, value in VALUES.items()]


def shown(runs: list[TrackedRow]) -> boards.View:
    places = place_names(row.place for row in rows(runs))
    return boards.View(places, ("nDCG@10",), "newest", False, False)


def test_two_collections_of_one_name_are_two_columns_each_with_its_own_best() -> None:
    board = boards.board_of(entries(rows(RUNS)), shown(RUNS), lambda systems: Marks())
    measured = {column.key: column for column in board.columns if column.place}
    assert set(measured) == {"pydocs (3f2a, 1,204 queries) dev nDCG@10", "pydocs (b07d, 1,204 queries) dev nDCG@10"}
    cells = [(key[8:12], line.entry.recipe, line.cells[key]) for key in measured for line in board.lines]
    best = {(collection, recipe): cell.value.mean for collection, recipe, cell in cells if cell.best}
    assert best == {("3f2a", "dupmae"): 0.5, ("b07d", "none"): 0.3}, "0.3 is the best of its own collection"
    names = ("pydocs (3f2a, 1,204 queries) dev", "pydocs (b07d, 1,204 queries) dev")
    text = html_table(board, board.lines, link=lambda row: "")
    assert all(f">{name}</th>" in text for name in names)


parts = (["pydocs", "squad"], ["dev", "test"], ["", "3f2a90", "3f2a91", "77aa00"], [0, 100, 1204])
places = some.builds(CollectionSplit, *map(some.sampled_from, parts))


@given(some.lists(places, max_size=8))
def test_names_tell_places_apart_and_are_short_where_nothing_is_to_be_told_apart(found: list[CollectionSplit]) -> None:
    names = place_names(found)
    assert list(names) == list(dict.fromkeys(found)) and len(set(names.values())) == len(names)
    for place, name in names.items():
        rivals = [one for one in names if one.corpus == place.corpus and one != place]
        alone = all(one.collection == place.collection and one.split != place.split for one in rivals)
        assert (name == f"{place.corpus} {place.split}") == alone


def test_the_caption_of_a_page_shows_names_as_text() -> None:
    """Streamlit reads captions as Markdown: an image in a name would be fetched from the host that it names."""
    evil = "![x](http://host/pixel) <b>|"
    changed = [replace(one, tags={**one.tags, "midmask.protocol": evil}) for one in RUNS]
    assert "\\[x\\](http://host/pixel) &lt;b&gt;\\|" in captions(page("board", changed))
