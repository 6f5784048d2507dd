"""Marks as scipy finds them, gains, ranks, order, collections of one name, and what leaves the page."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from midmask.leaderboard import board as boards
from midmask.leaderboard.entries import MOST, Marks, entries, marks_of
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, place_names, rows
from midmask.tracking.reading import TrackedRow
from tests.support.dashboards import compared
from tests.support.dashboards.compared import DEV, SHOWN, board, per_query_of, view
from tests.support.dashboards.page import captions, page


def test_superscripts_are_those_of_paired_t_tests_with_bonferroni() -> None:
    shown = board(view())
    found = dict(zip("abcd", ("dupmae", "retromae", "none", "bm25"), strict=True))
    assert {letter: entry.recipe for letter, entry in shown.systems.items()} == found
    for measure in compared.MEASURES:
        seeds = {name: compared.SEEDS if name != "bm25" else (0,) for name in compared.LEVELS}
        values = {name: [[*compared.values(name, seed, measure).values()] for seed in seeds[name]] for name in seeds}
        means = {name: np.mean(own, axis=0) for name, own in values.items()}
        expected: dict[str, set[str]] = {name: set() for name in means}
        for one, other in combinations(means, 2):
            if 6 * stats.ttest_rel(means[one], means[other]).pvalue < 0.05:
                better, worse = (one, other) if means[one].mean() > means[other].mean() else (other, one)
                expected[better].add(worse)
        (column,) = [column for column in shown.columns if column.measure == measure]
        marks = {entry.recipe: shown.mark(entry, column) for entry in shown.systems.values()}
        got = {name: {other.partition(" ")[0] for other in mark.better_than} for name, mark in marks.items()}
        assert got == expected and expected["dupmae"] == {"none", "bm25"}, "the first two are a tie"
        best = [entry.recipe for entry in shown.systems.values() if shown.is_best(entry, column)]
        assert best == [max(means, key=lambda name: means[name].mean())]


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
    assert len(board(view(), found).systems) == 4 and len(board(view(trials=True), found).systems) == 8
    dense = board(view(find="DENSE"), found)
    assert {entry.recipe for entry in dense.systems.values()} == {"dupmae", "retromae", "none"}
    assert not board(view(places={DEV._replace(split="test"): "squad test"}), found).systems
    assert board(view(), entries(rows(runs[:1]))).fields == []
    other = compared.tagged(runs[0], pretrain_on="other")
    assert board(view(), entries(rows([runs[0], other]))).fields == ["pretrain_on"], "they differ in it"


def test_the_table_tells_ranks_means_marks_and_costs_and_has_no_empty_column() -> None:
    shown = boards.table_of(board(view()))
    assert shown["System"].to_dict() == {"a": "dupmae", "b": "retromae", "c": "none", "d": "bm25"}
    assert shown["Rank"].tolist() == [1, 2, 3, 4] and shown["Ranks allowed"].tolist() == ["1-2", "1-2", "", ""]
    mean, plus_minus, spread, letters = shown["nDCG@10"]["a"].split()
    assert (len(mean), plus_minus, spread[:4], letters) == (6, "±", "0.00", "cd")
    assert len(shown["nDCG@10"]["d"].split()) == 1, "one seed, and better than nobody"
    assert shown["Training"]["a"] == compared.HOURS["dupmae"] and np.isnan(shown["Per passage"]["d"])
    assert shown["Seeds"].tolist() == ["0 1 2"] * 3 + ["0"]
    assert not {"Settings", "Index recall@10"} & {*shown.columns}


def test_without_tests_ranks_are_those_of_the_means() -> None:
    shown = board(view())
    assert boards.rank_text(shown, shown.systems["a"]) == "1 (1-2)"
    many = board(view(), [replace(shown.systems["a"], note=str(at)) for at in range(MOST + 1)])
    assert set(many.ranks.values()) == {1}, "equal means share a rank"
    assert not any(map(many.allowed, many.systems.values()))


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
    return boards.View(places, ("nDCG@10",))


def test_two_collections_of_one_name_are_two_columns_each_with_its_own_best() -> None:
    board = boards.board_of(entries(rows(RUNS)), shown(RUNS), lambda systems: Marks())
    heads = [column.head for column in board.columns]
    assert set(heads) == {"pydocs (3f2a, 1,204 queries) dev nDCG@10", "pydocs (b07d, 1,204 queries) dev nDCG@10"}
    best = {
        (column.head[8:12], entry.recipe): entry.value(column.place, "nDCG@10").mean  # type: ignore[union-attr]
        for column in board.columns
        for entry in board.systems.values()
        if board.is_best(entry, column)
    }
    assert best == {("3f2a", "dupmae"): 0.5, ("b07d", "none"): 0.3}, "0.3 is the best of its own collection"


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
