"""Trainings over their steps: the loss and its parts, throughput, and the time they waited for data; overlaid."""

from collections.abc import Sequence
from html import escape
from statistics import fmean, median

import plotly.graph_objects as go
import streamlit as st

from charts import colour, draw, side_by_side, swatch
from context import PageContext
from look import NONE, choice, choices, link, table
from midmask.errors import UserError
from midmask.leaderboard.training import PANELS, PHASES, THROUGHPUT, WAIT, Curves, curves, parts_of, trainings
from midmask.tracking import TrackedRow

MOST_RUNS = 200
"""Trainings to choose from, the newest; of more, a sweep's trials fill the list."""

SHOWN = 3
"""Runs that are shown if none is chosen."""

KEPT_SECONDS = 10
"""How long the curves of a run that has not ended are kept."""


def show(context: PageContext) -> None:
    phases = [phase for phase in PHASES if trainings(context.runs, phase)]
    if not phases:
        st.info("No training has been tracked in this store yet. Run one:")
        st.code("python jobs/pretrain.py --recipe retromae", language="bash", wrap_lines=True)
        return
    first, second, third = st.columns([2, 5, 2])
    with first:
        phase = choice("Phase", "phase", phases)
    found = trainings(context.runs, phase)
    named = {f"{run.name} {run.run_id[:8]}": run for run in found[:MOST_RUNS]}
    with second:
        chosen = choices("Runs", "runs", list(named), list(named)[:SHOWN])
    with third:
        scale = choice("Axis of losses", "axis", ("linear", "log"))
    if len(found) > MOST_RUNS:
        st.caption(f"The newest {MOST_RUNS} of {len(found):,} trainings are listed.")
    parts = parts_of((named[name] for name in chosen), phase)
    told = [read(context, named[name], phase, ["loss", *parts, *PANELS.values()]) for name in chosen]
    st.html(summaries(told, [named[name] for name in chosen], context))
    panels = {"Loss": "loss", **{_readable(name): name for name in parts}, **PANELS}
    columns = side_by_side()
    for number, (title, key) in enumerate(panels.items()):
        with columns[number % 2]:
            is_loss = key not in (THROUGHPUT, WAIT)
            panel(told, title, key, log=scale == "log" and is_loss)
    longest = max((own.told for own in told), default=0)
    st.caption(
        f"Each point is a mean over the steps since the one before. Of long runs ({longest:,} points here at most) the "
        "lowest and the highest of each part are drawn, so no spike is lost. Cached runs are left out."
    )


def read(context: PageContext, run: TrackedRow, phase: str, names: Sequence[str]) -> Curves:
    """A run's curves; those of a run that has ended are read once."""
    reader = _ended if run.ended else _running
    try:
        return reader(context.uri, run.run_id, phase, tuple(names), run)
    except UserError as error:
        st.warning(f"{run.name}: {error}", icon=":material/cloud_off:")
        return Curves(run, phase, {}, 0)


@st.cache_resource(max_entries=256, show_spinner="Reading the curves")
def _ended(uri: str, run_id: str, phase: str, names: tuple[str, ...], _run: TrackedRow) -> Curves:
    return curves(uri, _run, phase, names)


@st.cache_resource(max_entries=64, ttl=KEPT_SECONDS, show_spinner=False)
def _running(uri: str, run_id: str, phase: str, names: tuple[str, ...], _run: TrackedRow) -> Curves:
    return curves(uri, _run, phase, names)


def summaries(told: Sequence[Curves], runs: Sequence[TrackedRow], context: PageContext) -> str:
    """One line a run, with its colour."""
    lines = []
    for number, (own, run) in enumerate(zip(told, runs, strict=True)):
        loss, speed, wait = (own.lines.get(key, []) for key in ("loss", THROUGHPUT, WAIT))
        lines.append(
            [
                (swatch(number) + link(context.link(run), run.name), ""),
                (f'<span class="mm-status {escape(run.status)}">{escape(run.status)}</span>', ""),
                (f"{loss[-1][0]:,}" if loss else NONE, "num"),
                (f"{loss[-1][1]:.4f}" if loss else NONE, "num"),
                (f"{median(value for _, value in speed):,.0f}" if speed else NONE, "num"),
                (f"{fmean(value for _, value in wait):.1%}" if wait else NONE, "num"),
            ]
        )
    heads = [("Run", ""), ("Status", ""), ("Last step", "num"), ("Last loss", "num")]
    return table([*heads, ("Tokens a second, median", "num"), ("Waiting for data, mean", "num")], lines, "trainings")


def panel(told: Sequence[Curves], title: str, key: str, *, log: bool) -> None:
    """One metric of all runs that have told it."""
    figure = go.Figure()
    for number, own in enumerate(told):
        history = own.lines.get(key, [])
        figure.add_scatter(
            x=[step for step, _ in history],
            y=[value for _, value in history],
            mode="lines+markers" if len(history) < 20 else "lines",
            name=own.run.name,
            line={"color": colour(number), "width": 2},
            hovertemplate="step %{x:,}: %{y:.4~g}<extra>" + escape(own.run.name[:40]) + "</extra>",
        )
    figure.update_layout(showlegend=False, title={"text": title, "font": {"size": 14}, "x": 0})
    figure.update_xaxes(title=None, rangemode="tozero")
    figure.update_yaxes(title=None, type="log" if log else "linear", tickformat=".0%" if key == WAIT else None)
    if key in (THROUGHPUT, WAIT):
        figure.update_yaxes(rangemode="tozero")
    draw(figure, f"panel_{key}", 280)


def _readable(name: str) -> str:
    """`decoder_mlm` as a title: Decoder MLM."""
    words = name.replace("_", " ").replace("mlm", "MLM")
    return words[0].upper() + words[1:]
