"""Plots of a finished sweep from its data (`cluster.summary`), as PNG files: points in order, lines over a parameter,
the Pareto front, importance. The noise floor is a band below (or above) the best: what lies in it may be as good.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Summary = Mapping[str, Any]

BEST, PLAIN, PALE, BAND = "#0b6e4f", "#33415c", "#9aa5b1", "#0b6e4f22"
COLOURS = ("#33415c", "#c1666b", "#0b6e4f", "#d4a017", "#5f7ea8", "#8a5a83", "#6b6b6b", "#2a9d8f")

MARKED = COLOURS[1]

MOST_LINES = len(COLOURS)


def draw(summary: Summary, folder: Path) -> list[Path]:
    """Writes the plots that there is something to draw for; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    complete = [point for point in summary["points"] if point["complete"]]
    drawn = {"points": _points(summary, complete), "lines": _lines(summary, complete)}
    if len(summary["objectives"]) > 1:
        drawn["pareto"] = _pareto(summary, complete)
    if summary["importance"]:
        drawn["importance"] = _importance(summary)
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=130, metadata={"Software": None})
            paths.append(path)
    return paths


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """Without pyplot, which keeps figures and looks for a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _first(summary: Summary, point: Mapping[str, Any]) -> float:
    return float(point["values"][summary["objectives"][0]["measure"]])


def _band(summary: Summary, complete: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The values that lie within the noise floor of the best."""
    if not summary["noise_floor"] or not complete:
        return None
    best = next(_first(summary, point) for point in complete if point["label"] == summary["best"])
    sign = 1 if summary["objectives"][0]["mode"] == "max" else -1
    return tuple(sorted((best, best - sign * summary["noise_floor"]["value"])))


def _name(summary: Summary, place: int = 0) -> str:
    measure = summary["objectives"][place]["measure"]
    return f"{measure} on {summary['corpus']} {summary['split']}" if place == 0 else str(measure).replace("_", " ")


def _title(summary: Summary) -> str:
    return f"{summary['name']}: {summary['recipe']}"


def _points(summary: Summary, complete: Sequence[Mapping[str, Any]]) -> "Figure":
    """Every complete point, the best on top, with the compared systems' means as lines."""
    sign = 1 if summary["objectives"][0]["mode"] == "max" else -1
    ordered = sorted(complete, key=lambda point: sign * _first(summary, point))
    figure, axes = _figure(7.5, 1.4 + 0.26 * len(ordered))
    if band := _band(summary, complete):
        axes.axvspan(*band, color=BAND, linewidth=0, label="noise floor")
    for row, point in enumerate(ordered):
        same = point["to_best"] is None or not point["to_best"]["distinguishable"]
        axes.plot(point["seeds"], [row] * len(point["seeds"]), "|", color=PALE)
        axes.plot(_first(summary, point), row, "o", color=BEST if same else PLAIN)
    for system, style in zip(summary["systems"][1:], ("--", ":", "-."), strict=False):
        mean = sum(system["dev"]) / len(system["dev"])
        axes.axvline(mean, color=PALE, linestyle=style, linewidth=1, label=system["label"])
    axes.set_yticks(range(len(ordered)), [point["mark"] or point["brief"] for point in ordered], fontsize=8)
    axes.set_xlabel(f"{_name(summary)} (green: not distinguishable from the best)")
    axes.set_title(_title(summary), loc="left")
    _legend(axes)
    return figure


def _lines(summary: Summary, complete: Sequence[Mapping[str, Any]]) -> "Figure | None":
    """The first objective over the numeric parameter with most values: a line for each choice of the others, a dashed
    one for points that lack the parameter. Where that were too many lines, as of a random search, points alone.
    """
    over = _axis(summary, complete)
    if over is None:
        return None
    figure, axes = _figure(7, 4.4)
    if band := _band(summary, complete):
        axes.axhspan(*band, color=BAND, linewidth=0, label="noise floor")
    groups = _groups(summary, complete, over["path"])
    joined = len(groups) <= MOST_LINES
    for number, (label, points) in enumerate(groups.items()):
        colour, name = (COLOURS[number % len(COLOURS)], label) if joined else (PLAIN, "")
        there = [point for point in points if over["path"] in point["parameters"]]
        if there:
            places = sorted((point["parameters"][over["path"]], _first(summary, point)) for point in there)
            axes.plot(*zip(*places, strict=True), marker="o", linestyle="-" if joined else "", color=colour, label=name)
        else:
            axes.axhline(_first(summary, points[0]), linestyle="--", linewidth=1.2, color=colour, label=name)
    if over["log"]:
        axes.set_xscale("log")
    axes.set_xlabel(over["label"])
    axes.set_ylabel(_name(summary))
    axes.set_title(_title(summary), loc="left")
    _legend(axes, outside=True)
    return figure


def _axis(summary: Summary, complete: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The numeric parameter with most different values; of equal ones the last."""
    values: dict[str, set[float]] = {}
    for point in complete:
        for path, value in point["parameters"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(path, set()).add(value)
    numeric = [one for one in summary["parameters"] if len(values.get(one["path"], ())) > 1]
    return max(reversed(numeric), key=lambda one: len(values[one["path"]]), default=None)


def _groups(summary: Summary, complete: Sequence[Mapping[str, Any]], over: str) -> dict[str, list[Mapping[str, Any]]]:
    """Points by the parameters other than `over` that have a choice."""
    names = {one["path"]: one["label"] for one in summary["parameters"] if not one["constant"] and one["path"] != over}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for point in complete:
        own = {names[path]: value for path, value in point["parameters"].items() if path in names}
        label = ", ".join(f"{name} {'none' if value is None else value}" for name, value in own.items())
        groups.setdefault(label, []).append(point)
    return groups


def _pareto(summary: Summary, complete: Sequence[Mapping[str, Any]]) -> "Figure":
    """The first objective over the second; the front as a line, marked points by their names."""
    across = summary["objectives"][1]["measure"]
    figure, axes = _figure(7, 4.6)
    if band := _band(summary, complete):
        axes.axhspan(*band, color=BAND, linewidth=0, label="noise floor")
    rest = [(point["values"][across], _first(summary, point)) for point in complete if not point["front"]]
    front = sorted((point["values"][across], _first(summary, point)) for point in complete if point["front"])
    if rest:
        axes.plot(*zip(*rest, strict=True), "o", color=PALE, label="beaten")
    axes.plot(*zip(*front, strict=True), "o-", color=BEST, drawstyle="steps-post", label="front")
    for point in complete:
        if point["mark"]:
            place = (point["values"][across], _first(summary, point))
            axes.plot(*place, "o", markersize=11, markerfacecolor="none", markeredgecolor=MARKED)
            axes.annotate(
                point["mark"], place, xytext=(7, -11), textcoords="offset points", fontsize=9, color="#c1666b"
            )
    axes.set_xlabel(_name(summary, 1))
    axes.set_ylabel(_name(summary))
    axes.set_title(_title(summary), loc="left")
    _legend(axes)
    return figure


def _importance(summary: Summary) -> "Figure":
    names = {one["path"]: one["label"] for one in summary["parameters"]}
    shares = list(reversed(summary["importance"]["shares"].items()))
    figure, axes = _figure(6, 1.2 + 0.35 * len(shares))
    axes.barh([names[path] for path, _ in shares], [share for _, share in shares], color=PLAIN)
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"share of importance (PED-ANOVA, {summary['importance']['trials']} trials)")
    axes.set_title(_title(summary), loc="left")
    return figure


def _legend(axes: "Axes", *, outside: bool = False) -> None:
    where = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if outside else {"loc": "best"}
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, **where)
