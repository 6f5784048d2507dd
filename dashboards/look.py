"""What the pages look like: one style, one table, one link, and choices whose values lie in the page's address."""

from collections.abc import Sequence
from html import escape

import streamlit as st

ALL = "all"
NONE = "—"

STYLE = """<style>
.mm-scroll {overflow-x: auto; border: 1px solid rgba(128,128,128,.25); border-radius: .5rem;}
.mm-board {border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums;}
.mm-board th, .mm-board td {padding: .5rem .75rem; border: 0; border-bottom: 1px solid rgba(128,128,128,.15);
  text-align: left; white-space: nowrap;}
.mm-board tr:last-child td {border-bottom: 0;}
.mm-board th {font-weight: 600; font-size: .8rem; opacity: .75; background: rgba(128,128,128,.07);}
.mm-board .num {text-align: right;}
.mm-board .best {font-weight: 700; color: #0f766e;}
.mm-board .quiet {opacity: .65;}
.mm-board a {color: #0f766e; text-decoration: none;}
.mm-board a:hover {text-decoration: underline;}
.mm-board .place {display: block; font-size: .75rem; opacity: .65;}
.mm-note {font-size: .72rem; border: 1px solid rgba(128,128,128,.4); border-radius: .6rem; padding: 0 .4rem;
  margin-left: .4rem;}
[data-testid="stMainBlockContainer"] {padding-top: 3.5rem;}
@media (max-width: 640px) {
  [data-testid="stColumn"] {min-width: calc(50% - 1rem) !important;}
  .mm-board th, .mm-board td {padding: .45rem .5rem;}
}
</style>"""


def table(heads: Sequence[tuple[str, str]], lines: Sequence[Sequence[tuple[str, str]]], label: str) -> str:
    """An HTML table of (text, class) cells; texts are HTML already."""
    head = "".join(f'<th class="{kind}">{text}</th>' for text, kind in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for text, kind in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="mm-scroll"><table class="mm-board" aria-label="{label}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a>'


def choice(label: str, key: str, options: Sequence[str]) -> str:
    """A select box whose value lives in the page's address; a value that is no longer there falls back to the first."""
    return str(st.selectbox(label, options, key=key, bind="query-params"))
