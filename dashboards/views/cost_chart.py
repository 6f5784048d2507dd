"""Quality against cost: what is gained by paying more, and which systems nobody needs to look at."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go
import streamlit as st

from charts import PALETTE, draw
from midmask.evaluation.escaping import markdown_text
from midmask.evaluation.pareto import on_front
from midmask.leaderboard.board import BYTES, COST_HEADS, HOURS, Board, BoardColumn, BoardLine
from midmask.leaderboard.cells import number

LEAST = 2
"""Points of a chart that says more than the table."""

LABELLED = 10
"""Points whose names stand beside them; of more, or of several of one name, their ranks do."""

OFF_FRONT = "#94a3b8"

NEAR = 0.15
"""Share of the axis near its ends in which a label stands on the other side of its point, to be seen whole."""

MINUTES_BELOW_H = 2.0
"""Hours below which the axis of time counts minutes."""


class CostPoint(NamedTuple):
    name: str
    rank: int
    cost: float
    quality: float
    spent: str


def show(board: Board) -> None:
    """The chart, with a choice of the cost; nothing where no cost is known of two systems."""
    assert board.ranked is not None, "a board with lines has a measure"
    found = {
        column.head: (column, points)
        for column in board.columns
        if column.key in COST_HEADS and len(points := points_of(board, column, board.ranked)) >= LEAST
    }
    if not found:
        return
    st.subheader("Quality against cost")
    chosen = st.segmented_control("Cost", list(found), default=next(iter(found)), key="cost", bind="query-params")
    column, points = found[chosen or next(iter(found))]
    front = on_front([(point.quality, point.cost) for point in points], ("max", "min"))
    draw(figure(points, front, column, board.ranked), "quality_cost", 380)
    labels = labels_of(points)
    best = " · ".join(label for label, is_best in zip(labels, front, strict=True) if is_best)
    ranked = "" if labels[0] == points[0].name else " Numbers are ranks in the table."
    st.caption(f"Nothing is both better and cheaper than what is on the line: {markdown_text(best)}.{ranked}")


def points_of(board: Board, cost: BoardColumn, quality: BoardColumn) -> list[CostPoint]:
    """The systems of which both are known, the cheapest first."""
    found = []
    for line in board.lines:
        paid, value = line.cells[cost.key], line.cells[quality.key].value
        if paid.number is not None and value is not None:
            found.append(
                CostPoint(
                    _name(board, line), board.ranks[line.entry.name], paid.number, value.mean, number(board, cost, paid)
                )
            )
    return sorted(found, key=lambda point: (point.cost, -point.quality))


def figure(points: Sequence[CostPoint], front: Sequence[bool], cost: BoardColumn, quality: BoardColumn) -> go.Figure:
    """Costs in powers of ten where none is nothing; the front as a staircase."""
    is_log = all(point.cost > 0 for point in points)
    unit, size = _unit(points, cost)
    drawn_at = [math.log(point.cost) if is_log else point.cost for point in points]
    drawn = go.Figure()
    best = [point for point, is_best in zip(points, front, strict=True) if is_best]
    drawn.add_scatter(
        x=[size * point.cost for point in best],
        y=[point.quality for point in best],
        mode="lines",
        line={"shape": "hv", "color": PALETTE[0], "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
    )
    drawn.add_scatter(
        x=[size * point.cost for point in points],
        y=[point.quality for point in points],
        mode="markers+text",
        text=[escape(label) for label in labels_of(points)],
        textposition=_sides(drawn_at),
        cliponaxis=False,
        marker={"size": 11, "color": [PALETTE[0] if is_best else OFF_FRONT for is_best in front]},
        customdata=[(f"{point.rank} {escape(point.name)}", point.spent) for point in points],
        hovertemplate="%{customdata[0]}<br>%{y:.4f} at %{customdata[1]}<extra></extra>",
    )
    drawn.update_layout(showlegend=False)
    drawn.update_xaxes(title=f"{cost.head} ({unit})", type="log" if is_log else "linear", zeroline=False)
    drawn.update_yaxes(title=quality.key)
    return drawn


def _unit(points: Sequence[CostPoint], cost: BoardColumn) -> tuple[str, float]:
    """What the axis counts, and how many of that are one of the column's own."""
    if cost.key == HOURS:
        return ("minutes", 60.0) if max(point.cost for point in points) < MINUTES_BELOW_H else ("hours", 1.0)
    return ("bytes", 1.0) if cost.key == BYTES else ("ms a query", 1.0)


def _sides(places: Sequence[float]) -> list[str]:
    """Where each label stands: away from the end of the axis that its point is near."""
    low, reach = min(places), max(places) - min(places) or 1.0
    shares = [(place - low) / reach for place in places]
    return ["top right" if share < NEAR else "top left" if share > 1 - NEAR else "top center" for share in shares]


def labels_of(points: Sequence[CostPoint]) -> list[str]:
    """What stands beside each point: names where they are few and differ, else ranks."""
    names = [point.name for point in points]
    return names if len(set(names)) == len(names) <= LABELLED else [f"{point.rank}" for point in points]


def _name(board: Board, line: BoardLine) -> str:
    """Recipe, and representation where systems differ in it: what fits beside a point."""
    entry = line.entry
    parts = (entry.recipe, entry.representation if "representation" in board.fields else "")
    return " ".join(part for part in dict.fromkeys(parts) if part not in ("", "dense"))
