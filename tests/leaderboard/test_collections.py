"""Values are compared on the same queries over the same collection alone, whatever name two collections share."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from midmask.leaderboard.board import View, board_of
from midmask.leaderboard.entries import entries
from midmask.leaderboard.export import as_markdown
from midmask.leaderboard.html import table as html_table
from midmask.leaderboard.marks import marks_of
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, place_names, rows
from midmask.tracking import TrackedRow, collection_key, metric_key, queries_key
from tests.support.dashboards import compared
from tests.support.dashboards.page import captions, page

ONE, FOUR = "3f2a90c1d2e3", "b07d11223344"
"""Fingerprints of pydocs of one package, and of four."""


def run(system: str, collection: str, value: float, *, queries: int = 1204, split: str = "dev") -> TrackedRow:
    """One evaluation on pydocs; the settings are the same, as where other packages are installed."""
    made = next(one for one in compared.tracked_rows() if one.tags["midmask.recipe"] == system)
    own = {collection_key("pydocs"): collection, queries_key("pydocs", split): str(queries)}
    return replace(
        made,
        run_id=f"{system}-{collection[:4]}-{queries}-{split}",
        metrics={metric_key("pydocs", split, "nDCG@10"): value},
        tags={**made.tags, "midmask.corpus": "pydocs", **own},
    )


RUNS = [run("dupmae", ONE, 0.5), run("none", ONE, 0.4), run("dupmae", FOUR, 0.2), run("none", FOUR, 0.3)]


def shown(runs: list[TrackedRow]) -> View:
    places = place_names(row.place for row in rows(runs))
    return View(places, ("nDCG@10",), {}, "newest", False, "none", "none", False)


def test_two_collections_of_one_name_are_two_columns_each_with_its_own_best() -> None:
    board = board_of(entries(rows(RUNS)), shown(RUNS), lambda systems: marks_of(systems, {}, (), no_values, "none"))
    measured = {column.key: column for column in board.columns if column.place}
    assert set(measured) == {"pydocs (3f2a, 1,204 queries) dev nDCG@10", "pydocs (b07d, 1,204 queries) dev nDCG@10"}
    best = {
        (key[8:12], line.entry.recipe): line.cells[key].value.mean  # type: ignore[union-attr]
        for key in measured
        for line in board.lines
        if line.cells[key].best
    }
    assert best == {("3f2a", "dupmae"): 0.5, ("b07d", "none"): 0.3}, "0.3 is the best of its own collection"
    names = ("pydocs (3f2a, 1,204 queries) dev", "pydocs (b07d, 1,204 queries) dev")
    assert all(name in as_markdown(board) for name in names)
    assert all(f">{name}</th>" in html_table(board, board.lines) for name in names)


def no_values(row: LeaderboardRow) -> pa.Table | None:
    return None


def test_fewer_queries_are_another_column_and_a_name_alone_stays_short() -> None:
    fewer = [run("dupmae", ONE, 0.5), run("none", ONE, 0.6, queries=100)]
    assert list(shown(fewer).places.values()) == ["pydocs (3f2a, 1,204 queries) dev", "pydocs (3f2a, 100 queries) dev"]
    both = [run("dupmae", ONE, 0.5), run("dupmae", ONE, 0.4, split="test", queries=1190)]
    assert list(shown(both).places.values()) == ["pydocs dev", "pydocs test"]


places = some.builds(
    CollectionSplit,
    some.sampled_from(["pydocs", "squad"]),
    some.sampled_from(["dev", "test"]),
    some.sampled_from(["", "3f2a90", "3f2a91", "77aa00"]),
    some.sampled_from([0, 100, 1204]),
)


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
    assert "\\[x\\](http://host/pixel) &lt;b&gt;\\|" in captions(page("board", changed, marks="none"))
