"""Figures of two systems on the same queries: value against value, and the distribution of the differences."""

import itertools
from collections import Counter
from collections.abc import Sequence
from html import escape
from textwrap import shorten

import numpy as np
import plotly.graph_objects as go

from charts import LOSS, TIE, WIN
from midmask.evaluation.statistics.intervals import Variance, standard_error
from midmask.leaderboard.queries import EQUAL, Pairing

MEAN = "#6366f1"
LONGEST_TITLE = 32
"""Characters of a system's name at an axis, which is not long on a phone."""

BINS = 40
"""Half of them for wins, half for losses."""


def scatter(own: Pairing, name: str, base: str, measure: str, query: str) -> go.Figure:
    """A point for each pair of values, since most measures have few; its area grows with the queries there. Both axes
    have one scale. A chosen query is ringed.
    """
    pairs = list(zip(own.base_N.round(4).tolist(), own.own_N.round(4).tolist(), strict=True))
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
    if query in own.queries:
        x, y = pairs[own.queries.index(query)]
        ring = {"size": 22, "symbol": "circle-open", "color": MEAN, "line": {"width": 3}}
        figure.add_scatter(x=[x], y=[y], mode="markers", marker=ring, hoverinfo="skip", cliponaxis=False)
    figure.update_layout(showlegend=False)
    axis = {"range": [-0.04, 1.04], "constrain": "domain", "dtick": 0.2}
    figure.update_xaxes(title=_axis_title(measure, base), **axis)
    figure.update_yaxes(title=_axis_title(measure, name), scaleanchor="x", scaleratio=1, **axis)
    return figure


def histogram(own: Pairing, measure: str) -> go.Figure:
    """Numbers of queries over the difference, without ties; the mean of all queries, with its interval."""
    differences_N = own.difference_N
    reach = max(0.1, float(np.abs(differences_N).max()))
    counts, edges = np.histogram(differences_N[np.abs(differences_N) > EQUAL], BINS, (-reach, reach))
    middles = (edges[:-1] + edges[1:]) / 2
    texts = [f"{low:+.2f} to {high:+.2f}" for low, high in itertools.pairwise(edges)]
    figure = go.Figure(
        go.Bar(
            x=middles.tolist(),
            y=counts.tolist(),
            text=texts,
            textposition="none",
            marker={"color": [WIN if middle > 0 else LOSS for middle in middles], "line": {"width": 0}},
            hovertemplate="%{text}<br>queries: %{y:,}<extra></extra>",
        )
    )
    mean, margin = float(differences_N.mean()), standard_error([Variance.of_mean(differences_N)]).margin()
    text = f"mean {mean:+.4f}"
    if np.isfinite(margin):
        figure.add_vrect(x0=mean - margin, x1=mean + margin, fillcolor=MEAN, opacity=0.3, line_width=0)
        text += f" ({mean - margin:+.4f} … {mean + margin:+.4f})"
    figure.add_vline(x=mean, line={"color": MEAN, "width": 2}, annotation_text=text, annotation_position="top")
    figure.update_layout(showlegend=False, bargap=0.05)
    figure.update_xaxes(title=f"difference in {measure}", range=[-1.05 * reach, 1.05 * reach], zeroline=True)
    figure.update_yaxes(title="queries", rangemode="tozero")
    return figure


def _axis_title(measure: str, name: str) -> str:
    return f"{measure} of {escape(shorten(name, LONGEST_TITLE, placeholder=' …'))}"


def _sizes(points: Sequence[tuple[tuple[float, float], int]]) -> list[float]:
    return [min(40.0, 5.0 + 2.0 * count**0.5) for _, count in points]


def _kind(base: float, own: float) -> str:
    return "ties" if abs(own - base) <= EQUAL else "wins" if own > base else "losses"
