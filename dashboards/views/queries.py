"""Queries as cards: their text, what was judged relevant and where each run ranks it, and what each run found first."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from textwrap import shorten

import streamlit as st

from context import PageContext
from look import NONE
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.queries import Query, RetrievedPassage, look_up
from midmask.leaderboard.rows import LeaderboardRow
from runs import places_of

TOP = 5
LONGEST = 600
"""Characters of a passage that are shown."""

LONGEST_START = 90
"""Characters of a passage that stand in its list."""

STYLE = """<style>
.mm-query {border: 1px solid rgba(128,128,128,.25); border-radius: .5rem; padding: .75rem 1rem; margin-bottom: .75rem;}
.mm-query h4 {margin: 0 0 .35rem; padding: 0; font-size: 1rem; font-weight: 600;}
.mm-query h5 {margin: .6rem 0 .2rem; padding: 0; font-size: .78rem; font-weight: 600; opacity: .8;}
.mm-query .lists {display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 1.5rem;}
.mm-query .values {font-size: .85rem; overflow-wrap: anywhere; font-variant-numeric: tabular-nums;}
.mm-query details {font-size: .85rem; padding: .15rem 0; overflow-wrap: anywhere;}
.mm-query summary {cursor: pointer;}
.mm-query p {margin: .2rem 0 .4rem 1rem; font-size: .85rem; opacity: .85; white-space: pre-wrap;}
.mm-query .relevant > summary {color: light-dark(#0f766e, #2dd4bf); font-weight: 600;}
.mm-query h4 a {font-size: .75rem; font-weight: 400; margin-left: .6rem; white-space: nowrap;
  color: inherit; opacity: .8;}
.mm-query .quiet {opacity: .8;}
</style>"""


def show_queries(
    context: PageContext,
    rows: Mapping[str, LeaderboardRow],
    values: Mapping[str, tuple[float, float]],
    measure: str,
    address: Callable[[str], str],
) -> None:
    """Draws these queries in their order.

    Args:
        rows: a run of the system and one of the system that it is held against, by name. values: query -> their
            values. address: query -> where the page shows it alone.
    """
    found, missing = _looked_up(context, rows, tuple(values))
    if missing:
        told = "; ".join(f"of {name} {why}" for name, why in missing.items())
        st.caption(markdown_text(f"Texts or lists that cannot be reached are not shown: {told}."))
    cards = [
        card(query, dict(zip(rows, values[query.query_id], strict=True)), measure, address(query.query_id))
        for query in found
    ]
    st.html(STYLE + "".join(cards))


def _looked_up(
    context: PageContext, rows: Mapping[str, LeaderboardRow], query_ids: tuple[str, ...]
) -> tuple[list[Query], dict[str, str]]:
    return _read(query_ids, tuple(places_of(context, rows).items()))


@st.cache_data(max_entries=64, show_spinner="Reading the texts")
def _read(query_ids: tuple[str, ...], places: Sequence[tuple[str, object]]) -> tuple[list[Query], dict[str, str]]:
    return look_up(query_ids, dict(places), TOP)


def card(query: Query, values: Mapping[str, float], measure: str, address: str) -> str:
    own, base = values.values()
    told = " · ".join(f"{escape(name)} <b>{value:.4f}</b>" for name, value in values.items())
    judged = "".join(_passage(passage, _ranks(passage)) for passage in query.judged if (passage.grade or 0) > 0)
    lists = "".join(
        f"<div><h5>Found by {escape(name)}</h5>{_ranking(own_list)}</div>" for name, own_list in query.retrieved.items()
    )
    text = f"“{escape(query.text)}”" if query.text is not None else '<span class="quiet">text not reachable</span>'
    return (
        f'<section class="mm-query" data-query="{escape(query.query_id)}"><h4>{text}'
        f'<a href="{escape(address)}">link to this query</a></h4>'
        f'<div class="values">{escape(measure)}: {told} · difference <b>{own - base:+.4f}</b></div>'
        f'<div class="values quiet">{escape(query.query_id)}</div>'
        + (f"<h5>Judged relevant</h5>{judged}" if judged else "")
        + f'<div class="lists">{lists}</div></section>'
    )


def _ranking(passages: Sequence[RetrievedPassage]) -> str:
    if not passages:
        return '<span class="quiet">nothing</span>'
    return "".join(_passage(passage, f"{number}.") for number, passage in enumerate(passages, start=1))


def _ranks(passage: RetrievedPassage) -> str:
    """Where each run has it, in the order of the runs."""
    ranks = [f"{escape(name)} {NONE if rank is None else rank}" for name, rank in passage.ranks.items()]
    return f'<span class="quiet">rank: {", ".join(ranks)} ·</span>' if ranks else ""


def _passage(passage: RetrievedPassage, before: str) -> str:
    relevant = ' class="relevant"' if (passage.grade or 0) > 0 else ""
    if passage.text is None:
        summary = f"<summary>{before} {escape(passage.doc_id)}</summary>"
        return f"<details{relevant}>{summary}<p>text not reachable</p></details>"
    start = f"{passage.title}: {passage.text}" if passage.title else passage.text
    shown = passage.text[:LONGEST] + ("…" if len(passage.text) > LONGEST else "")
    grade = "" if passage.grade is None else f" · grade {passage.grade}"
    return (
        f"<details{relevant}><summary>{before} {escape(shorten(start, LONGEST_START, placeholder='…'))}</summary>"
        f'<p>{escape(shown)}\n<span class="quiet">{escape(passage.doc_id)}{grade}</span></p></details>'
    )
