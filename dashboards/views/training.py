"""Trainings over steps, tokens or hours: losses, learning rate, gradient norms, throughput; overlaid, by groups."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean, median

import streamlit as st

from charts import draw, side_by_side, swatch
from context import PageContext
from look import NONE, choice, choices, link, table
from midmask.errors import UserError
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.training import PANELS, PHASES, THROUGHPUT, WAIT, Curves, curves, parts_of, trainings
from midmask.leaderboard.training_events import TrainingEvent, events
from midmask.progress import clock
from midmask.tracking import TrackedRow
from views.training_plots import AXES, Overlay, panel

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
        across = choice("Across", "across", list(AXES))
        smoothing = SMOOTHING[choice("Smoothing", "smoothing", list(SMOOTHING))]
        groups = _groups(chosen)
        scale = choice("Axis of losses", "axis", ("linear", "log"))
    parts = parts_of(chosen, phase)
    told = [read(context, run, phase, ["loss", *parts, *PANELS.values()]) for run in chosen]
    happened = [events(own) for own in told]
    overlay = Overlay(told, groups, happened, across, smoothing)
    st.html(summaries(told, overlay, context))
    tell(told, happened)
    panels(overlay, {"Loss": "loss", **{_readable(name): name for name in parts}, **PANELS}, log=scale == "log")
    st.caption(
        f"Each point is a mean over the steps since the one before. Of long runs "
        f"({max((own.length for own in told), default=0):,} points here at most) the lowest and the highest of each "
        "part are drawn, so no spike is lost. Time is that of the steps, without pauses. Cached runs are left out."
    )


def _groups(chosen: Sequence[TrackedRow]) -> list[str]:
    """Draws the choice of a group; the group of each run."""
    values = {name: {run.tags.get(f"midmask.{name}", "") for run in chosen} for name in GROUPS}
    by = choice("Colour by", "by", [ALONE, *(name for name in GROUPS if len(values[name]) > 1)])
    return [run.run_id if by == ALONE else run.tags.get(f"midmask.{by}", "") or NONE for run in chosen]


def panels(overlay: Overlay, titles: Mapping[str, str], *, log: bool) -> None:
    """A chart for each metric that any run has, two beside each other."""
    known = {title: key for title, key in titles.items() if overlay.has(key)}
    for number, (title, key) in enumerate(known.items()):
        if number % 2 == 0:
            columns = side_by_side(f"{number}")
        with columns[number % 2]:
            draw(panel(overlay, title, key, log=log and key not in PANELS.values()), f"panel_{key}", 300)


def tell(told: Sequence[Curves], happened: Sequence[Sequence[TrainingEvent]]) -> None:
    """The events of all runs in words."""
    for own, found in zip(told, happened, strict=True):
        for event in found:
            icon = ":material/replay:" if event.kind == "resumed" else ":material/warning:"
            st.caption(f"{icon} {markdown_text(f'{own.run.name}, step {event.step:,}: {event.text}')}")


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


def summaries(told: Sequence[Curves], overlay: Overlay, context: PageContext) -> str:
    """One line a run, with the colour of its group."""
    lines = []
    for number, own in enumerate(told):
        run = own.run
        loss, speed, wait = (own.lines.get(key, []) for key in ("loss", THROUGHPUT, WAIT))
        tokens, hours = (list(spent.values())[-1:] for spent in (own.tokens, own.hours))
        lines.append(
            [
                (swatch(overlay.colour_number(number)) + link(context.link(run), run.name), ""),
                (f'<span class="mm-status {escape(run.status)}">{escape(run.status)}</span>', ""),
                (f"{loss[-1].step:,}" if loss else NONE, "num"),
                (f"{loss[-1].value:.4f}" if loss else NONE, "num"),
                (_short(tokens[0]) if tokens else NONE, "num"),
                (clock(3600 * hours[0]) if hours else NONE, "num"),
                (f"{median(point.value for point in speed):,.0f}" if speed else NONE, "num"),
                (f"{fmean(point.value for point in wait):.1%}" if wait else NONE, "num"),
            ]
        )
    heads = [("Run", ""), ("Status", ""), ("Last step", "num"), ("Last loss", "num"), ("Tokens", "num")]
    heads += [("Time", "num"), ("Tokens a second", "num"), ("Waiting", "num")]
    return table(heads, lines, "trainings")


def _short(count: float) -> str:
    """A count as people read it: 512, 1.5 k, 82 k, 1.2 M."""
    if count < 1e4:
        return f"{count:.0f}" if count < 1e3 else f"{count / 1e3:.1f} k"
    return f"{count / 1e3:,.0f} k" if count < 1e6 else f"{count / 1e6:,.1f} M"


def _readable(name: str) -> str:
    """`decoder_mlm` as a title: Decoder MLM."""
    words = name.replace("_", " ").replace("mlm", "MLM")
    return words[0].upper() + words[1:]
