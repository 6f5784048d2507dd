"""What the leaderboard's page lets one choose: widgets whose values lie in the address, and the view they make."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import streamlit as st

from look import ALL, choice, choices
from midmask.corpora.splits import is_slice
from midmask.leaderboard.board import HEADS, NEWEST, View, columns_of, newest_place, places_of
from midmask.leaderboard.entries import LABELS, Entry
from midmask.leaderboard.marks import Shown
from midmask.leaderboard.rows import CollectionSplit, measure_names, place_names

MARKS: Mapping[str, Shown] = {"better than": "better_than", "tie groups": "ties", "none": "none"}
"""Name of a kind of superscripts -> its name in `evaluation.rendering`."""

MOST_PLACES = 6
"""Corpora and splits side by side; of more, those of most systems."""

NARROW = 3
"""Measures that are shown if none is chosen."""

FILTERS = ("pretrain_on", "representation", "protocol", "backbone")


def choose(found: Sequence[Entry]) -> View:
    """Draws the choices over these entries, in the sidebar, which folds on a phone."""
    with st.sidebar:
        return _chosen(found)


def _chosen(found: Sequence[Entry]) -> View:
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
    view = View(places, tuple(measures), {}, NEWEST, False, "none", "none", False, find)
    orders = [*(column.key for column in columns_of(view)), *(HEADS[name] for name in LABELS), NEWEST]
    order = choice("Order by", "order", orders)
    reverse = st.toggle("Worst first", key="reverse", bind="query-params")
    with st.expander("More choices", key="more"):
        filters = _filters(found)
        marks, baseline, trials = _marking(found)
    return View(view.places, view.measures, filters, order, reverse, marks, baseline, trials, find)


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


def _filters(found: Sequence[Entry]) -> dict[str, str]:
    chosen = {}
    for name in FILTERS:
        values = sorted({getattr(entry, name) for entry in found} - {""})
        chosen[name] = choice(HEADS[name], name, [ALL, *values])
    return {name: value for name, value in chosen.items() if value != ALL}


def _marking(found: Sequence[Entry]) -> tuple[Shown, str, bool]:
    recipes = sorted({entry.recipe for entry in found}, key=lambda name: (name != "none", name.lower() != "bm25", name))
    marks = MARKS[choice("Superscripts", "marks", list(MARKS))]
    baseline = choice("Gain per hour over", "baseline", recipes)
    trials = st.toggle("Show the trials of sweeps", key="trials", bind="query-params")
    return marks, baseline, trials


def address() -> str:
    """Where this view is found again. Unlike in the browser's own line, defaults stand in it too: they depend on what
    the store holds.
    """
    keys = ("corpus", "split", "find", "measures", "order", "reverse", *FILTERS, "marks", "baseline", "trials")
    values = {key: st.session_state[key] for key in keys if st.session_state.get(key) not in (None, "")}
    plain = {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
    return f"{(st.context.url or '').partition('?')[0]}?{urlencode(plain, doseq=True)}"


def order_by(key: str) -> None:
    """A head was clicked: order by its column, or turn the order round if it is that already."""
    again = st.session_state["order"] == key
    st.session_state["reverse"] = again and not st.session_state["reverse"]
    st.session_state["order"] = key
