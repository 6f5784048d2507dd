"""Charts of trainings: each run as a line; of a group of several runs the mean too, thicker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

import plotly.graph_objects as go

from charts import colour
from midmask.leaderboard.training import (
    LEARNING_RATE,
    MOST_POINTS,
    THROUGHPUT,
    WAIT,
    Curves,
    mean_history,
    smooth,
    thin,
)
from midmask.leaderboard.training_events import TrainingEvent

AXES: Mapping[str, Callable[[Curves, int], float | None]] = {
    "steps": lambda own, step: step,
    "tokens": lambda own, step: own.tokens.get(step),
    "hours": lambda own, step: own.hours.get(step),
}
"""What a chart's axis counts -> where a step of a run lies on it, None where the run does not tell."""

FEW = 20
"""Points below which each is marked."""

LEAST_WAIT = 0.05
"""Where the axis of the share that is waited ends at least: less is nothing to look at."""

EVENT_COLOURS = {"resumed": "#94a3b8", "warning": "#dc2626"}


@dataclass(frozen=True)
class Overlay:
    """What all charts of the page share: the runs, and of each its group and its events; the axis and the smoothing."""

    runs: Sequence[Curves]
    groups: Sequence[str]
    events: Sequence[Sequence[TrainingEvent]]
    across: str
    smoothing: int

    def colour_number(self, number: int) -> int:
        """Runs of a group share it."""
        return list(dict.fromkeys(self.groups)).index(self.groups[number])

    def has(self, key: str) -> bool:
        """Whether any run has a metric that is not 0 throughout."""
        return any(point.value for own in self.runs for point in own.lines.get(key, []))

    def line(self, numbers: Sequence[int], key: str) -> list[tuple[float, float]]:
        """(position, value) of the mean of these runs' metric, smoothed and thinned; of one run, of itself."""
        own = [self.runs[number] for number in numbers]
        points = 1 if key == LEARNING_RATE else self.smoothing
        mean = mean_history([smooth(one.lines.get(key, []), points) for one in own])
        line = []
        for point in thin(mean, MOST_POINTS):
            places = [at for one in own if (at := AXES[self.across](one, point.step)) is not None]
            if len(places) == len(own):
                line.append((fmean(places), point.value))
        return line


def panel(overlay: Overlay, title: str, key: str, *, log: bool) -> go.Figure:
    """One metric of all runs that have it."""
    figure = go.Figure()
    members: dict[str, list[int]] = {}
    for number, group in enumerate(overlay.groups):
        members.setdefault(group, []).append(number)
    for group, numbers in members.items():
        lines = {number: line for number in numbers if (line := overlay.line([number], key))}
        for number, line in lines.items():
            _add(figure, line, overlay.runs[number].run.name, overlay.colour_number(number), faint=len(lines) > 1)
        if len(lines) > 1:
            _add(figure, overlay.line(list(lines), key), f"mean of {group}", overlay.colour_number(numbers[0]))
    if key == "loss":
        _events(figure, overlay)
    figure.update_layout(showlegend=False, title={"text": title, "font": {"size": 14}, "x": 0})
    title_of_axis = {"text": overlay.across, "font": {"size": 11}, "standoff": 4}
    counted = "~s" if overlay.across == "tokens" else None
    figure.update_xaxes(title=title_of_axis, rangemode="tozero", tickformat=counted)
    shape = {WAIT: "~%", LEARNING_RATE: ".2~e"}.get(key)
    figure.update_yaxes(title=None, type="log" if log else "linear", tickformat=shape)
    if key in (THROUGHPUT, WAIT):
        figure.update_yaxes(rangemode="tozero")
    if key == WAIT:
        highest = max((max(line.y, default=0.0) for line in figure.data), default=0.0)
        figure.update_yaxes(range=[0, max(LEAST_WAIT, 1.05 * highest)])
    return figure


def _add(
    figure: go.Figure, line: Sequence[tuple[float, float]], name: str, number: int, *, faint: bool = False
) -> None:
    figure.add_scatter(
        x=[at for at, _ in line],
        y=[value for _, value in line],
        mode="lines+markers" if len(line) < FEW else "lines",
        name=name,
        opacity=0.35 if faint else 1,
        line={"color": colour(number), "width": 1 if faint else 2},
        hovertemplate="%{x:,.5~g}: %{y:.4~g}<extra>" + escape(name[:40]) + "</extra>",
    )


def _events(figure: go.Figure, overlay: Overlay) -> None:
    """A dotted line at each event."""
    for own, found in zip(overlay.runs, overlay.events, strict=True):
        for event in found:
            at = AXES[overlay.across](own, event.step)
            if at is not None:
                line = {"color": EVENT_COLOURS[event.kind], "dash": "dot", "width": 1}
                text = {"text": event.kind, "textangle": -90, "font": {"size": 10, "color": EVENT_COLOURS[event.kind]}}
                figure.add_vline(x=at, line=line, annotation=text, annotation_position="top right")
