"""Plots of a finished sweep, as PNG files: points in order, lines over a parameter, the Pareto front, importance. The
noise floor is a band below (or above) the best: what lies in it may be as good.
"""

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from midmask.sweep.sweep_file import SweepImportance, SweepParameter, SweepResult, band, is_numeric, lines_over, numbers

if TYPE_CHECKING:  # matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEST, PLAIN, PALE, BAND = "#0b6e4f", "#33415c", "#9aa5b1", "#0b6e4f22"
COLOURS = ("#33415c", "#c1666b", "#0b6e4f", "#d4a017", "#5f7ea8", "#8a5a83", "#6b6b6b", "#2a9d8f")

MARKED = COLOURS[1]

MOST_LINES = len(COLOURS)


def draw(sweep: SweepResult, folder: Path) -> list[Path]:
    """Writes the plots that there is something to draw for; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {"points": draw_points(sweep), "lines": draw_lines(sweep)}
    if len(sweep.objectives) > 1:
        drawn["pareto"] = draw_pareto(sweep)
    if sweep.importance:
        drawn["importance"] = draw_importance(sweep, sweep.importance)
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=130, metadata={"Software": None})
            paths.append(path)
    return paths


def _figure(sweep: SweepResult, width: float, height: float) -> "tuple[Figure, Axes]":
    """Without pyplot, which keeps figures and looks for a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(f"{sweep.name}: {sweep.recipe}", loc="left")
    return figure, axes


def _name(sweep: SweepResult, place: int = 0) -> str:
    measure = sweep.objectives[place].measure
    return f"{measure} on {sweep.corpus} {sweep.split}" if place == 0 else measure.replace("_", " ")


def draw_points(sweep: SweepResult) -> "Figure":
    """Every complete point, the best on top, with the means of the compared systems that are no points as lines."""
    sign = 1 if sweep.objectives[0].mode == "max" else -1
    ordered = sorted(sweep.complete, key=lambda point: sign * sweep.first(point))
    figure, axes = _figure(sweep, 7.5, 1.4 + 0.26 * len(ordered))
    if noise := band(sweep):
        axes.axvspan(*noise, color=BAND, linewidth=0, label="noise floor")
    for row, point in enumerate(ordered):
        axes.plot(point.seeds, [row] * len(point.seeds), "|", color=PALE)
        axes.plot(sweep.first(point), row, "o", color=PLAIN if point.distinguishable else BEST)
    points = {point.mark for point in ordered}
    others = [(one.label, one.means["dev"]) for one in sweep.systems[1:] if one.label not in points]
    for (label, mean), style in zip(others, cycle(("--", ":", "-.")), strict=False):
        axes.axvline(mean, color=PALE, linestyle=style, linewidth=1, label=label)
    axes.set_yticks(range(len(ordered)), [point.mark or point.brief for point in ordered], fontsize=8)
    axes.set_xlabel(f"{_name(sweep)} (green: not distinguishable from the best)")
    _legend(axes)
    return figure


def draw_lines(sweep: SweepResult) -> "Figure | None":
    """The first objective over the numeric parameter with most values: a line for each choice of the others, a dashed
    one for points that lack the parameter. Where that were too many lines, as of a random search, points alone.
    """
    over = _axis(sweep)
    if over is None:
        return None
    figure, axes = _figure(sweep, 7, 4.4)
    if noise := band(sweep):
        axes.axhspan(*noise, color=BAND, linewidth=0, label="noise floor")
    groups = lines_over(sweep, over.path)
    joined = len(groups) <= MOST_LINES
    for number, (label, points) in enumerate(groups.items()):
        colour, name = (COLOURS[number % len(COLOURS)], label) if joined else (PLAIN, "")
        there = [point for point in points if over.path in point.parameters]
        if there:
            places = [(point.parameters[over.path], sweep.first(point)) for point in there]
            axes.plot(*zip(*places, strict=True), marker="o", linestyle="-" if joined else "", color=colour, label=name)
        else:
            axes.axhline(sweep.first(points[0]), linestyle="--", linewidth=1.2, color=colour, label=name)
    if over.log:
        tried = numbers(sweep, over.path)
        axes.set_xscale("log")
        axes.set_xticks(tried, [f"{value:g}" for value in tried])
        axes.minorticks_off()
    axes.set_xlabel(over.label)
    axes.set_ylabel(_name(sweep))
    figure.legend(frameon=False, fontsize=8, loc="outside lower left", ncols=2)
    return figure


def _axis(sweep: SweepResult) -> SweepParameter | None:
    """The numeric parameter with most different values; of equal ones the last."""
    numeric = [one for one in sweep.parameters if is_numeric(sweep, one.path) and len(numbers(sweep, one.path)) > 1]
    return max(reversed(numeric), key=lambda one: len(numbers(sweep, one.path)), default=None)


def draw_pareto(sweep: SweepResult) -> "Figure":
    """The first objective over the second; the front as a line, marked points by their names."""
    across = sweep.objectives[1].measure
    figure, axes = _figure(sweep, 7, 4.6)
    if noise := band(sweep):
        axes.axhspan(*noise, color=BAND, linewidth=0, label="noise floor")
    rest = [(point.values[across], sweep.first(point)) for point in sweep.complete if not point.front]
    front = sorted((point.values[across], sweep.first(point)) for point in sweep.complete if point.front)
    if rest:
        axes.plot(*zip(*rest, strict=True), "o", color=PALE, label="beaten")
    axes.plot(*zip(*front, strict=True), "o-", color=BEST, drawstyle="steps-post", label="front")
    for point in sweep.complete:
        if point.mark:
            place = (point.values[across], sweep.first(point))
            axes.plot(*place, "o", markersize=11, markerfacecolor="none", markeredgecolor=MARKED)
            axes.annotate(point.mark, place, xytext=(7, -11), textcoords="offset points", fontsize=9, color=MARKED)
    axes.set_xlabel(_name(sweep, 1))
    axes.set_ylabel(_name(sweep))
    _legend(axes)
    return figure


def draw_importance(sweep: SweepResult, found: SweepImportance) -> "Figure":
    names = {one.path: one.label for one in sweep.parameters}
    shares = list(found.shares.items())[::-1]
    figure, axes = _figure(sweep, 6, 1.2 + 0.35 * len(shares))
    axes.barh([names[path] for path, _ in shares], [share for _, share in shares], color=PLAIN)
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"share of importance ({found.evaluator}, {found.trials} trials)")
    return figure


def _legend(axes: "Axes") -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
