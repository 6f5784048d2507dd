"""Trainings over steps, tokens or hours: losses, learning rate, gradient norms, throughput; overlaid, by groups.

Each run is a line; a group of several runs has its mean too, thicker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from midmask.core.words import MISSING, clock
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.leaderboard.training import (
    LEARNING_RATE,
    PANELS,
    PHASES,
    THROUGHPUT,
    WAIT,
    Curves,
    curves,
    mean_line,
    parts_of,
    smooth,
    trainings,
    warnings_of,
)
from midmask.pages.context import PageContext
from midmask.pages.look import badge, choice, choices, draw, link, show_table, side_by_side
from midmask.sweep.figures import colour
from midmask.tracking.reading import TrackedRow

AXES = ("steps", "tokens", "hours")

FEW = 20
"""Points below which each is marked."""

LEAST_WAIT = 0.05
"""Where the axis of the share that is waited ends at least: less is nothing to look at."""

WARNING = "#dc2626"


@dataclass(frozen=True)
class Overlay:
    """Settings that all charts of the page share: runs with their groups, axis and smoothing."""

    runs: Sequence[Curves]
    groups: Sequence[str]
    across: str
    smoothing: int

    def colour(self, number: int) -> str:
        """Runs of a group share it."""
        return colour(list(dict.fromkeys(self.groups)).index(self.groups[number]))

    def has(self, key: str) -> bool:
        """Whether any run has a metric that is not 0 throughout."""
        return any(own.lines[key].any() for own in self.runs if key in own.lines)

    def positions(self, number: int) -> pd.Series:
        """Step -> where it lies on the axis, for the steps of which the run tells it."""
        own = self.runs[number]
        if self.across == "steps":
            steps = sorted({step for line in own.lines.values() for step in line.index})
            return pd.Series(steps, steps, dtype=float)
        return own.spent.get(self.across, pd.Series(dtype=float))

    def line(self, numbers: Sequence[int], key: str) -> pd.DataFrame:
        """Positions (`at`) and values of the mean of these runs' metric, smoothed; of one run, of itself."""
        points = 1 if key == LEARNING_RATE else self.smoothing
        values = mean_line([smooth(self.runs[number].lines[key], points) for number in numbers])
        places = mean_line([self.positions(number) for number in numbers])
        return pd.concat([places, values], axis=1, join="inner", keys=["at", "value"])


def panel(overlay: Overlay, title: str, key: str, *, log: bool) -> go.Figure:
    """One metric of all runs that have it."""
    figure = go.Figure()
    members: dict[str, list[int]] = {}
    for number, group in enumerate(overlay.groups):
        members.setdefault(group, []).append(number)
    for group, numbers in members.items():
        having = [number for number in numbers if key in overlay.runs[number].lines]
        for number in having:
            name = overlay.runs[number].run.name
            _add(figure, overlay.line([number], key), name, overlay.colour(number), faint=len(having) > 1)
        if len(having) > 1:
            _add(figure, overlay.line(having, key), f"mean of {group}", overlay.colour(having[0]))
    if key == "loss":
        _mark_warnings(figure, overlay)
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


def _add(figure: go.Figure, line: pd.DataFrame, name: str, colour: str, *, faint: bool = False) -> None:
    figure.add_scatter(
        x=line["at"].tolist(),
        y=line["value"].tolist(),
        mode="lines+markers" if len(line) < FEW else "lines",
        name=name,
        opacity=0.35 if faint else 1,
        line={"color": colour, "width": 1 if faint else 2},
        hovertemplate="%{x:,.5~g}: %{y:.4~g}<extra>" + escape(name[:40]) + "</extra>",
    )


def _mark_warnings(figure: go.Figure, overlay: Overlay) -> None:
    """A dotted line at each warning."""
    for number, own in enumerate(overlay.runs):
        positions = overlay.positions(number)
        for step, _ in warnings_of(own):
            if step in positions.index:
                figure.add_vline(x=positions[step], line={"color": WARNING, "dash": "dot", "width": 1})


MOST_RUNS = 200
"""Trainings to choose from, the newest; of more, a sweep's trials fill the list."""

SHOWN = 3
"""Runs that are shown if none is chosen."""

KEPT_SECONDS = 10
"""How long the curves of a run that has not ended are kept."""

ALONE = "each run"
GROUPS = ("recipe", "objective", "backbone", "pretrain_on", "protocol", "representation", "corpus", "seed", "job")
"""Tags by which runs can be grouped."""

SMOOTHING = {"none": 1, "5 points": 5, "15 points": 15, "51 points": 51}


def show(context: PageContext) -> None:
    phases = [phase for phase in PHASES if trainings(context.runs, phase)]
    if not phases:
        st.info("No training has been tracked in this store yet. Run one:")
        st.code("python jobs/pretrain.py --recipe retromae", language="bash", wrap_lines=True)
        return
    with st.sidebar:
        phase = choice("Phase", "phase", phases)
        found = trainings(context.runs, phase)
        named = {f"{run.name} {run.run_id[:8]}": run for run in found[:MOST_RUNS]}
        chosen = [named[name] for name in choices("Runs", "runs", list(named), list(named)[:SHOWN])]
        if len(found) > MOST_RUNS:
            st.caption(f"The newest {MOST_RUNS} of {len(found):,} trainings are listed.")
        across = choice("Across", "across", AXES)
        smoothing = SMOOTHING[choice("Smoothing", "smoothing", list(SMOOTHING))]
        groups = _groups(chosen)
        scale = choice("Axis of losses", "axis", ("linear", "log"))
    parts = parts_of(chosen, phase)
    told = [read(context, run, phase, ["loss", *parts, *PANELS.values()]) for run in chosen]
    overlay = Overlay(told, groups, across, smoothing)
    show_summaries(told, overlay, context)
    for own in told:
        for step, text in warnings_of(own):
            st.caption(f":material/warning: {markdown_text(f'{own.run.name}, step {step:,}: {text}')}")
    panels(overlay, {"Loss": "loss", **{_readable(name): name for name in parts}, **PANELS}, log=scale == "log")
    st.caption(
        "Each point is a mean over the steps since the one before. Time is that of the steps, without pauses. Cached "
        "runs are left out."
    )


def _groups(chosen: Sequence[TrackedRow]) -> list[str]:
    """Draws the choice of a group; the group of each run."""
    values = {name: {run.tags.get(f"midmask.{name}", "") for run in chosen} for name in GROUPS}
    by = choice("Colour by", "by", [ALONE, *(name for name in GROUPS if len(values[name]) > 1)])
    return [run.run_id if by == ALONE else run.tags.get(f"midmask.{by}", "") or MISSING for run in chosen]


def panels(overlay: Overlay, titles: Mapping[str, str], *, log: bool) -> None:
    """A chart for each metric that any run has, two beside each other."""
    known = {title: key for title, key in titles.items() if overlay.has(key)}
    for number, (title, key) in enumerate(known.items()):
        if number % 2 == 0:
            columns = side_by_side(f"{number}")
        with columns[number % 2]:
            draw(panel(overlay, title, key, log=log and key not in PANELS.values()), f"panel_{key}", 300)


def read(context: PageContext, run: TrackedRow, phase: str, names: Sequence[str]) -> Curves:
    """A run's curves; those of a run that has ended are read once."""
    reader = _ended if run.ended else _running
    try:
        return reader(context.uri, run.run_id, phase, tuple(names), run)
    except UserError as error:
        st.warning(f"{run.name}: {error}", icon=":material/cloud_off:")
        return Curves(run, phase, {})


@st.cache_resource(max_entries=256, show_spinner="Reading the curves")
def _ended(uri: str, run_id: str, phase: str, names: tuple[str, ...], _run: TrackedRow) -> Curves:
    return curves(uri, _run, phase, names)


@st.cache_resource(max_entries=64, ttl=KEPT_SECONDS, show_spinner=False)
def _running(uri: str, run_id: str, phase: str, names: tuple[str, ...], _run: TrackedRow) -> Curves:
    return curves(uri, _run, phase, names)


def show_summaries(told: Sequence[Curves], overlay: Overlay, context: PageContext) -> None:
    """One line a run, with the colour of its group."""
    lines = []
    for own in told:
        loss, speed, wait = (own.lines.get(key, pd.Series(dtype=float)) for key in ("loss", THROUGHPUT, WAIT))
        spent = own.spent.iloc[-1:].to_dict("list")
        lines.append(
            {
                "": "⬤",
                "Run": link(context.link(own.run), own.run.name),
                "Status": badge(own.run.status),
                "Last step": loss.index[-1] if len(loss) else None,
                "Last loss": loss.iloc[-1] if len(loss) else None,
                "Tokens": "".join(map(_short, spent.get("tokens", ()))) or MISSING,
                "Time": "".join(clock(3600 * hours) for hours in spent["hours"]) or MISSING,
                "Tokens a second": speed.median() if len(speed) else None,
                "Waiting": wait.mean() if len(wait) else None,
            }
        )
    forms = {"Last step": "{:,.0f}", "Last loss": "{:.4f}", "Tokens a second": "{:,.0f}", "Waiting": "{:.1%}"}
    colours = [overlay.colour(number) for number in range(len(told))]
    show_table(lines, "trainings", forms=forms, colours=colours)


def _short(count: float) -> str:
    """A count as people read it: 512, 1.5 k, 82 k, 1.2 M."""
    if count < 1e4:
        return f"{count:.0f}" if count < 1e3 else f"{count / 1e3:.1f} k"
    return f"{count / 1e3:,.0f} k" if count < 1e6 else f"{count / 1e6:,.1f} M"


def _readable(name: str) -> str:
    """`decoder_mlm` as a title: Decoder MLM."""
    words = name.replace("_", " ").replace("mlm", "MLM")
    return words[0].upper() + words[1:]
