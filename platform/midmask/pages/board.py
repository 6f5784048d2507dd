"""The leaderboard: evaluated systems × corpora × measures, with what they cost; below, what has not finished.

The widgets that choose the view keep their values in the address. A chart sets quality against cost.
"""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from midmask.corpora.splits import is_slice
from midmask.evaluation.rendering import markdown_text
from midmask.evaluation.statistics.ranks import on_front
from midmask.leaderboard.board import (
    BYTES,
    COST_HEADS,
    HEADS,
    HOURS,
    NEWEST,
    SEARCH,
    Board,
    BoardColumn,
    BoardLine,
    View,
    board_of,
    columns_of,
    legend_line,
    meanings,
    newest_place,
    number,
    places_of,
    shared,
)
from midmask.leaderboard.entries import LABELS, Entry, Marks, marks_of
from midmask.leaderboard.export import as_csv
from midmask.leaderboard.export import table as board_table
from midmask.leaderboard.rows import CollectionSplit, measure_names, place_names, unfinished
from midmask.pages import card
from midmask.pages.context import PageContext, nothing_evaluated
from midmask.pages.look import ALL, badge, choice, choices, draw, link, show_table
from midmask.sweep.figures import FrontPoint, front_figure
from midmask.tracking.names import PROGRESS

PER_PAGE = 100
DOWNLOAD = ":material/download:"
MOST_UNFINISHED = 50
REASON = "midmask.reason"
"""The tag that says why a run failed."""


def show(context: PageContext) -> None:
    if context.entries:
        systems(context)
    else:
        nothing_evaluated()
    troubles(context)


def systems(context: PageContext) -> None:
    with st.sidebar:  # which folds on a phone
        view = choose(context.entries)
    if not view.places:
        st.info("No system was evaluated on this split of this corpus. Choose another.")
        return
    board = board_of(context.entries, view, lambda shown: compared(_cache_text(shown, view), shown, view, context))
    if not board.lines:
        st.info("No system matches these choices. Search for other words, or show the trials of sweeps.")
        return
    start = PER_PAGE * (page_number(len(board.lines)) - 1)
    lines = board.lines[start : start + PER_PAGE]
    st.html(board_table(board, lines, context.link))
    of = f"Systems {start + 1:,} to {start + len(lines):,} of {len(board.lines):,} · {legend_line(board)}."
    st.caption(markdown_text(" ".join([of, *shared(board)])))
    with st.expander("How to read this table"):
        st.markdown("\n".join(f"- {markdown_text(one)}" for one in meanings(board)))
    st.download_button("CSV", partial(as_csv, board), "leaderboard.csv", "text/csv", on_click="ignore", icon=DOWNLOAD)
    show_costs(board)
    card.show(board, context)


def page_number(count: int) -> int:
    pages = -(-count // PER_PAGE)
    if pages == 1:
        return 1
    return int(st.number_input(f"Page, of {pages}", 1, pages, key="page", bind="query-params", width=140))


@st.cache_resource(max_entries=64, show_spinner="Comparing the systems")
def compared(cache_text: str, _shown: Sequence[Entry], _view: View, _context: PageContext) -> Marks:
    """Tests of all pairs, worked out once for the same runs: `cache_text` tells them, and all else that matters."""
    return marks_of(_shown, _view.places, _view.measures, _context.per_query)


def _cache_text(shown: Sequence[Entry], view: View) -> str:
    """As one text: Streamlit would take long to hash thousands of ids."""
    runs = [(entry.name, sorted(entry.runs(view.places))) for entry in shown]
    return repr((runs, view.places, view.measures))


def troubles(context: PageContext) -> None:
    """Draws the runs that are running, failed or killed, which the board does not rank."""
    left = unfinished(context.runs)
    if not left:
        return
    st.subheader("Not finished")
    lines = [
        {
            "Run": markdown_text(run.name),
            "Step": markdown_text(run.tags.get("midmask.step", "")),
            "Status": badge(run.status),
            "Started (UTC)": f"{run.started:%Y-%m-%d %H:%M}",
            "MLflow": link(context.link(run), run.run_id[:8]),
            "Last known": markdown_text(run.tags.get(PROGRESS if run.status == "running" else REASON, "")),
        }
        for run in left[:MOST_UNFINISHED]
    ]
    show_table(lines, "unfinished")
    st.caption(
        f"{len(left)} runs, the newest {len(lines)} shown. A killed one stands as running until the same "
        "command, run again, goes on where it stopped."
    )


MOST_PLACES = 6
"""Corpora and splits side by side; of more, those of most systems."""

NARROW = 3
"""Measures that are shown if none is chosen."""


def choose(found: Sequence[Entry]) -> View:
    """Draws the choices over these entries."""
    every = places_of(found)
    newest = newest_place(found)
    corpus = choice("Corpus", "corpus", [*_first(newest.corpus, {place.corpus for place in every}), ALL])
    inside = newest_place(found, "" if corpus == ALL else corpus)
    split = choice("Split", "split", [*_first(inside.split, {place.split for place in every}), ALL])
    names = place_names(every)
    places = {place: names[place] for place in _places(every, corpus, split)}
    known = measure_names(row for entry in found for place in places for row in entry.rows.get(place, ()))
    find = st.text_input("Find systems", key="find", placeholder="retromae splade", bind="query-params")
    measures = choices("Measures", "measures", known, known[:NARROW])
    orders = [*(column.key for column in columns_of(places, measures)), *(HEADS[name] for name in LABELS), NEWEST]
    order = choice("Order by", "order", orders)
    reverse = st.toggle("Worst first", key="reverse", bind="query-params")
    trials = st.toggle("Show the trials of sweeps", key="trials", bind="query-params")
    return View(places, tuple(measures), order, reverse, trials, find)


def _first(one: str, names: set[str]) -> list[str]:
    """All names, ascending, but one that stands first: a choice without a value in the address falls on it."""
    return [one, *sorted(names - {one})]


def _places(every: Sequence[CollectionSplit], corpus: str, split: str) -> list[CollectionSplit]:
    """The places that are asked for; slices of splits only by their names."""
    found = [
        place
        for place in every
        if corpus in (ALL, place.corpus) and (place.split == split or (split == ALL and not is_slice(place.split)))
    ]
    collections = list(dict.fromkeys((place.corpus, place.collection) for place in found))
    return sorted(found[:MOST_PLACES], key=lambda place: (collections.index((place.corpus, place.collection)), *place))


FEWEST_POINTS = 2
"""Points of a chart that says more than the table."""

MOST_NAMED = 10
"""Points whose names stand beside them; of more, or of several of one name, their ranks do."""

UNITS = {HOURS: "hours", BYTES: "bytes", SEARCH: "ms a query"}
"""Cost -> what its axis counts."""


def show_costs(board: Board) -> None:
    """The chart, with a choice of the cost; nothing where no cost is known of two systems."""
    assert board.ranked is not None, "a board with lines has a measure"
    found = {
        column.head: (column, systems)
        for column in board.columns
        if column.key in COST_HEADS and len(systems := costs_of(board, column, board.ranked)) >= FEWEST_POINTS
    }
    if not found:
        return
    st.subheader("Quality against cost")
    chosen = st.segmented_control("Cost", list(found), default=next(iter(found)), key="cost", bind="query-params")
    column, systems = found[chosen or next(iter(found))]
    names = [_point_name(board, line) for _, _, line in systems]
    are_named = len(set(names)) == len(names) <= MOST_NAMED
    front = on_front([(quality, cost) for cost, quality, _ in systems], ("max", "min"))
    points = []
    for (cost, quality, line), name, is_best in zip(systems, names, front, strict=True):
        rank = board.ranks[line.entry.name]
        text = f"{rank} {name} · {number(column, line.cells[column.key])}"
        points.append(FrontPoint(cost, quality, name if are_named else f"{rank}", text, is_best))
    is_log = all(point.cost > 0 for point in points)  # powers of ten, where none is nothing
    draw(
        front_figure(points, f"{column.head} ({UNITS[column.key]})", board.ranked.key, log=is_log), "quality_cost", 380
    )
    best = " · ".join(point.label for point in points if point.on_front)
    ranked = "" if are_named else " Numbers are ranks in the table."
    st.caption(f"Nothing is both better and cheaper than what is on the line: {markdown_text(best)}.{ranked}")


def costs_of(board: Board, cost: BoardColumn, quality: BoardColumn) -> list[tuple[float, float, BoardLine]]:
    """Cost, quality and line of the systems of which both are known, the cheapest first."""
    cells = [(line.cells[cost.key].number, line.cells[quality.key].value, line) for line in board.lines]
    known = [(paid, value.mean, line) for paid, value, line in cells if paid is not None and value is not None]
    return sorted(known, key=lambda system: (system[0], -system[1]))


def _point_name(board: Board, line: BoardLine) -> str:
    """Recipe, and representation where systems differ in it: what fits beside a point."""
    entry = line.entry
    parts = (entry.recipe, entry.representation if "representation" in board.fields else "")
    return " ".join(part for part in dict.fromkeys(parts) if part not in ("", "dense"))
