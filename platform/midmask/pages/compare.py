"""Two or more systems on the same queries: who wins how often, by how much, and what those queries look like.

Per pair: the differences as figures, and query by query as cards with what each run found first.
"""

from collections.abc import Mapping, Sequence
from textwrap import shorten

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
import streamlit as st

from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.evaluation.statistics.intervals import Variance, interval
from midmask.evaluation.statistics.pairing import EQUAL, Pairing, Sided, widest
from midmask.leaderboard.artifacts import artifact_place
from midmask.leaderboard.comparison import (
    ComparableSystems,
    SystemComparison,
    caption,
    comparable,
    compare_tables,
)
from midmask.leaderboard.queries import Query, look_up
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, measure_names, place_names
from midmask.leaderboard.store_view import StoreView
from midmask.pages.look import TEMPLATES, choice, choices, draw, first, link, nothing_evaluated, show_table, tinted
from midmask.store.place import Place
from midmask.sweep.figures import LOSS, WIN

SIDES: Mapping[str, Sided] = {"largest differences": "either", "wins": "wins", "losses": "losses"}
COUNT = 5
"""Queries that are shown."""

FEWEST = 2
SHOWN = 3
"""Systems that are compared if none is chosen, the best."""


def show(store: StoreView) -> None:
    if not store.rows:
        nothing_evaluated()
        return
    with st.sidebar:
        place = choose_place(store.rows)
        measure = choice("Measure", "measure", measure_names(row for row in store.rows if row.place == place))
    systems = comparable(store.entries, place, measure, store.per_query)
    if len(systems.entries) < FEWEST:
        st.info(
            "It takes two systems with values of this measure for each query; here "
            + ("is one." if systems.entries else "is none.")
            + " Choose another collection or measure in the sidebar, or evaluate more."
        )
        st.caption(markdown_text(not_offered(systems)))
        return
    names = choose(systems, place, measure)
    try:
        comparison = compare_tables({name: systems.tables[name] for name in names}, [measure])
    except UserError as error:
        st.info(str(error))
        return
    standings(systems, comparison, measure, store)
    base, *others = names
    with st.sidebar:
        name = choice("Query by query", "of", others)
        side = SIDES[choice("Queries shown", "side", list(SIDES))]
        query = st.text_input("One query, by its id", key="query", bind="query-params").strip()
    pairing = comparison.pairings[name, measure]
    pair = {system: systems.entries[system].rows[place][0] for system in (name, base)}
    st.subheader(markdown_text(f"{name} against {base}"))
    draw(histogram(pairing, measure), "histogram", 420)
    st.caption(
        f"How many queries differ by how much; the {pairing.ties:,} ties are left out. The band is the 95% interval of "
        f"the mean difference over all {len(pairing.queries):,} queries."
    )
    one_by_one(pairing, pair, measure, query, side)


def choose_place(rows: Sequence[LeaderboardRow]) -> CollectionSplit:
    """Draws the choice of collection and split: the collection of the newest results first, of its splits dev. Trials
    of sweeps do not count as results.

    Args:
        rows: newest first.
    """
    names = place_names(row.place for row in sorted(rows, key=lambda row: row.trial))
    collections = list(dict.fromkeys((place.corpus, place.collection) for place in names))
    order = sorted(names, key=lambda at: (collections.index((at.corpus, at.collection)), at.split != "dev"))
    by_name = {names[place]: place for place in order}
    return by_name[choice("Evaluated on", "place", list(by_name))]


def choose(systems: ComparableSystems, place: CollectionSplit, measure: str) -> list[str]:
    """Draws the choice of a baseline and of systems; the baseline comes first."""
    with st.sidebar:
        base = choice("Held against", "base", first(systems.baseline(), systems.entries))
        others = systems.others(place, measure, base)
        return [base, *choices("Systems", "systems", others, others[:SHOWN])]


def standings(systems: ComparableSystems, comparison: SystemComparison, measure: str, store: StoreView) -> None:
    """Wins, losses and ties of each system, with the test of its difference. Sign and significance are words and marks;
    the colour repeats them.
    """
    lines = []
    for standing in comparison.standings(measure)[1:]:
        assert standing.test is not None and standing.pairing is not None, "only the first system is not tested"
        runs = [row.run for rows in systems.entries[standing.system].rows.values() for row in rows]
        lines.append(
            {
                "System": link(store.link(max(runs, key=lambda run: run.started)), standing.system),
                measure: standing.mean,
                "Difference": tinted(standing.test.outcome, standing.difference),
                "Verdict": tinted(standing.test.outcome),
                "95% interval": standing.interval,
                "p (Holm)": markdown_text(standing.p),
                **{"Wins": standing.pairing.wins, "Losses": standing.pairing.losses, "Ties": standing.pairing.ties},
            }
        )
    show_table(lines, "standings")
    st.caption(markdown_text(" ".join([caption(comparison), not_offered(systems)])))


def not_offered(systems: ComparableSystems) -> str:
    """Which systems cannot be chosen, and why; empty if all can."""
    reasons = []
    if systems.without:
        names = ", ".join(systems.without[:FEWEST]) + (" and others" if len(systems.without) > FEWEST else "")
        reasons.append(f"Not offered: {len(systems.without)} systems whose runs keep no values per query ({names}).")
    if systems.unread:
        reasons.append(f"The {systems.unread:,} oldest systems here are not offered.")
    return " ".join(reasons)


ComparedRuns = Mapping[str, LeaderboardRow]
"""Name -> a run, of a system and of the one that it is held against, in this order."""


def one_by_one(pairing: Pairing, pair: ComparedRuns, measure: str, query: str, side: Sided) -> None:
    """Cards of queries: one, or those that differ most.

    Args:
        query: the id of one; empty: those that differ most on this side.
    """
    chosen = [query] if query in pairing.queries else [] if query else widest(pairing, COUNT, side)
    if not chosen:
        st.info(
            f"Query {query} is none that both systems have." if query else
            "There is no such query: on all of them the two systems are equal."
        )  # fmt: skip
        return
    values = pairing.values
    show_queries(pair, {query_id: values[query_id] for query_id in chosen}, measure)
    st.caption("The lists are those of each system's first seed; the values are means over its seeds.")


MEAN = "#6366f1"
BINS = 40
"""Half of them for wins, half for losses."""


def histogram(pairing: Pairing, measure: str) -> go.Figure:
    """Numbers of queries over the difference, without ties; the mean of all queries, with its interval."""
    differences_N = pairing.difference_N
    reach = max(0.1, float(np.abs(differences_N).max()))
    unequal_N = differences_N[np.abs(differences_N) > EQUAL]
    kinds = np.where(unequal_N > 0, "wins", "losses")
    figure = px.histogram(x=unequal_N, color=kinds, color_discrete_map={"wins": WIN, "losses": LOSS})
    figure.update_traces(xbins={"start": -reach, "end": reach, "size": 2 * reach / BINS})
    mean = interval(float(differences_N.mean()), [Variance.of_mean(differences_N)])
    text = f"mean {mean.value:+.4f}"
    if np.isfinite(mean.low):
        figure.add_vrect(x0=mean.low, x1=mean.high, fillcolor=MEAN, opacity=0.3, line_width=0)
        text += f" ({mean.low:+.4f} … {mean.high:+.4f})"
    figure.add_vline(x=mean.value, line={"color": MEAN, "width": 2}, annotation_text=text, annotation_position="top")
    figure.update_layout(showlegend=False, bargap=0.05)
    figure.update_xaxes(title=f"difference in {measure}", range=[-1.05 * reach, 1.05 * reach], zeroline=True)
    figure.update_yaxes(title="queries", rangemode="tozero")
    return figure


TOP = 5
LONGEST = 600
"""Characters of a passage that are shown."""

LONGEST_START = 90
"""Characters of a passage that stand in its list."""

_card = TEMPLATES.get_template("query.html.jinja")


def show_queries(rows: ComparedRuns, values: Mapping[str, tuple[float, float]], measure: str) -> None:
    """Draws these queries in their order.

    Args:
        values: query -> its value in either run.
    """
    lists = [(name, artifact_place(row.run, row.place.corpus, row.place.split)) for name, row in rows.items()]
    queries, missing = _read(tuple(values), lists)
    if missing:
        st.caption(
            markdown_text(f"Texts or lists of {', '.join(missing)} were deleted, or cannot be reached from here.")
        )
    cards = [
        _card.render(
            {
                **{"query": query, "measure": measure, "missing": MISSING},
                "values": dict(zip(rows, values[query.query_id], strict=True)),
                "start": lambda passage: shorten(
                    ": ".join(filter(None, (passage.title, passage.text))), LONGEST_START, placeholder="…"
                ),
                "longest": LONGEST,
            }
        )
        for query in queries
    ]
    st.html("".join(cards))


@st.cache_data(max_entries=64, show_spinner="Reading the texts")
def _read(query_ids: tuple[str, ...], places: Sequence[tuple[str, Place | None]]) -> tuple[list[Query], list[str]]:
    return look_up(query_ids, dict(places), TOP)
