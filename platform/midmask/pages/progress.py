"""Jobs that run: what each does, how far it is, how long it will take, its best so far, and the end of its log."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import streamlit as st

from midmask.core.words import MISSING, clock
from midmask.errors import UserError
from midmask.leaderboard.running import RunningJob, StepState, ended_early, running_jobs, step_state
from midmask.pages.context import PageContext
from midmask.pages.look import link, table
from midmask.tracking.reading import MetricPoint, TrackedRow, read_last

EVERY = 10
"""Seconds between two looks."""

MOST_ENDED = 20
TAIL_LINES, TAIL_BYTES = 20, 16_384

STYLE = """<style>
.mm-job {border: 1px solid rgba(128,128,128,.25); border-radius: .5rem; padding: .75rem 1rem;}
.mm-job h4 {margin: 0; padding: 0 0 .2rem; font-size: 1rem; font-weight: 600; overflow-wrap: anywhere;}
.mm-job a {color: light-dark(#0f766e, #2dd4bf); text-decoration: underline;}
.mm-job .quiet {opacity: .8; font-size: .85rem; overflow-wrap: anywhere;}
.mm-job .step {margin-top: .6rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere;}
.mm-job .bar {height: .5rem; border-radius: .25rem; background: rgba(148,163,184,.3); margin: .35rem 0 .15rem;}
.mm-job .bar span {display: block; height: 100%; border-radius: .25rem; background: light-dark(#0f766e, #2dd4bf);}
.mm-job .killed .bar span {background: #94a3b8;}
</style>"""

LIVES = {
    "running": ("running", "running"),
    "killed": ("killed", "failed"),
    "unknown": ("running, as far as is known", ""),
}
"""Life of a job -> what is said of it, and the class of its mark."""


def show(context: PageContext) -> None:
    now = datetime.now(UTC)
    jobs = running_jobs(context.runs, now)
    if not jobs:
        st.info("No job is running on this store.")
    for job in jobs:
        st.html(STYLE + card(job, context, now))
        tail(job)
    early = ended_early(context.runs, now)
    if early:
        st.subheader("Killed or failed within a day")
        st.html(table(HEADS, [_line(run, context) for run in early[:MOST_ENDED]], "ended early"))
        st.caption("The same command, run again, goes on where it stopped.")
    st.fragment(again, run_every=EVERY)(time.monotonic())


def again(drawn: float) -> None:
    """Draws the page again when it is old: the fragment runs once with the page and then every few seconds."""
    if time.monotonic() - drawn > EVERY / 2:
        st.rerun()
    st.caption(f"This page looks again every {EVERY} seconds.")


def card(job: RunningJob, context: PageContext, now: datetime) -> str:
    said, kind = LIVES[job.life]
    line = _line_told(job)
    facts = [f"for {clock((now - job.run.started).total_seconds())}"]
    facts += [] if line else [f"{job.finished:,} steps done"]
    facts += [f"{job.cached:,} taken from the store"] if job.cached else []
    best = (
        f"best so far: {job.best.measure} <b>{job.best.value:.4f}</b> ({escape(job.best.name)})"
        if job.best and not line
        else ""
    )
    steps = "".join(step(run, context, now, alive=job.life == "running") for run in job.current)
    return (
        f'<section class="mm-job" data-run="{escape(job.run.run_id)}">'
        f'<div class="{escape(job.life)}"><h4>{link(context.link(job.run), job.run.name)} '
        f'<span class="mm-status {kind}">{said}</span></h4>'
        f'<div class="quiet">{escape(" · ".join(facts))}</div>{_explained(job)}{line}'
        f'{steps}{f"""<div class="step">{best}</div>""" if best else ""}</div></section>'
    )


def _line_told(job: RunningJob) -> str:
    """What its terminal shows, while it lives."""
    return f'<div class="step plan">{escape(job.line)}</div>' if job.line and job.life == "running" else ""


def _explained(job: RunningJob) -> str:
    if job.life == "killed":
        return '<div class="step">Its process has ended. The same command, run again, goes on where it stopped.</div>'
    return ""


def step(run: TrackedRow, context: PageContext, now: datetime, *, alive: bool) -> str:
    """What a nested run does, with a bar where its length is known, and the time left while its job lives."""
    name = escape(run.tags.get("midmask.step") or run.name)
    title = escape(run.name.removeprefix(f"{name} "))
    try:
        state = step_state(run, _last(context.uri, run.run_id), now)
    except UserError as error:
        return f'<div class="step"><b>{name}</b> · {escape(str(error))}</div>'
    began = f"for {clock((now - run.started).total_seconds())}"
    told = [f"<b>{name}</b> {title}", *(_told(state, now, alive=alive) if state else [began])]
    if state and state.training != name:
        told.insert(1, state.training)
    done = state.at / state.of if state and state.of else None
    bar = "" if done is None else f'<div class="bar"><span style="width:{min(1.0, done):.1%}"></span></div>'
    return f'<div class="step">{" · ".join(told)}{bar}</div>'


def _told(state: StepState, now: datetime, *, alive: bool) -> list[str]:
    if state.told is None:
        return ["no step is reported yet"]
    told = [f"step {state.at:,} of {state.of:,}" if state.of else f"step {state.at:,}"]
    told += [f"loss {state.loss:.4f}", f"told {_ago(state.told, now)}"]
    return told + ([f"about {clock(state.left)} left"] if alive and state.left is not None else [])


@st.cache_data(max_entries=64, ttl=EVERY / 2, show_spinner=False)
def _last(uri: str, run_id: str) -> dict[str, MetricPoint]:
    return read_last(uri, run_id)


def _ago(when: datetime, now: datetime) -> str:
    return f"{clock(max(0.0, (now - when).total_seconds()))} ago"


def tail(job: RunningJob) -> None:
    """The last lines of the job's log, if it lies on this machine."""
    if not job.log:
        return
    path = Path(job.log)
    if not path.is_file():
        st.caption(f"Its log is {path} on the machine that runs it.")
        return
    with st.expander(f"The end of its log, {path.name}"):
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
        st.code("\n".join(lines[-TAIL_LINES:]), language=None, wrap_lines=True)


HEADS = [(text, "") for text in ("Run", "Step", "Status", "Ended (UTC)", "Reason", "MLflow")]


def _line(run: TrackedRow, context: PageContext) -> Sequence[tuple[str, str]]:
    return [
        (escape(run.name), ""),
        (escape(run.tags.get("midmask.step", "")), ""),
        (f'<span class="mm-status {escape(run.status)}">{escape(run.status)}</span>', ""),
        (f"{run.ended:%Y-%m-%d %H:%M}" if run.ended else MISSING, "quiet"),
        (escape(run.tags.get("midmask.reason", "").rstrip(": ")) or MISSING, "quiet"),
        (link(context.link(run), run.run_id[:8]), ""),
    ]
