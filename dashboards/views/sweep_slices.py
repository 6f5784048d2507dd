"""Trials of a sweep in the order in which they were asked for, and over each parameter; pruned ones in grey."""

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from charts import TIE, WIN
from midmask.leaderboard.sweep_axes import value_text
from midmask.leaderboard.sweep_result import SweepParameter, SweepPoint, SweepResult
from views.sweep_plots import add_band, measure_title, parameter_axis

BEST = "#ea580c"

FEW = 12
"""Trials of which each has its number at the axis."""


def history(sweep: SweepResult) -> go.Figure:
    """The first objective of each trial, and the best up to there."""
    numbered = list(enumerate(sweep.points, start=1))
    complete = [(number, point) for number, point in numbered if point.complete]
    better = max if sweep.objectives[0].mode == "max" else min
    figure = go.Figure()
    figure.add_scatter(
        x=[number for number, _ in complete],
        y=list(accumulate((sweep.first(point) for _, point in complete), better)),
        mode="lines",
        name="best so far",
        line={"color": BEST, "shape": "hv", "width": 2},
        hovertemplate="best after trial %{x}: %{y:.4f}<extra></extra>",
    )
    _points(figure, complete, [sweep.first(point) for _, point in complete], "complete")
    pruned = [(number, point) for number, point in numbered if _kind(point) == "pruned"]
    _points(figure, pruned, [point.probes[-1] for _, point in pruned], "pruned")
    add_band(figure, sweep)
    figure.update_layout(showlegend=bool(pruned), legend={"orientation": "h", "y": -0.25})
    figure.update_xaxes(
        title="trial, in the order of asking", tickformat="d", dtick=1 if len(numbered) <= FEW else None
    )
    figure.update_yaxes(title=measure_title(sweep))
    return figure


def slice_over(sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The first objective of all trials over one parameter, whatever the others are."""
    figure = go.Figure()
    numeric = parameter_axis(figure, sweep, over)
    for name in ("pruned", "complete"):
        there = [
            (point.parameters[over.path] if numeric else value_text(point.parameters[over.path]), point)
            for point in sweep.points
            if over.path in point.parameters and _kind(point) == name
        ]
        values = [sweep.first(point) if point.complete else point.probes[-1] for _, point in there]
        _points(figure, there, values, name)
    add_band(figure, sweep)
    figure.update_layout(showlegend=False)
    figure.update_yaxes(title=measure_title(sweep))
    return figure


def _kind(point: SweepPoint) -> str:
    """Empty for a point that was pruned before its first rung told a value."""
    return "complete" if point.complete else "pruned" if point.probes else ""


def _points(figure: go.Figure, placed: Sequence[tuple[object, SweepPoint]], values: Sequence[float], name: str) -> None:
    figure.add_scatter(
        x=[at for at, _ in placed],
        y=values,
        mode="markers",
        name=name,
        marker={"color": WIN if name == "complete" else TIE, "size": 8, "opacity": 0.8},
        text=[point.label for _, point in placed],
        hovertemplate="%{text}<br>%{y:.4f}<extra>" + name + "</extra>",
    )
