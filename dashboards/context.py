"""What every page is given: where the runs are tracked, the runs, and the rows made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from midmask.leaderboard.rows import Row, rows, run_link
from midmask.tracking import TrackedRow, read_runs


@dataclass(frozen=True)
class Context:
    """`uri` is the store, `ui` where MLflow's own pages are served, None for their usual place.

    Runs and rows are shared by all sessions: pages must not change them.
    """

    uri: str
    ui: str | None
    runs: Sequence[TrackedRow]
    rows: Sequence[Row]

    def link(self, run: Row | TrackedRow) -> str:
        """The address of a run in MLflow's own pages."""
        return run_link(self.uri, run, self.ui)


@st.cache_resource(ttl=10, show_spinner="Reading the runs", max_entries=4)
def context_of(uri: str, ui: str | None) -> Context:
    """Reads the store, at most every ten seconds; all sessions share what was read.

    Raises:
        UserError: if the store does not answer.
    """
    runs = read_runs(uri)
    return Context(uri, ui, runs, rows(runs))
