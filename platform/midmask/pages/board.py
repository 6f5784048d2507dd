"""The leaderboard: evaluated systems × corpora × measures, with what they cost; below, what has not finished.

The widgets that choose the view keep their values in the address. A chart sets quality against cost.
"""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from midmask.corpora.splits import is_slice
from midmask.evaluation.rendering import markdown_text
from midmask.evaluation.statistics.ranks import on_front
from midmask.leaderboard.board import (
    BYTES,
    HOURS,
    RANK,
    RECALLS,
    SEARCH,
    SYSTEM,
    Board,
    View,
    board_of,
    cost_text,
    meanings,
    newest_place,
    place_text,
    places_of,
    shared,
    table_of,
)
from midmask.leaderboard.entries import Entry, Marks, marks_of
from midmask.leaderboard.rows import CollectionSplit, measure_names, place_names, unfinished
from midmask.leaderboard.store_view import StoreView
from midmask.pages import card
from midmask.pages.look import ALL, badge, choice, choices, draw, first, link, nothing_evaluated, show_table
from midmask.sweep.figures import FrontPoint, front_figure
from midmask.tracking.names import PROGRESS

MOST_UNFINISHED = 50
REASON = "midmask.reason"
"""The tag that says why a run failed."""


def show(store: StoreView) -> None:
    if store.entries:
        systems(store)
    else:
        nothing_evaluated()
    troubles(store)


def systems(store: StoreView) -> None:
    with st.sidebar:  # which folds on a phone
        view = choose(store.entries)
    if not view.places:
        st.info("No system was evaluated on this split of this corpus. Choose another.")
        return
    board = board_of(store.entries, view, lambda shown: compared(_cache_text(shown, view), shown, view, store))
    if not board.systems:
        st.info("No system matches these choices. Search for other words, or show the trials of sweeps.")
        return
    show_board(board)
    measured_on = "; ".join(dict.fromkeys(place_text(board, column.place) for column in board.columns))
    st.caption(markdown_text(f"{measured_on}. Bold: the best of its column. {shared(board)}"))
    with st.expander("How to read this table"):
        st.markdown("\n".join(f"- {markdown_text(meaning)}" for meaning in meanings(board)))
    show_costs(board)
    card.show(board, store)


COST_FORMATS = {HOURS: "%.2f h", BYTES: "bytes", SEARCH: "%.2f ms", **dict.fromkeys(RECALLS, "%.4f")}
"""Column -> how Streamlit writes its numbers, which sort as such."""

MOST_LINES = 30
"""Lines that are seen without scrolling inside the table."""


def show_board(board: Board) -> None:
    """Streamlit's own table, which sorts by a click on a head, searches, and downloads as CSV."""
    frame = table_of(board)
    bold = pd.DataFrame("", index=frame.index, columns=frame.columns)
    for letter, entry in board.systems.items():
        for column in board.columns:
            if board.is_best(entry, column):
                bold.loc[letter, column.head] = "font-weight: bold"
    numbers = {head: st.column_config.NumberColumn(format=form) for head, form in COST_FORMATS.items()}
    st.dataframe(
        frame.style.apply(lambda _: bold, axis=None),
        height="content" if len(frame) <= MOST_LINES else 35 * MOST_LINES,
        column_config={RANK: st.column_config.NumberColumn(format="%d"), SYSTEM: {"pinned": True}, **numbers},
        alt="systems",
    )


@st.cache_resource(max_entries=64, show_spinner="Comparing the systems")
def compared(cache_text: str, _shown: Sequence[Entry], _view: View, _store: StoreView) -> Marks:
    """Tests of all pairs, worked out once for the same runs: `cache_text` tells them, and all else that matters."""
    return marks_of(_shown, _view.places, _view.measures, _store.per_query)


def _cache_text(shown: Sequence[Entry], view: View) -> str:
    """As one text: Streamlit would take long to hash thousands of ids."""
    runs = [(entry.name, sorted(entry.runs(view.places))) for entry in shown]
    return repr((runs, view.places, view.measures))


def troubles(store: StoreView) -> None:
    """Draws the runs that are running, failed or killed, which the board does not rank."""
    left = unfinished(store.runs)
    if not left:
        return
    st.subheader("Not finished")
    lines = [
        {
            "Run": markdown_text(run.name),
            "Step": markdown_text(run.tags.get("midmask.step", "")),
            "Status": badge(run.status),
            "Started (UTC)": f"{run.started:%Y-%m-%d %H:%M}",
            "MLflow": link(store.link(run), run.run_id[:8]),
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


def choose(entries: Sequence[Entry]) -> View:
    """Draws the choices over these entries."""
    all_places = places_of(entries)
    newest = newest_place(entries)
    corpus = choice("Corpus", "corpus", [*first(newest.corpus, sorted({place.corpus for place in all_places})), ALL])
    inside = newest_place(entries, "" if corpus == ALL else corpus)
    split = choice("Split", "split", [*first(inside.split, sorted({place.split for place in all_places})), ALL])
    names = place_names(all_places)
    places = {place: names[place] for place in _places(all_places, corpus, split)}
    known = measure_names(row for entry in entries for place in places for row in entry.rows.get(place, ()))
    find = st.text_input("Find systems", key="find", placeholder="retromae splade", bind="query-params")
    measures = choices("Measures", "measures", known, known[:NARROW])
    trials = st.toggle("Show the trials of sweeps", key="trials", bind="query-params")
    return View(places, tuple(measures), trials, find)


def _places(places: Sequence[CollectionSplit], corpus: str, split: str) -> list[CollectionSplit]:
    """The places that are asked for; slices of splits only by their names."""
    shown = [
        place
        for place in places
        if corpus in (ALL, place.corpus) and (place.split == split or (split == ALL and not is_slice(place.split)))
    ]
    collections = list(dict.fromkeys((place.corpus, place.collection) for place in shown))
    return sorted(shown[:MOST_PLACES], key=lambda place: (collections.index((place.corpus, place.collection)), *place))


FEWEST_POINTS = 2
"""Points of a chart that says more than the table."""

UNITS = {HOURS: "hours", BYTES: "bytes", SEARCH: "ms a query"}
"""Cost -> what its axis counts."""


def show_costs(board: Board) -> None:
    """The chart, with ranks at its points and a choice of the cost; nothing where no cost is known of two systems."""
    by_cost = {name: systems for name in UNITS if len(systems := costs_of(board, name)) >= FEWEST_POINTS}
    if not by_cost:
        return
    st.subheader("Quality against cost")
    chosen = st.segmented_control("Cost", list(by_cost), default=next(iter(by_cost)), key="cost", bind="query-params")
    cost = chosen or next(iter(by_cost))
    systems = by_cost[cost]
    front = on_front([(quality, paid) for paid, quality, _ in systems], ("max", "min"))
    points, best = [], []
    for (paid, quality, entry), is_best in zip(systems, front, strict=True):
        rank = board.ranks[entry.name]
        name = f"{rank} {_point_name(board, entry)}"
        points.append(FrontPoint(paid, quality, f"{rank}", f"{name} · {cost_text(cost, paid)}", is_best))
        best += [name] if is_best else []
    is_log = all(point.cost > 0 for point in points)  # powers of ten, where none is nothing
    draw(front_figure(points, f"{cost} ({UNITS[cost]})", board.ranked.head, log=is_log), "quality_cost", 380)
    st.caption(f"Nothing is both better and cheaper than what is on the line: {markdown_text(' · '.join(best))}.")


def costs_of(board: Board, cost: str) -> list[tuple[float, float, Entry]]:
    """Cost, quality and system, of the systems of which both are known, the cheapest first."""
    candidates = [(board.cost(entry, cost), entry.value(*board.ranked[1:]), entry) for entry in board.systems.values()]
    known = [(paid, value.mean, entry) for paid, value, entry in candidates if paid is not None and value is not None]
    return sorted(known, key=lambda system: (system[0], -system[1]))


def _point_name(board: Board, entry: Entry) -> str:
    """Recipe, and representation where systems differ in it."""
    parts = (entry.recipe, entry.labels["representation"] if "representation" in board.fields else "")
    return " ".join(part for part in dict.fromkeys(parts) if part not in ("", "dense"))
