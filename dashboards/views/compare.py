"""Two or more runs on the same queries: who wins how often, by how much, and what those queries look like."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go
import pyarrow as pa
import streamlit as st

from charts import LOSS, TIE, WIN, draw
from context import PageContext
from look import NONE, VERDICTS, choice, choices, link, table
from midmask.evaluation.escaping import markdown_text
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.leaderboard.queries import EQUAL, Pairing, Sided, pair_systems, widest
from midmask.leaderboard.rows import LeaderboardRow, measure_names
from runs import choose_place, named, nothing_evaluated, short_name
from views.queries import show_queries

SIDES: Mapping[str, Sided] = {"largest differences": "either", "wins": "wins", "losses": "losses"}
COUNTS = ("5", "10", "20")
FEWEST = 2


def show(context: PageContext) -> None:
    if not context.rows:
        nothing_evaluated()
        return
    first, second, third = st.columns([2, 2, 3])
    with first:
        rows = choose_place(context.rows)
    with second:
        measure = choice("Measure", "measure", measure_names(rows))
    known = {name: row for name, row in named(rows).items() if measure in row.measures}
    if len(known) < FEWEST:
        st.info("It takes two runs with this measure here; there is one. Choose another corpus, or evaluate more.")
        return
    with third:
        base = choice("Held against", "base", list(known))
    others = [name for name in known if name != base]
    wanted = choices("Runs", "runs", others, others[:1])
    tables = {name: context.per_query(known[name]) for name in (base, *wanted)}
    usable = {name: own for name, own in tables.items() if own is not None}
    for name in tables.keys() - usable.keys():
        st.warning(f"{markdown_text(name)}: this run keeps no values per query, so it cannot be compared.")
    if base in usable and len(usable) >= FEWEST:
        pairings = {name: pair_systems(own, usable[base], measure) for name, own in usable.items() if name != base}
        standings(pairings, usable, base, measure, {name: context.link(row) for name, row in known.items()})
        details(context, pairings, known, base, measure)


def standings(
    pairings: Mapping[str, Pairing], tables: Mapping[str, pa.Table], base: str, measure: str, links: Mapping[str, str]
) -> None:
    """Wins, losses and ties of each run, with the test of its difference."""
    tested = _tested(pairings, tables, base, measure)
    heads = [("Run", ""), (measure, "num"), ("Difference", "num"), ("Verdict", "")]
    heads += [(text, "num") for text in ("95% interval", "p (Holm)", "Wins", "Losses", "Ties", "Queries")]
    lines = [
        [(link(links[name], name), ""), *_differences(tested.get(name)), *((f"{count:,}", "num") for count in counts)]
        for name, own in pairings.items()
        for counts in [(own.wins, own.losses, own.ties, len(own.queries))]
    ]
    st.html(table(heads, lines, "standings"))
    left = {name: own.left_out for name, own in pairings.items() if own.left_out}
    notes = [
        f"Held against {base}. Paired t-test over the queries that all of them have, at 0.05 after Holm's correction."
    ]
    notes += [f"{count:,} queries that only one of {name} and {base} has are left out." for name, count in left.items()]
    st.caption(markdown_text(" ".join(notes)))


def _differences(row: Comparison | None) -> list[tuple[str, str]]:
    """The cells of a difference and its test, dashes where it was not tested. Sign and significance are words and
    marks; the colour repeats them.
    """
    if row is None:
        return [(NONE, "num"), (NONE, "num"), (NONE, ""), (NONE, "num"), (NONE, "num")]
    said, kind = VERDICTS["equal" if not row.significant else "better" if row.difference > 0 else "worse"]
    return [
        (f"{row.mean:.4f}", "num"),
        (f"{row.difference:+.4f}", f"num {kind}"),
        (said, kind),
        (f"{row.low:+.4f} … {row.high:+.4f}", "num quiet"),
        (f"{row.p_corrected:.2g}", "num"),
    ]


def _tested(
    pairings: Mapping[str, Pairing], tables: Mapping[str, pa.Table], base: str, measure: str
) -> dict[str, Comparison]:
    """On the queries that all have; none where these are fewer than two."""
    shared = set.intersection(*(set(own.queries) for own in pairings.values()))
    if len(shared) < FEWEST:
        return {}
    return {row.system: row for row in compare(tables, measure=measure, baseline=base, queries=shared)}


def details(
    context: PageContext, pairings: Mapping[str, Pairing], known: Mapping[str, LeaderboardRow], base: str, measure: str
) -> None:
    first, second, third = st.columns([3, 2, 1])
    with first:
        name = choice("Query by query", "of", list(pairings))
    with second:
        side = choice("Queries shown", "side", list(SIDES))
    with third:
        count = choice("How many", "count", COUNTS)
    own = pairings[name]
    if not own.queries:
        st.info("These two runs share no query.")
        return
    draw(scatter(own, short_name(known[name]), short_name(known[base]), measure), "scatter", 420)
    st.caption(
        f"▲ {own.wins:,} queries above the line, ▼ {own.losses:,} below, ● {own.ties:,} on it. Larger: more queries."
    )
    chosen = widest(own, int(count), SIDES[side])
    if not chosen:
        st.info("There is no such query: on all of them the two runs are equal.")
        return
    values = {query: (a, b) for query, a, b in zip(own.queries, own.own_N, own.base_N, strict=True)}
    pair = {short_name(known[one]): known[one] for one in (name, base)}
    show_queries(context, pair, {query: values[query] for query in chosen}, measure)


def scatter(own: Pairing, name: str, base: str, measure: str) -> go.Figure:
    """A point for each pair of values, since most measures have few; its area grows with the queries there."""
    pairs = zip(own.base_N.round(4).tolist(), own.own_N.round(4).tolist(), strict=True)
    counts = Counter(pairs)
    figure = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": TIE, "width": 1}, hoverinfo="skip"))
    kinds = {"wins": (WIN, "triangle-up"), "losses": (LOSS, "triangle-down"), "ties": (TIE, "circle")}
    for kind, (colour, symbol) in kinds.items():
        points = [(at, count) for at, count in counts.items() if _kind(*at) == kind]
        figure.add_scatter(
            x=[at[0] for at, _ in points],
            y=[at[1] for at, _ in points],
            mode="markers",
            name=kind,
            customdata=[count for _, count in points],
            hovertemplate="%{x:.4f} to %{y:.4f}<br>queries: %{customdata}<extra>" + kind + "</extra>",
            cliponaxis=False,
            marker={"color": colour, "symbol": symbol, "opacity": 0.7, "size": _sizes(points), "line": {"width": 0}},
        )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title=f"{measure} of {escape(base)}", range=[-0.04, 1.04], constrain="domain")
    figure.update_yaxes(title=f"{measure} of {escape(name)}", range=[-0.04, 1.04])
    return figure


def _sizes(points: Sequence[tuple[tuple[float, float], int]]) -> list[float]:
    return [min(40.0, 5.0 + 2.0 * count**0.5) for _, count in points]


def _kind(base: float, own: float) -> str:
    return "ties" if abs(own - base) <= EQUAL else "wins" if own > base else "losses"
