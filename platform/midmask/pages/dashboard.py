"""The dashboard over what was tracked and over a verdict: a leaderboard, and the other pages. It reads what was
computed; Search alone writes, into the verdict's folder.

streamlit run dashboards/leaderboard.py -- --tracking-uri URI --verdict FOLDER
"""

import argparse
from functools import partial

import streamlit as st

from midmask.app.job import home
from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.leaderboard.store_view import StoreView, look
from midmask.pages import board, compare, search, sweep
from midmask.pages.look import STYLE
from midmask.tracking.names import command_over, resolve_tracking_uri


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--verdict", metavar="FOLDER", help="a verdict's folder, whose systems Search asks")
    return parser.parse_args()


def page() -> None:
    st.set_page_config(page_title="midmask", layout="wide")  # an icon would come from another host
    st.html(STYLE)
    flags = arguments()
    try:
        uri = resolve_tracking_uri(flags.tracking_uri, home())
        store = store_at(uri)
    except UserError as error:
        without_runs(str(error), flags.verdict)
        return
    pages = [  # all but the first live at their titles in small letters
        st.Page(partial(board.show, store), title="Leaderboard", default=True),
        st.Page(partial(compare.show, store), title="Compare", url_path="compare"),
        st.Page(partial(sweep.show, store), title="Sweep", url_path="sweep"),
        st.Page(partial(search.show, flags.verdict), title="Search", url_path="search"),
    ]
    chosen = st.navigation(pages, position="top")
    st.header(chosen.title)
    st.caption(f"{redacted(uri)} · {len(store.runs):,} runs · as of {store.looked:%Y-%m-%d %H:%M:%S} UTC")
    chosen.run()
    with st.expander("MLflow's own pages on these runs"):
        st.code(command_over(uri, "ui"), language="bash", wrap_lines=True)


@st.cache_resource(ttl=30, max_entries=4, show_spinner="Reading the runs")
def store_at(uri: str) -> StoreView:
    """What a store holds, as it was half a minute ago or later, shared by all sessions.

    Raises:
        UserError: if it does not answer.
    """
    return look(uri)


def without_runs(error: str, verdict: str | None) -> None:
    """Tells that the runs cannot be read; a verdict needs none of them."""
    if verdict is None:
        st.header("midmask")
    else:
        only = st.Page(partial(search.show, verdict), title="Search", url_path="search", default=True)
        st.navigation([only], position="hidden").run()
    st.error(error, icon=":material/cloud_off:")
    st.button("Try again")


if __name__ == "__main__":
    page()
