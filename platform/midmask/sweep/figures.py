"""Figures of a finished sweep, for the Sweep page and for its tracked run; and the chart of quality over cost.

Optuna draws what it knows, from a study that is made of `sweep.json` again. The band in a figure is the sweep's noise:
what lies in it may be as good as the best.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from midmask.sweep.sweep_file import (
    SweepImportance,
    SweepMeasure,
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

if TYPE_CHECKING:  # Optuna is imported where it draws
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Axis = tuple[str, Sequence[SweepValue]]

PALETTE = ("#0d9488", "#ea580c", "#6366f1", "#db2777", "#ca8a04", "#0284c7", "#65a30d", "#8b5cf6")
"""Colours of runs, in the order in which they were chosen; each can be seen on a light and on a dark ground."""

WIN, LOSS, TIE = PALETTE[0], PALETTE[1], "#94a3b8"
BAND = "rgba(13,148,136,.2)"

MOST_LINES = 8

NEAR = 0.15
"""Share of the axis near its ends in which a label stands on the other side of its point, to be seen whole."""

FEW = 12
"""Trials of which each has its number at the axis."""

FILE = "figures.html"


def colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


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
        textposition=_sides([math.log(point.cost) if log else point.cost for point in points]),
        cliponaxis=False,
        marker={"size": 11, "color": [WIN if point.on_front else TIE for point in points]},
        customdata=[escape(point.text) for point in points],
        hovertemplate="%{customdata}<br>%{y:.4f}<extra></extra>",
    )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title=cost, type="log" if log else "linear", zeroline=False)
    figure.update_yaxes(title=quality)
    return figure


def _sides(places: Sequence[float]) -> list[str]:
    """Where each label stands: away from the end of the axis that its point is near."""
    low, reach = min(places), max(places) - min(places) or 1.0
    shares = [(place - low) / reach for place in places]
    return ["top right" if share < NEAR else "top left" if share > 1 - NEAR else "top center" for share in shares]


def pareto(sweep: SweepResult) -> go.Figure:
    """The first objective over the second, with the names of marked points."""
    across = sweep.objectives[1].measure
    title, points = _title(sweep.objectives[1]), []
    for point in sorted(sweep.complete, key=lambda point: point.values[across]):
        text = f"{point.label} · {title} {point.values[across]:,.4g}"
        points.append(FrontPoint(point.values[across], sweep.first(point), point.mark or "", text, point.front))
    return _with_band(front_figure(points, title, measure_title(sweep)), sweep)


def lines(sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The first objective over a parameter, a line for each choice of the others; dashed: points that lack it."""
    figure = go.Figure()
    groups = lines_over(sweep, over.path)
    few, numeric = len(groups) <= MOST_LINES, is_numeric(sweep, over.path)
    for number, (label, points) in enumerate(groups.items()):
        there = [point for point in points if over.path in point.parameters]
        if not there:
            dashed = {"color": colour(number), "dash": "dash"}
            said = {"annotation_text": escape(label), "annotation_font_size": 11}
            figure.add_hline(y=sweep.first(points[0]), line=dashed, **said)
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
    figure.update_layout(showlegend=few and len(groups) > 1, legend={"orientation": "h", "y": -0.25})
    figure.update_xaxes(title=over.label, type="linear" if numeric else "category")
    return _with_band(_with_ticks(figure, sweep, over), sweep)


def _with_ticks(figure: go.Figure, sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The values that were tried as ticks, where the axis counts powers."""
    if over.log and is_numeric(sweep, over.path):
        tried = numbers(sweep, over.path)
        figure.update_xaxes(type="log", tickvals=tried, ticktext=[value_text(value) for value in tried])
    return figure


def _with_band(figure: go.Figure, sweep: SweepResult) -> go.Figure:
    """The measure as the title of the axis, and the noise below the best, with what it means written into it."""
    figure.update_yaxes(title=measure_title(sweep))
    if noise := band(sweep):
        words = {"text": "not distinguishable from the best", "font": {"size": 11}}
        place = "bottom right" if sweep.objectives[0].mode == "max" else "top right"
        shape = {"fillcolor": BAND, "line_width": 0, "layer": "below"}
        figure.add_hrect(y0=noise[0], y1=noise[1], annotation=words, annotation_position=place, **shape)
    return figure


def measure_title(sweep: SweepResult) -> str:
    return f"{sweep.objectives[0].measure} on {sweep.corpus} {sweep.split}"


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


def importance(sweep: SweepResult, found: SweepImportance) -> go.Figure:
    """The shares as the sweep worked them out, the largest on top."""
    labels = {one.path: one.label for one in sweep.parameters}
    shares = {labels.get(path, path): share for path, share in reversed(found.shares.items())}
    texts = [f"{share:.0%}" for share in shares.values()]
    bars = go.Bar(x=[*shares.values()], y=[*shares], orientation="h", marker={"color": WIN}, text=texts)
    figure = go.Figure(bars.update(hovertemplate="%{y}: %{x:.1%}<extra></extra>"))
    figure.update_xaxes(range=[0, 1], tickformat=".0%", title=f"share of the importance, by {found.evaluator}")
    return figure


class _Word(str):
    """A choice of a category. Optuna writes choices onto its axes as Python would."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def study_of(sweep: SweepResult) -> "Study":
    """The sweep's trials as an Optuna study in memory, in the order of asking, by the first objective; parameters bear
    their labels, and the other objectives stand among them.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if sweep.objectives[0].mode == "max" else "minimize")
    study.add_trials([_trial(sweep, point) for point in sweep.points])
    return study


def _trial(sweep: SweepResult, point: SweepPoint) -> "FrozenTrial":
    from optuna.distributions import FloatDistribution
    from optuna.trial import TrialState, create_trial

    chosen = [one for one in sweep.parameters if one.path in point.parameters]
    others = {_title(one): point.values[one.measure] for one in sweep.objectives[1:] if point.complete}
    reached = [*point.probes, sweep.first(point)] if point.complete else point.probes
    return create_trial(
        state=TrialState.COMPLETE if point.complete else TrialState.PRUNED,
        params={one.label: _value(sweep, one, point) for one in chosen} | others,
        distributions={one.label: _distribution(sweep, one) for one in chosen}
        | {name: FloatDistribution(value, value) for name, value in others.items()},
        value=sweep.first(point) if point.complete else None,
        intermediate_values=dict(enumerate(reached, start=1)),
    )


def _value(sweep: SweepResult, one: SweepParameter, point: SweepPoint) -> SweepValue:
    value = point.parameters[one.path]
    return value if is_numeric(sweep, one.path) else _Word(value_text(value))


def _distribution(sweep: SweepResult, one: SweepParameter) -> "BaseDistribution":
    """The range, or the choices, of a parameter over all points."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    values = [point.parameters[one.path] for point in sweep.points if one.path in point.parameters]
    if is_numeric(sweep, one.path):
        tried = [float(value) for value in values if isinstance(value, int | float)]
        return FloatDistribution(min(tried), max(tried), log=one.log)
    return CategoricalDistribution([_Word(text) for text in dict.fromkeys(map(value_text, values))])


def history(sweep: SweepResult) -> go.Figure:
    """The first objective of each trial, and the best up to there."""
    from optuna.visualization import plot_optimization_history

    figure = plot_optimization_history(study_of(sweep), target_name=measure_title(sweep))
    trials, best, *_ = figure.data
    trials.update(_marks([point.label for point in sweep.complete]))
    best.update(name="best so far", line={"color": LOSS, "shape": "hv", "width": 2})
    figure.update_layout(title=None, showlegend=False)
    step = {"tickformat": "d", "dtick": 1 if len(sweep.points) <= FEW else None}
    figure.update_xaxes(title="trial, in the order of asking", **step)
    return _with_band(figure, sweep)


def rungs(sweep: SweepResult) -> go.Figure:
    """The first objective of each trial at the rungs that it reached, and at the end; grey: pruned."""
    from optuna.visualization import plot_intermediate_values

    figure = plot_intermediate_values(study_of(sweep))
    for line, point in zip(figure.data, (one for one in sweep.points if one.probes or one.complete), strict=True):
        line.update(name=point.label, line={"color": WIN if point.complete else TIE}, marker={"maxdisplayed": 0})
    figure.update_layout(title=None, showlegend=False)
    figure.update_xaxes(title="rung", tickformat="d", dtick=1)
    figure.update_yaxes(title=measure_title(sweep))
    return figure


def slice_over(sweep: SweepResult, over: SweepParameter) -> go.Figure:
    """The first objective of all trials over one parameter, whatever the others are."""
    from optuna.visualization import plot_slice

    figure = plot_slice(study_of(sweep), [over.label])
    (trials,) = figure.data
    trials.update(_marks([sweep.points[number].label for number in trials.marker.color]))
    figure.update_layout(title=None)
    return _with_band(_with_ticks(figure, sweep, over), sweep)


def _marks(labels: Sequence[str]) -> dict[str, object]:
    """The look of points, in place of Optuna's colours by number."""
    marker = {"color": WIN, "size": 8, "opacity": 0.8, "showscale": False, "line": {"width": 0}}
    return {"marker": marker, "text": list(labels), "hovertemplate": "%{text}<br>%{y:.4f}<extra></extra>"}


def parallel(sweep: SweepResult) -> go.Figure:
    """A line a point through all that was chosen and the other objectives; grey: worse than the best."""
    from optuna.visualization import plot_parallel_coordinate

    axes = [*(one.label for one in choices(sweep)), *(_title(one) for one in sweep.objectives[1:])]
    figure = plot_parallel_coordinate(study_of(sweep), axes, target_name=sweep.objectives[0].measure)
    figure.data = figure.data[:-1]  # the scale of Optuna's colours
    for line, point in zip(figure.data, sweep.complete, strict=True):
        line.update(line={"color": TIE if point.distinguishable else WIN}, opacity=0.7)
    figure.update_annotations(font={"color": TIE, "size": 11})
    figure.update_layout(title=None, plot_bgcolor="rgba(0,0,0,0)")
    return figure


def _title(objective: SweepMeasure) -> str:
    """An objective beside the first as an axis says it."""
    return objective.measure.replace("_", " ")


def figures_of(sweep: SweepResult) -> dict[str, go.Figure]:
    """Title -> figure, of all that there is something to draw for beside the lines over a chosen parameter."""
    figures = {"History": history(sweep)}
    if any(point.probes for point in sweep.complete):
        figures["At the rungs"] = rungs(sweep)
    if len(sweep.objectives) > 1:
        figures["Pareto front"] = pareto(sweep)
    if sweep.importance:
        figures["Importance"] = importance(sweep, sweep.importance)
    return figures | {f"Over {one.label}": slice_over(sweep, one) for one in numeric_first(sweep)}


def numeric_first(sweep: SweepResult) -> list[SweepParameter]:
    """The parameters that were varied, those of numbers first."""
    return sorted(choices(sweep), key=lambda one: not is_numeric(sweep, one.path))


def write(sweep: SweepResult, folder: Path) -> Path:
    """Writes all figures as one HTML file that asks no other host; its path."""
    first = {
        f"{one.label}, a line for each choice of the others": lines(sweep, one) for one in numeric_first(sweep)[:1]
    }
    parts = [f"<h1>{escape(sweep.name)}: {escape(sweep.recipe)}</h1>"]
    for number, (title, figure) in enumerate({**first, **figures_of(sweep)}.items()):
        figure.update_layout(template="plotly_white")
        html = figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"figure{number}")
        parts += [f"<h2>{escape(title)}</h2>", html]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    head = f'<meta charset="utf-8"><title>{escape(sweep.name)}</title><style>body {{font-family: sans-serif}}</style>'
    path.write_text(f"<!doctype html><html lang=en>{head}{''.join(parts)}</html>\n", encoding="utf-8")
    return path
