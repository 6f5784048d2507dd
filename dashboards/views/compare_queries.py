"""One system against another, query by query: the differences as figures, by kinds of queries, and one by one."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from charts import draw, side_by_side
from context import PageContext
from look import table
from midmask.artifact import Place
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.queries import Pairing, Sided, widest
from midmask.leaderboard.query_groups import RELEVANT, QueryGroup, QueryTraits, groups, quartiles, query_traits
from midmask.leaderboard.rows import LeaderboardRow
from runs import places_of
from views.compare_plots import histogram, scatter
from views.queries import show_queries

ComparedRuns = Mapping[str, LeaderboardRow]
"""Name -> a run, of a system and of the one that it is held against, in this order."""

SHARES = """<style>
.mm-shares {display: flex; min-width: 7rem; height: .7rem; border-radius: .35rem; overflow: hidden; gap: 1px;}
.mm-shares .win {background: light-dark(#0f766e, #2dd4bf);}
.mm-shares .loss {background: light-dark(#ea580c, #fb923c);}
.mm-shares .tie {background: rgba(148,163,184,.45);}
</style>"""


def differences(own: Pairing, name: str, base: str, measure: str, query: str) -> None:
    """The two systems' values as a scatter plot, and a histogram of what they differ by."""
    first, second = side_by_side()
    with first:
        draw(scatter(own, name, base, measure, query), "scatter", 420)
        st.caption(f"▲ {own.wins:,} queries above the line, ▼ {own.losses:,} below, ● {own.ties:,} on it. "
                   "Larger: more queries.")  # fmt: skip
    with second:
        draw(histogram(own, measure), "histogram", 420)
        st.caption(
            f"How many queries differ by how much; the {own.ties:,} ties are left out. The band is the 95% interval of "
            f"the mean difference over all {len(own.queries):,} queries."
        )


def by_kind(context: PageContext, own: Pairing, pair: ComparedRuns) -> None:
    """Wins, ties and losses by query length and by number of relevant passages."""
    places = places_of(context, pair)
    traits = _traits(next((place for place in places.values() if place), None), own.queries)
    if traits.missing:
        st.caption(markdown_text(f"By kinds of queries: not known, because {traits.missing}."))
        return
    tables = {
        "Words of the query": groups(own, traits.words, quartiles(traits.words)),
        "Relevant passages": groups(own, traits.relevant, RELEVANT),
    }
    for title, found in tables.items():
        if len(found) > 1:
            st.html(SHARES + _table(title, found))
        elif found:
            st.caption(f"{title}: {found[0].label} for all queries, so nothing is told apart by it.")


@st.cache_resource(max_entries=64, show_spinner="Reading the queries")
def _traits(place: Place | None, queries: tuple[str, ...]) -> QueryTraits:
    return query_traits(place, queries)


def _table(title: str, found: Sequence[QueryGroup]) -> str:
    heads = [(title, ""), *((text, "num") for text in ("Wins", "Ties", "Losses")), ("", ""), ("Difference", "num")]
    lines = [
        [
            (group.label, ""),
            *((f"{count:,}", "num") for count in (group.wins, group.ties, group.losses)),
            (_shares(group), ""),
            (f"{group.difference:+.4f}", "num"),
        ]
        for group in found
    ]
    return table(heads, lines, title.lower())


def _shares(group: QueryGroup) -> str:
    """A bar of wins, ties and losses."""
    counts = {"win": group.wins, "tie": group.ties, "loss": group.losses}
    parts = "".join(f'<span class="{kind}" style="flex:{count}"></span>' for kind, count in counts.items() if count)
    return f'<div class="mm-shares" aria-hidden="true">{parts}</div>'


def one_by_one(
    context: PageContext,
    own: Pairing,
    pair: ComparedRuns,
    measure: str,
    wanted: tuple[str, Sided, int],
    address: Callable[[str], str],
) -> None:
    """Cards of queries: one, or those that differ most.

    Args:
        wanted: the id of one query, empty for none; else which side, and how many.
    """
    query, side, count = wanted
    chosen = [query] if query in own.queries else [] if query else widest(own, count, side)
    if query:
        st.button("Show the others again", on_click=_forget, icon=":material/arrow_back:")
    if not chosen:
        st.info(
            f"Query {query} is none that both systems have." if query else
            "There is no such query: on all of them the two systems are equal."
        )  # fmt: skip
        return
    values = {one: (a, b) for one, a, b in zip(own.queries, own.own_N, own.base_N, strict=True)}
    show_queries(context, pair, {one: values[one] for one in chosen}, measure, address)
    st.caption("The lists are those of each system's first seed; the values are means over its seeds.")


def _forget() -> None:
    st.session_state["query"] = ""
