"""Charts of a finished sweep, for the page Sweep; and the chart of quality over cost.

The band in a chart is the sweep's noise: what lies in it may be as good as the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from midmask.sweep.sweep_file import SweepParameter, SweepResult, choices, value_text

PALETTE = ("#0d9488", "#ea580c", "#6366f1", "#db2777", "#ca8a04", "#0284c7", "#65a30d", "#8b5cf6")
"""Colours of runs, in the order in which they were chosen; each can be seen on a light and on a dark ground."""

WIN, LOSS, TIE = PALETTE[0], PALETTE[1], "#94a3b8"
BAND = "rgba(13,148,136,.2)"

MOST_LINES = 8
"""Lines of a chart; of more choices of the other parameters, points alone are drawn."""


@dataclass(frozen=True)
class FrontPoint:
    """One system or trial: what it costs and how good it is."""

    cost: float
    quality: float
    label: str  # beside the point; empty: none
    text: str  # below the pointer, before the quality
    on_front: bool  # whether nothing is both better and cheaper


def front_figure(points: Sequence[FrontPoint], cost: str, quality: str, *, log: bool = False) -> go.Figure:
    """Quality over cost: what nothing beats in both stands out, joined as a staircase.

    Args:
        points: the cheapest first. cost, quality: titles of the axes. log: costs by powers of ten.
    """
    figure = go.Figure()
    front = [point for point in points if point.on_front]
    line = {"shape": "hv", "color": WIN, "width": 1.5, "dash": "dot"}
    x, y = [point.cost for point in front], [point.quality for point in front]
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip")
    figure.add_scatter(
        x=[point.cost for point in points],
        y=[point.quality for point in points],
        mode="markers+text",
        text=[escape(point.label) for point in points],
        textposition="top center",
        cliponaxis=False,
        marker={"size": 11, "color": [WIN if point.on_front else TIE for point in points]},
        customdata=[escape(point.text) for point in points],
        hovertemplate="%{customdata}<br>%{y:.4f}<extra></extra>",
    )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title=cost, type="log" if log else "linear", zeroline=False)
    figure.update_yaxes(title=quality)
    return figure


def pareto(sweep: SweepResult, across: str) -> go.Figure:
    """The measure over the cost, with the names of marked points."""
    title, points = across.replace("_", " "), []
    for point in sorted(sweep.complete, key=lambda point: point.values[across]):
        text = f"{point.label} · {title} {point.values[across]:,.4g}"
        quality = point.values[sweep.measure]
        points.append(FrontPoint(point.values[across], quality, point.mark or "", text, point.front))
    return _with_band(front_figure(points, title, sweep.measure), sweep)


def table(sweep: SweepResult) -> pd.DataFrame:
    """The points that ran to the end, in the order of asking: point, and objectives and parameters by their names. A
    parameter that a point lacks is missing there; one that is not of numbers alone is text.
    """
    numeric = {parameter.path: is_numeric(sweep, parameter) for parameter in sweep.parameters}
    rows = []
    for point in sweep.complete:
        values = {path: value if numeric[path] else value_text(value) for path, value in point.parameters.items()}
        named = {parameter.label: values[parameter.path] for parameter in sweep.parameters if parameter.path in values}
        rows.append({"point": escape(point.label), **point.values, **named})
    return pd.DataFrame(rows)


def is_numeric(sweep: SweepResult, parameter: SweepParameter) -> bool:
    """Whether all values of a parameter are numbers."""
    values = [point.parameters[parameter.path] for point in sweep.complete if parameter.path in point.parameters]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def lines(sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The measure over a parameter, a line for each choice of the others; dashed: points that lack it."""
    frame, others = table(sweep), "others"
    labels = [parameter.label for parameter in choices(sweep) if parameter.path != over.path]
    frame[others] = [
        ", ".join(f"{name} {escape(value_text(row[name]))}" for name in labels if not pd.isna(row[name]))
        for row in frame.to_dict("records")
    ]
    there, lacking = frame.dropna(subset=[over.label]), frame[frame[over.label].isna()]
    numeric, few = is_numeric(sweep, over), frame[others].nunique() <= MOST_LINES
    drawn = there.sort_values(over.label) if numeric else there
    axes = {"x": over.label, "y": sweep.measure, "hover_name": "point", "log_x": over.log and numeric}
    colours = {"color": others, "color_discrete_sequence": PALETTE} if few else {"color_discrete_sequence": [TIE]}
    figure = px.scatter(drawn, **axes, **colours)
    if few and numeric:
        figure.update_traces(mode="lines+markers")
    for value, label in zip(lacking[sweep.measure], lacking[others], strict=True):
        figure.add_hline(y=value, line={"color": TIE, "dash": "dash"}, annotation_text=label)
    shown = few and there[others].nunique() > 1
    figure.update_layout(showlegend=shown, legend={"orientation": "h", "y": -0.25, "title": None})
    if over.log and numeric:
        tried = sorted(there[over.label].unique())
        figure.update_xaxes(tickvals=tried, ticktext=[f"{value:g}" for value in tried])
    return _with_band(figure, sweep)


def _with_band(figure: go.Figure, sweep: SweepResult) -> go.Figure:
    """The measure as the title of the axis, and the noise below the best, with what it means written into it."""
    figure.update_yaxes(title=f"{sweep.measure} on {sweep.corpus} dev")
    if sweep.noise_floor is not None:
        best = next(point.values[sweep.measure] for point in sweep.complete if point.label == sweep.best)
        words = {"text": "not distinguishable from the best", "font": {"size": 11}}
        shape = {"fillcolor": BAND, "line_width": 0, "layer": "below"}
        low = best - sweep.noise_floor.value
        figure.add_hrect(y0=low, y1=best, annotation=words, annotation_position="bottom right", **shape)
    return figure
