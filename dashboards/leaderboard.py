"""The dashboard over what was tracked: a leaderboard, and the pages of `views`. It only reads.

streamlit run dashboards/leaderboard.py -- --tracking-uri URI
"""

import argparse
import os
from functools import partial
from pathlib import Path

import streamlit as st

from context import context_of
from look import STYLE
from midmask.errors import UserError
from midmask.tracking import redacted, resolve_tracking_uri, ui_command
from views import board, sweep

VIEWS = {"Leaderboard": board, "Sweep": sweep}
"""Title of a page -> its module; the first is the default, the others live at the title in small letters."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--mlflow-ui", help="where MLflow's own pages are served, for the links")
    return parser.parse_args()


def home() -> Path:
    return Path(os.environ.get("MIDMASK_HOME") or Path(__file__).resolve().parents[1])


def page() -> None:
    st.set_page_config(page_title="midmask", layout="wide")  # an icon would come from another host
    st.html(STYLE)
    given = arguments()
    try:
        uri = resolve_tracking_uri(given.tracking_uri, home())
        context = context_of(uri, given.mlflow_ui)
    except UserError as error:
        st.header("midmask")
        st.error(str(error), icon=":material/cloud_off:")
        st.button("Try again")
        return
    pages = [
        st.Page(partial(view.show, context), title=title, url_path=title.lower(), default=view is board)
        for title, view in VIEWS.items()
    ]
    chosen = st.navigation(pages, position="top")
    st.header(chosen.title)
    st.caption(f"{redacted(uri)} · {len(context.runs)} runs")
    chosen.run()
    with st.expander("Open these runs in MLflow"):
        st.code(ui_command(uri), language="bash")


page()
