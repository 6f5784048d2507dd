"""What every page is given: the store, its runs and what is made of them; and the runs to choose from, by name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from midmask.leaderboard.artifacts import artifact_place
from midmask.leaderboard.entries import Entry, PerQueryOf
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, per_query_files, place_names, run_link
from midmask.leaderboard.store_view import StoreView, artifact_cache, look
from midmask.pages.look import choice
from midmask.store.place import Place
from midmask.tracking.names import command_over
from midmask.tracking.reading import TrackedRow


@dataclass(frozen=True)
class PageContext:
    """`uri` is the store, `ui` where MLflow's own pages are served, None for their usual place. `verdict` is the folder
    of a verdict, None if none was named.

    Runs (newest first), rows, entries and per-query values are shared by all sessions: pages must not change them.
    """

    uri: str
    ui: str | None
    runs: Sequence[TrackedRow]
    rows: Sequence[LeaderboardRow]
    entries: Sequence[Entry]
    per_query: PerQueryOf
    verdict: str | None = None

    def link(self, run: LeaderboardRow | TrackedRow) -> str:
        """The address of a run in MLflow's own pages."""
        return run_link(self.uri, run, self.ui)


@st.cache_resource(ttl=30, max_entries=4, show_spinner="Reading the runs")
def view_of(uri: str) -> StoreView:
    """What a store holds, as it was half a minute ago or later, shared by all sessions.

    Raises:
        UserError: if it does not answer.
    """
    return look(uri)


@st.cache_resource(max_entries=4, show_spinner=False)
def per_query_of(uri: str) -> PerQueryOf:
    return per_query_files(uri, artifact_cache())


def about(uri: str) -> None:
    with st.expander("MLflow's own pages on these runs"):
        st.code(command_over(uri, "ui"), language="bash", wrap_lines=True)


def context_of(uri: str, ui: str | None, known: StoreView, verdict: str | None = None) -> PageContext:
    return PageContext(uri, ui, known.runs, known.rows, known.entries, per_query_of(uri), verdict)


def context_without_runs(verdict: str) -> PageContext:
    """The context for pages on a verdict when the runs cannot be read."""
    return PageContext("", None, (), (), (), lambda row: None, verdict)


def choose_place(rows: Sequence[LeaderboardRow]) -> CollectionSplit:
    """Draws the choice of collection and split: the collection of the newest results first, of its splits dev. Trials
    of sweeps do not count as results.
    """
    names = place_names(row.place for row in rows)
    counts = Counter(row.place for row in rows)
    newest: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row.corpus, row.place.collection
        newest[key] = max(newest.get(key, 0.0), 0.0 if row.trial else row.started.timestamp())

    def order(place: CollectionSplit) -> tuple[float, bool, int, str]:
        return -newest[place.corpus, place.collection], place.split != "dev", -counts[place], names[place]

    by_name = {names[place]: place for place in sorted(names, key=order)}
    return by_name[choice("Evaluated on", "place", list(by_name))]


def rows_at(rows: Sequence[LeaderboardRow], place: CollectionSplit) -> list[LeaderboardRow]:
    """The rows that were evaluated at a place, in their order, trials after the rest."""
    return sorted((row for row in rows if row.place == place), key=lambda row: row.trial)


def run_of(context: PageContext, row: LeaderboardRow) -> TrackedRow:
    return next(run for run in context.runs if run.run_id == row.run_id)


def places_of(context: PageContext, rows: Mapping[str, LeaderboardRow]) -> dict[str, Place | None]:
    """Name -> where the run's evaluation on the row's corpus and split lies."""
    return {name: artifact_place(run_of(context, row), row.corpus, row.split) for name, row in rows.items()}


def nothing_evaluated() -> None:
    st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
    st.code("make demo", language="bash", wrap_lines=True)
