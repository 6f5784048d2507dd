"""What the pages look like: one style, tables, links, charts, and choices whose values lie in the page's address."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from jinja2 import Environment, PackageLoader

from midmask.core.words import MISSING
from midmask.evaluation.rendering import markdown_text
from midmask.evaluation.statistics.significance import ComparisonOutcome

ALL = "all"

TEMPLATES = Environment(loader=PackageLoader("midmask.pages"), autoescape=True)
"""Templates of HTML that the pages show; autoescape, since texts are other people's."""

STYLE = Path(__file__).with_name("look.css")

VERDICTS = {
    "better": ("**▲ better**", "green"),
    "worse": ("**▼ worse**", "red"),
    "equal": ("≈ not significant", "gray"),
    "undecided": ("? too few queries", "gray"),
}
"""Outcome of a test -> its mark, in Markdown, and its colour, which alone would not tell a loss from a gain."""

STATES = {"running": "blue", "failed": "red", "killed": "red"}
"""State of a run -> the colour of its badge; others are grey."""


def show_table(lines: Sequence[Mapping[str, object]], label: str) -> None:
    """A table with a row for each line.

    Args:
        lines: head -> cell: Markdown, or a number, which stands on the right; None: a dash.
        label: what the table is, for screen readers.
    """
    st.table(pd.DataFrame(lines).style.format(na_rep=MISSING), border="horizontal", hide_index=True, alt=label)


def tinted(outcome: ComparisonOutcome, text: str = "") -> str:
    """The text, else what the outcome is called, in the colour of an outcome, as Markdown."""
    name, colour = VERDICTS[outcome]
    return f":{colour}[{text or name}]"


def badge(state: str) -> str:
    """The state of a run, as Markdown."""
    return f":{STATES.get(state, 'gray')}-badge[{markdown_text(state)}]"


def link(address: str, text: str) -> str:
    """A link, as Markdown."""
    return f"[{markdown_text(text)}]({address})"


def choice(label: str, key: str, options: Sequence[str], **more: Any) -> str:
    """A select box whose value lies in the page's address; a value that is no longer there falls back to the first."""
    return str(st.selectbox(label, options, key=key, bind="query-params", **more))


def choices(label: str, key: str, options: Sequence[str], default: Sequence[str]) -> list[str]:
    """Several of the options, in their order, in the page's address; the default where nothing is chosen."""
    chosen = st.multiselect(label, options, default, key=key, bind="query-params")
    return [option for option in options if option in (chosen or default)]


def first(chosen: str, names: Iterable[str]) -> list[str]:
    """The names, one of them at the front: a choice without a value in the page's address falls on it."""
    return sorted(names, key=lambda name: name != chosen)


def draw(figure: go.Figure, key: str, height: int = 320) -> None:
    """Draws a figure across its column, without Plotly's bar of buttons."""
    margin = {"l": 10, "r": 10, "t": 30, "b": 10}
    figure.update_layout(height=height, margin=margin, hoverlabel={"align": "left"})
    st.plotly_chart(figure, key=key, config={"displaylogo": False, "displayModeBar": False})


def nothing_evaluated() -> None:
    st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
    st.code("make demo", language="bash", wrap_lines=True)
