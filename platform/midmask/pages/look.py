"""What the pages look like: one style, tables, links, charts, and choices whose values lie in the page's address."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from midmask.leaderboard.export import STYLE as TABLE_STYLE
from midmask.sweep.figures import colour

ALL = "all"

VERDICTS = {
    "better": ("▲ better", "gain"),
    "worse": ("▼ worse", "loss"),
    "equal": ("≈ not significant", "quiet"),
    "undecided": ("? too few queries", "quiet"),
}
"""Outcome of a test -> its text and the class of its cell: a colour alone would not tell a loss from a gain."""

STYLE = f"""<style>{TABLE_STYLE}
.mm-note {{font-size: .72rem; border: 1px solid rgba(128,128,128,.4); border-radius: .6rem; padding: 0 .4rem;
  margin-left: .4rem;}}
.mm-board .gain {{font-weight: 700; color: light-dark(#0f766e, #2dd4bf);}}
.mm-board .loss {{font-weight: 700; color: light-dark(#b91c1c, #f87171);}}
.mm-status {{font-size: .75rem; border-radius: .6rem; padding: .1rem .5rem; background: rgba(128,128,128,.15);}}
.mm-status.failed {{background: rgba(220,38,38,.14);}}
.mm-status.running {{background: rgba(37,99,235,.14);}}
[data-testid="stMainBlockContainer"] {{padding: 4.5rem 2.5rem 3rem;}}
[data-testid="stCaptionContainer"] {{opacity: 1 !important; color: light-dark(#57564f, #b5b3ad) !important;}}
[data-testid="stCaptionContainer"] p {{opacity: 1; color: inherit !important;}}
[data-testid="stCaptionContainer"] a, [data-testid="stMarkdownContainer"] a {{color: light-dark(#0f766e, #5eead4);}}
[data-testid="stCode"] .token {{color: light-dark(#57564f, #b5b3ad) !important;}}
[data-testid="stButtonGroup"] button[data-selected="true"] p {{color: light-dark(#0f766e, #5eead4);}}
[data-testid="stSidebar"] {{width: 17rem !important;}}
[data-testid="stHeading"] h2 {{font-size: 1.6rem; padding: 0;}}
[data-testid="stHeading"] h3 {{font-size: 1.15rem;}}
@media (max-width: 640px) {{
  [data-testid="stMainBlockContainer"] {{padding: 4rem 1rem 2rem;}}
  [data-testid="stColumn"] {{min-width: calc(50% - 1rem) !important;}}
}}
</style>"""

TABLE = """
export default function({parentElement, data, setTriggerValue}) {
  parentElement.innerHTML = data.html;
  for (const head of parentElement.querySelectorAll("th[data-key] > button:not([data-open])")) {
    head.title = "Order by this column; again: the other way round";
    head.onclick = () => setTriggerValue("order", head.parentElement.dataset.key);
  }
  for (const name of parentElement.querySelectorAll("button[data-open]")) {
    name.title = "Show this system below the table";
    name.onclick = () => setTriggerValue("open", name.dataset.open);
  }
}
"""
"""Texts in the HTML are escaped where it is made."""

_live_table = st.components.v2.component("midmask.table", js=TABLE, isolate_styles=False)


def table(heads: Sequence[tuple[str, str]], lines: Sequence[Sequence[tuple[str, str]]], label: str) -> str:
    """An HTML table of (text, class) cells; texts are HTML already. Heads without a text are left out together."""
    head = "".join(f'<th class="{kind}" scope="col">{text}</th>' for text, kind in heads)
    named = any(text for text, _ in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for text, kind in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="mm-scroll" tabindex="0"><table class="mm-board" aria-label="{label}">'
        f"{f'<thead><tr>{head}</tr></thead>' if named else ''}<tbody>{body}</tbody></table></div>"
    )


def live_table(html: str, key: str, *, order: Callable[[str], None], opened: Callable[[str], None]) -> None:
    """An HTML table whose heads and systems can be chosen, by click or key.

    Args:
        order: told the `data-key` of the head that was chosen, before the page is drawn again. opened: told the
            `data-open` of a system.
    """
    _live_table(
        key=key,
        data={"html": html},
        on_order_change=lambda: order(st.session_state[key]["order"]),
        on_open_change=lambda: opened(st.session_state[key]["open"]),
    )


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a>'


def choice(label: str, key: str, options: Sequence[str], **more: Any) -> str:
    """A select box whose value lies in the page's address; a value that is no longer there falls back to the first."""
    return str(st.selectbox(label, options, key=key, bind="query-params", **more))


def choices(label: str, key: str, options: Sequence[str], default: Sequence[str]) -> list[str]:
    """Several of the options, in their order, in the page's address; the default where nothing is chosen."""
    chosen = st.multiselect(label, options, default, key=key, bind="query-params")
    return [option for option in options if option in (chosen or default)]


CHARTS_STYLE = """<style>
@media (max-width: 640px) {[class*="st-key-charts"] [data-testid="stColumn"] {min-width: 100% !important;}}
</style>"""


def side_by_side(key: str = "") -> list[DeltaGenerator]:
    """Two columns for charts, which on a phone stand below each other.

    Args:
        key: tells several pairs on one page apart.
    """
    with st.container(key=f"charts{key}"):
        st.html(CHARTS_STYLE)
        return list(st.columns(2))


MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}


def draw(figure: go.Figure, key: str, height: int = 320) -> None:
    """Draws a figure across its column, without Plotly's bar of buttons."""
    figure.update_layout(height=height, margin=MARGIN, hoverlabel={"align": "left"})
    st.plotly_chart(figure, key=key, config={"displaylogo": False, "displayModeBar": False})


def swatch(number: int) -> str:
    """A spot of a run's colour, as HTML: a legend that wraps on a phone."""
    style = f"display:inline-block;width:.7rem;height:.7rem;border-radius:.35rem;background:{colour(number)}"
    return f'<span style="{style};margin-right:.45rem"></span>'
