"""Queries and their passages as vectors: a map of them in two dimensions, and how far apart the two sides lie."""

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import shorten, wrap

import plotly.graph_objects as go
import streamlit as st

from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.embeddings import CAVEAT, PERPLEXITY, Map
from midmask.leaderboard.embeddings import PAIRS, EmbeddingSample, Encodings, draw_sample, encodings, map_embeddings
from midmask.leaderboard.queries import passage_texts, query_texts
from midmask.leaderboard.rows import LeaderboardRow
from midmask.pages.context import PageContext, choose_place, named, nothing_evaluated, places_of, rows_at
from midmask.pages.look import PASSAGES, QUERIES, choice, choices, draw, link, side_by_side, table
from midmask.store.place import Place

VIEWS = ("dense", "lexical")
BM25 = "bm25"
PointTexts = tuple[dict[str, str], dict[str, tuple[str, str]]]
"""Of queries, and titles and texts of passages, by id."""

LONGEST = 160
"""Characters of a text that is shown at a point."""


PLAIN = """
A dense retriever turns queries and passages into vectors; it finds for a query the passages whose vectors point the
same way. Each dot below is the vector of a query, or of a passage that answers one, placed so that neighbours stay
neighbours. **How to read it:** where both colours mix, queries lie among the passages that answer them. Where they form
two separate clouds, the vectors say first whether a text is a query and only then what it is about. The table has the
numbers: *cosine of pairs* should be well above that *of others*.
"""


def show(context: PageContext) -> None:
    rows = [row for row in context.rows if row.representation != BM25]
    if not rows:
        nothing_evaluated()
        return
    st.markdown(PLAIN)
    with st.sidebar:
        own = named(rows_at(rows, choose_place(rows)))
        chosen = choices("Runs", "runs", list(own), list(own)[:1])
    sources = {name: reached(name, place) for name, place in places_of(context, {n: own[n] for n in chosen}).items()}
    views = [view for view in VIEWS if any(source and view in source.views for source in sources.values())]
    if not views:
        return
    with st.sidebar:
        view = choice("Vectors", "view", views)
        pairs = choice("Pairs", "pairs", (str(PAIRS), "200", "100", "1000"))
        perplexity = choice("Perplexity", "perplexity", (f"{PERPLEXITY:g}", "5", "15", "50"))
        seed = choice("Seed", "seed", tuple(str(number) for number in range(5)))
    found: dict[str, Map] = {}
    columns = side_by_side() if len(chosen) > 1 else [st.container()]
    for number, (name, source) in enumerate(sources.items()):
        if source is not None:
            with columns[number % len(columns)]:
                drawn = one(name, source, view, int(pairs), float(perplexity), int(seed))
                found |= {name: drawn} if drawn is not None else {}
    if found:
        st.html(divergences(found, own, context))
        st.caption(
            "As in CoT-MoTE (appendix A.1, Table 1): t-SNE of cosine distances, kernel densities, natural logarithms. "
            f"Cosines are taken before t-SNE. **Mind:** {CAVEAT}"
        )


def reached(name: str, place: Place | None) -> Encodings | None:
    """A run's encodings; None if there are none, which is said."""
    try:
        return encodings(place)
    except UserError as error:
        st.info(f"No map of {name}: {error}", icon=":material/link_off:")
        return None


def one(name: str, source: Encodings, view: str, pairs: int, perplexity: float, seed: int) -> Map | None:
    """Draws a run's map; None if it cannot be drawn, which is said."""
    st.markdown(f"**{name}**")
    try:
        sample, drawn, texts = analysed(source.queries.fingerprint, view, pairs, perplexity, seed, source)
    except UserError as error:
        st.info(f"No map: {error}")
        return None
    draw(scatter(sample, drawn, texts), f"map {name}", 460)
    return drawn


@st.cache_resource(max_entries=32, show_spinner="Drawing the map: a minute for a thousand pairs")
def analysed(
    key: str, view: str, pairs: int, perplexity: float, seed: int, _source: Encodings
) -> tuple[EmbeddingSample, Map, PointTexts]:
    """The sample of a run, its map and its texts, worked out once; the queries' encoding, by its fingerprint, is of one
    model and one split.

    Raises:
        UserError: if something of it is not there.
    """
    sample = draw_sample(_source, view, count=pairs, seed=seed)
    drawn = map_embeddings(sample, perplexity=perplexity, seed=seed)
    texts = query_texts(_source.corpus, sample.query_ids), passage_texts(_source.corpus, sample.doc_ids)
    return sample, drawn, texts


def scatter(
    sample: EmbeddingSample, drawn: Map, texts: tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]
) -> go.Figure:
    """Queries and passages as points; t-SNE's axes have no meaning, so they have no numbers."""
    queries, passages = texts
    sides = {
        "passages": (drawn.passages_N2, PASSAGES, [passages.get(name, ("", name)) for name in sample.doc_ids]),
        "queries": (drawn.queries_N2, QUERIES, [("", queries.get(name, name)) for name in sample.query_ids]),
    }
    figure = go.Figure()
    for name, (points_N2, colour, own) in sides.items():
        figure.add_scatter(
            x=points_N2[:, 0].round(2).tolist(),
            y=points_N2[:, 1].round(2).tolist(),
            mode="markers",
            name=name,
            text=[_told(title, text) for title, text in own],
            hovertemplate="%{text}<extra>" + name + "</extra>",
            marker={"color": colour, "size": 6, "opacity": 0.65},
        )
    figure.update_layout(
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"}
    )
    axis = {"showticklabels": False, "showgrid": False, "zeroline": False, "showline": True, "mirror": True}
    figure.update_xaxes(**axis, linecolor="rgba(128,128,128,.3)")
    figure.update_yaxes(**axis, linecolor="rgba(128,128,128,.3)")
    return figure


def _told(title: str, text: str) -> str:
    """A text in lines of a readable width; Plotly reads some HTML in it."""
    return "<br>".join(escape(line) for line in wrap(shorten(f"{title} {text}".strip(), LONGEST, placeholder="…"), 60))


def divergences(found: Mapping[str, Map], rows: Mapping[str, LeaderboardRow], context: PageContext) -> str:
    heads = [("Run", ""), ("Pairs", "num"), ("KL(queries ‖ passages)", "num"), ("JS", "num"), ("JS / KL", "num")]
    heads += [("Cosine of pairs", "num"), ("of others", "num")]
    return table(heads, [_line(name, own, rows[name], context) for name, own in found.items()], "divergences")


def _line(name: str, own: Map, row: LeaderboardRow, context: PageContext) -> Sequence[tuple[str, str]]:
    kl, js = own.divergence.kl, own.divergence.js
    numbers = [f"{len(own.queries_N2):,}", f"{kl:.3g}", f"{js:.3g}", f"{js / kl:.2f}" if kl else MISSING]
    numbers += [f"{own.cosines.pairs:.3f}", f"{own.cosines.others:.3f}"]
    return [(link(context.link(row), name), ""), *((number, "num") for number in numbers)]
