"""Figures of a finished sweep: lines, surface, parallel coordinates, importance, Pareto front; bands are its noise.

Also its trials in the order in which they were asked for, and over each parameter; pruned ones in grey.
"""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

import plotly.graph_objects as go

from midmask.pages.look import LOSS, TIE, WIN, colour
from midmask.sweep.sweep_file import (
    SweepImportance,
    SweepParameter,
    SweepPoint,
    SweepResult,
    SweepValue,
    band,
    choices,
    is_numeric,
    lines_over,
    numbers,
    surface_over,
    value_text,
)

Axis = tuple[str, Sequence[SweepValue]]

MOST_LINES = 8
BAND = "rgba(13,148,136,.2)"


def lines(sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The first objective over a parameter, a line for each choice of the others; dashed: points that lack it."""
    figure = go.Figure()
    groups = lines_over(sweep, over.path)
    few = len(groups) <= MOST_LINES
    numeric = parameter_axis(figure, sweep, over)
    for number, (label, points) in enumerate(groups.items()):
        there = [point for point in points if over.path in point.parameters]
        if not there:
            _level(figure, sweep, points[0], label, number)
            continue
        figure.add_scatter(
            x=[point.parameters[over.path] if numeric else value_text(point.parameters[over.path]) for point in there],
            y=[sweep.first(point) for point in there],
            mode="lines+markers" if few and numeric else "markers",
            name=label or over.label,
            line={"color": colour(number) if few else TIE},
            text=[point.label for point in there],
            hovertemplate="%{text}<br>%{y:.4f}<extra></extra>",
        )
    add_band(figure, sweep)
    figure.update_layout(showlegend=few and len(groups) > 1, legend={"orientation": "h", "y": -0.25})
    figure.update_yaxes(title=measure_title(sweep))
    return figure


def parameter_axis(figure: go.Figure, sweep: SweepResult, over: SweepParameter) -> bool:
    """Makes the figure's axis that of a parameter; whether that is one of numbers, not of categories."""
    numeric = is_numeric(sweep, over.path)
    figure.update_xaxes(title=over.label, type="log" if over.log and numeric else "linear" if numeric else "category")
    if over.log and numeric:
        tried = numbers(sweep, over.path)
        figure.update_xaxes(tickvals=tried, ticktext=[value_text(value) for value in tried])
    return numeric


def _level(figure: go.Figure, sweep: SweepResult, point: SweepPoint, label: str, number: int) -> None:
    value = sweep.first(point)
    figure.add_hline(
        y=value, line={"color": colour(number), "dash": "dash"}, annotation_text=escape(label), annotation_font_size=11
    )


def surface(sweep: SweepResult, across: SweepParameter, up: SweepParameter) -> go.Figure:
    """The first objective over two parameters; the colour's range tells how much of it is noise."""
    columns, rows, grid = surface_over(sweep, across.path, up.path)
    scale = "Teal" if sweep.objectives[0].mode == "max" else "Teal_r"
    return heatmap(grid, (across.label, columns), (up.label, rows), scale=scale)


def heatmap(
    grid: Sequence[Sequence[float | None]], across: Axis, up: Axis, *, scale: str = "Teal", title: str = ""
) -> go.Figure:
    """A measure over two parameters.

    Args:
        grid: a row for each value of `up`; None where nothing was tried.
        across, up: label and values of the axes.
        title: of the colour bar.
    """
    texts = [["" if value is None else f"{value:.4f}" for value in line] for line in grid]
    figure = go.Figure(
        go.Heatmap(
            x=[value_text(value) for value in across[1]],
            y=[value_text(value) for value in up[1]],
            z=grid,
            text=texts,
            texttemplate="%{text}",
            colorscale=scale,
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": title}, "thickness": 12},
            hovertemplate=f"{escape(across[0])} %{{x}}, {escape(up[0])} %{{y}}: %{{z:.4f}}<extra></extra>",
        )
    )
    figure.update_xaxes(title=across[0], type="category", showgrid=False)
    figure.update_yaxes(title=up[0], type="category", showgrid=False)
    return figure


def parallel(sweep: SweepResult) -> go.Figure:
    """A line a point through all that was chosen, coloured by the first objective."""
    axes = [_axis(sweep, one) for one in choices(sweep)]
    for objective in sweep.objectives:
        axes.append(
            {"label": objective.measure, "values": [point.values[objective.measure] for point in sweep.complete]}
        )
    best_first = sweep.objectives[0].mode == "max"
    line = {
        "color": [sweep.first(point) for point in sweep.complete],
        "colorscale": "Teal",
        "reversescale": not best_first,
    }
    figure = go.Figure(go.Parcoords(dimensions=axes, line=line, labelangle=-12, labelside="top"))
    figure.update_layout(font={"size": 12})
    return figure


def _axis(sweep: SweepResult, one: SweepParameter) -> dict[str, object]:
    """Values that are no numbers, or absent, as ticks."""
    found = [point.parameters.get(one.path, "absent") for point in sweep.complete]
    if is_numeric(sweep, one.path) and "absent" not in found:
        return {"label": one.label, "values": found}
    names = list(dict.fromkeys(value_text(value) for value in found))
    places = [names.index(value_text(value)) for value in found]
    return {"label": one.label, "values": places, "tickvals": list(range(len(names))), "ticktext": names}


def importance(sweep: SweepResult, found: SweepImportance) -> go.Figure:
    labels = {one.path: one.label for one in sweep.parameters}
    shares = list(reversed(found.shares.items()))
    figure = go.Figure(
        go.Bar(
            x=[share for _, share in shares],
            y=[labels.get(path, path) for path, _ in shares],
            orientation="h",
            marker={"color": WIN},
            text=[f"{share:.0%}" for _, share in shares],
            hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )
    )
    figure.update_xaxes(range=[0, 1], tickformat=".0%", title=f"share of the importance, by {found.evaluator}")
    return figure


def pareto(sweep: SweepResult) -> go.Figure:
    """The first objective over the second: what nothing beats in both is joined; named points are ringed."""
    across, up = sweep.objectives[1].measure, sweep.objectives[0].measure
    front = sorted((point for point in sweep.complete if point.front), key=lambda point: point.values[across])
    beaten = [point for point in sweep.complete if not point.front]
    figure = go.Figure()
    for name, points, tint in (("beaten", beaten, TIE), ("front", front, WIN)):
        figure.add_scatter(
            x=[point.values[across] for point in points],
            y=[point.values[up] for point in points],
            mode="lines+markers" if name == "front" else "markers",
            line={"color": tint, "shape": "hv"},
            marker={"size": 9},
            name=name,
            text=[point.label for point in points],
            hovertemplate="%{text}<br>%{x:,.4~g}, %{y:.4f}<extra>" + name + "</extra>",
        )
    marked = [point for point in sweep.complete if point.mark]
    figure.add_scatter(
        x=[point.values[across] for point in marked],
        y=[point.values[up] for point in marked],
        mode="markers+text",
        name="named",
        text=[point.mark for point in marked],
        textposition="bottom right",
        marker={"size": 16, "symbol": "circle-open", "color": LOSS, "line": {"width": 2}},
        hoverinfo="skip",
    )
    add_band(figure, sweep)
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(title=across.replace("_", " "))
    figure.update_yaxes(title=measure_title(sweep))
    return figure


def add_band(figure: go.Figure, sweep: SweepResult) -> None:
    """What lies in it may be as good as the best, which is written into it."""
    if noise := band(sweep):
        words = {"text": "not distinguishable from the best", "font": {"size": 11}}
        place = "bottom right" if sweep.objectives[0].mode == "max" else "top right"
        figure.add_hrect(
            y0=noise[0],
            y1=noise[1],
            fillcolor=BAND,
            line_width=0,
            layer="below",
            annotation=words,
            annotation_position=place,
        )


def measure_title(sweep: SweepResult) -> str:
    return f"{sweep.objectives[0].measure} on {sweep.corpus} {sweep.split}"


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
