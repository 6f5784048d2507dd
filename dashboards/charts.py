"""How charts look: their colours, margins and controls, alike on all pages."""

from collections.abc import Mapping

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

PALETTE = ("#0d9488", "#ea580c", "#6366f1", "#db2777", "#ca8a04", "#0284c7", "#65a30d", "#8b5cf6")
"""Colours of runs, in the order in which they were chosen; each can be seen on a light and on a dark ground."""

QUERIES, PASSAGES = PALETTE[0], PALETTE[1]
WIN, LOSS, TIE = PALETTE[0], PALETTE[1], "#94a3b8"


STYLE = """<style>
@media (max-width: 640px) {[class*="st-key-charts"] [data-testid="stColumn"] {min-width: 100% !important;}}
</style>"""


def side_by_side(key: str = "") -> list[DeltaGenerator]:
    """Two columns for charts, which on a phone stand below each other.

    Args:
        key: tells several pairs on one page apart.
    """
    with st.container(key=f"charts{key}"):
        st.html(STYLE)
        return list(st.columns(2))


def colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}
LABELLED = {"l": 60, "r": 60, "t": 70, "b": 20}
"""Around axes whose labels stand outside of the plot, for which Plotly makes no room."""


def draw(figure: go.Figure, key: str, height: int = 320, margin: Mapping[str, int] = MARGIN) -> None:
    """Draws a figure across its column, without Plotly's bar of buttons."""
    figure.update_layout(height=height, margin=dict(margin), hoverlabel={"align": "left"})
    st.plotly_chart(figure, key=key, config={"displaylogo": False, "displayModeBar": False})


def swatch(number: int) -> str:
    """A spot of a run's colour, as HTML: a legend that wraps on a phone."""
    style = f"display:inline-block;width:.7rem;height:.7rem;border-radius:.35rem;background:{colour(number)}"
    return f'<span style="{style};margin-right:.45rem"></span>'
