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
from midmask.pages import board, compare, search, sweep
from midmask.pages.context import about, context_of, context_without_runs, view_of
from midmask.pages.look import STYLE
from midmask.tracking.names import resolve_tracking_uri

# Title of a page -> its module; the others than the first live at the title in small letters. (No docstring: of a
# page's main script, Streamlit would show it.)
VIEWS = {
    "Leaderboard": board,
    "Compare": compare,
    "Sweep": sweep,
    "Search": search,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--mlflow-ui", help="where MLflow's own pages are served, for the links")
    parser.add_argument("--verdict", metavar="FOLDER", help="a verdict's folder, whose systems Search asks")
    return parser.parse_args()


def page() -> None:
    st.set_page_config(page_title="midmask", layout="wide")  # an icon would come from another host
    st.html(STYLE)
    given = arguments()
    try:
        uri = resolve_tracking_uri(given.tracking_uri, home())
        known = view_of(uri)
    except UserError as error:
        without_runs(str(error), given.verdict)
        return
    context = context_of(uri, given.mlflow_ui, known, given.verdict)
    pages = [
        st.Page(partial(view.show, context), title=title, url_path=title.lower(), default=view is board)
        for title, view in VIEWS.items()
    ]
    chosen = st.navigation(pages, position="top")
    st.header(chosen.title)
    st.caption(f"{redacted(uri)} · {len(context.runs):,} runs · as of {known.looked:%Y-%m-%d %H:%M:%S} UTC")
    chosen.run()
    about(uri)


def without_runs(error: str, verdict: str | None) -> None:
    """Tells that the runs cannot be read; a verdict needs none of them."""
    if verdict is None:
        st.header("midmask")
    else:
        context = context_without_runs(verdict)
        only = st.Page(partial(search.show, context), title="Search", url_path="search", default=True)
        st.navigation([only], position="hidden").run()
    st.error(error, icon=":material/cloud_off:")
    st.button("Try again")


if __name__ == "__main__":
    page()
