"""What every page is given: where the runs are tracked, the runs, and what is made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from midmask.errors import UserError
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.marks import PerQueryOf
from midmask.leaderboard.per_query import PerQueryFiles
from midmask.leaderboard.rows import LeaderboardRow, run_link
from midmask.leaderboard.snapshot_file import cache_folder, snapshot_place
from midmask.leaderboard.watch import StoreView, StoreWatch
from midmask.tracking import TrackedRow

ENOUGH = 1.0
"""Seconds that a page waits for news before it shows what was known."""


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


@st.cache_resource(max_entries=4, show_spinner=False)
def watch_of(uri: str) -> StoreWatch:
    """One watch for all sessions."""
    return StoreWatch(uri, snapshot_place(uri))


@st.cache_resource(max_entries=4, show_spinner=False)
def per_query_of(uri: str) -> PerQueryFiles:
    return PerQueryFiles(uri, cache_folder() / "artifacts")


def known_of(watch: StoreWatch) -> StoreView:
    """What is known of the store: at once if there is something, else after the first look, which a line tells of.

    Raises:
        UserError: if nothing is known and the store does not answer.
    """
    watch.look()
    watch.wait(ENOUGH)
    line = st.empty()
    while watch.known is None and not watch.wait(0.2):
        line.caption(f":material/hourglass_top: Reading the runs for the first time: {watch.count:,} so far")
    line.empty()
    if watch.error is not None and (watch.known is None or not isinstance(watch.error, UserError)):
        raise watch.error
    assert watch.known is not None, "a look has ended without an error"
    return watch.known


def context_of(uri: str, ui: str | None, known: StoreView, verdict: str | None = None) -> PageContext:
    return PageContext(uri, ui, known.runs, known.rows, known.entries, per_query_of(uri), verdict)


def context_without_runs(verdict: str) -> PageContext:
    """What the pages on a verdict need, where the runs cannot be read."""
    return PageContext("", None, (), (), (), lambda row: None, verdict)
