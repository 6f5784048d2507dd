"""Tables of a sweep: its final comparison on both splits, and every trial with the state in which it ended."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape

import streamlit as st

from look import NONE, VERDICTS, link, table
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.rows import measured
from midmask.leaderboard.sweep_result import ComparedSystem, DifferenceToFloor, SweepPoint, SweepResult
from midmask.tracking import TrackedRow

SHOWN = 100
"""Trials in the table."""

SPLITS = {"dev": "chosen here", "test": "reported once"}

Cells = list[tuple[str, str]]
TrialLinkOf = Callable[[TrackedRow], str]


def comparison(sweep: SweepResult) -> None:
    """The compared systems with their means on both splits and how they differ from the floor; nothing for a sweep of a
    version that did not keep the differences.
    """
    found = [one.to_floor["test"] for one in sweep.systems if one.to_floor]
    if not found:
        return
    measure = escape(sweep.objectives[0].measure)
    heads = [("System", "")]
    for split, what in SPLITS.items():
        heads += [(f"{split} {measure}<br>{what}", "num"), (f"to {escape(sweep.floor)}<br>95% interval, p", "num")]
        heads += [(f"Verdict on {split}", "")]
    st.subheader("Final comparison")
    st.html(table(heads, [_system(one) for one in sweep.systems], "comparison"))
    dev = next(one.to_floor["dev"] for one in sweep.systems if one.to_floor)
    st.caption(
        f"Trials were chosen on {dev.queries:,} dev queries, which favours the best of them; test is reported once, on "
        f"{found[0].queries:,} queries. Means over seeds; paired t-tests over queries, Holm's correction, at 0.05."
    )


def _system(one: ComparedSystem) -> Cells:
    cells = [(escape(one.label), "")]
    for split in SPLITS:
        cells.append((f"{one.means[split]:.4f}", "num"))
        own = one.to_floor.get(split)
        if own is None:
            cells += [(NONE, "num"), (NONE, "")]
            continue
        said, kind = VERDICTS[own.outcome]
        cells += [(f"{own.difference:+.4f}{_tested(own)}", f"num {kind}"), (said, kind)]
    return cells


def _tested(own: DifferenceToFloor) -> str:
    """The interval of a difference and its p, as a small line below it."""
    low, high = (-math.inf if own.low is None else own.low), (math.inf if own.high is None else own.high)
    return f'<span class="spread">{low:+.4f} … {high:+.4f}, p {own.p:.2g}</span>'


def tried(sweep: SweepResult, runs: Sequence[TrackedRow], link_of: TrialLinkOf) -> None:
    """Every trial with its state: complete ones first, the best on top; then those that were pruned, and those of which
    the sweep's file knows nothing, because they failed, were killed, or still run.
    """
    by_fingerprint = {run.tags.get("midmask.fingerprint"): run for run in sorted(runs, key=_has_finished)}
    sign = -1 if sweep.objectives[0].mode == "max" else 1
    complete = sorted(sweep.complete, key=lambda point: sign * sweep.first(point))
    points = [*complete, *(point for point in sweep.points if not point.complete)]
    lines = [_point(sweep, point, by_fingerprint.get(point.run), link_of) for point in points]
    known = {point.run for point in sweep.points}
    others = [run for fingerprint, run in by_fingerprint.items() if fingerprint not in known]
    lines += [_unknown(sweep, run, link_of) for run in others]
    heads = [
        ("Point", ""),
        ("State", ""),
        *((escape(one.measure), "num") for one in sweep.objectives),
        ("Seeds", "num"),
    ]
    heads += [("Against the best on dev", ""), ("MLflow", "")]
    st.subheader("Everything that was tried")
    st.html(table(heads, lines[:SHOWN], "points"))
    states = Counter("complete" if point.complete else "pruned" for point in points)
    states.update(_state(run) for run in others)
    st.caption(_counted(states, len(lines)))


def trials(runs: Sequence[TrackedRow], place: tuple[str, str], measure: str, link_of: TrialLinkOf) -> None:
    """Every trial of a sweep that has no file yet, with its state, the highest measure first."""
    values = {run.run_id: measured(run).get(place, {}).get(measure) for run in runs}
    ordered = sorted(runs, key=lambda run: (not _has_finished(run), -(values[run.run_id] or 0.0)))
    lines = [
        [
            (escape(run.name), ""),
            (_status(_state(run)), ""),
            (NONE if (value := values[run.run_id]) is None else f"{value:.4f}", "num"),
            (link(link_of(run), run.run_id[:8]), ""),
        ]
        for run in ordered[:SHOWN]
    ]
    st.subheader("Everything that was tried")
    st.html(table([("Trial", ""), ("State", ""), (escape(measure), "num"), ("MLflow", "")], lines, "trials"))
    st.caption(_counted(Counter(map(_state, runs)), len(ordered)))


def _point(sweep: SweepResult, point: SweepPoint, run: TrackedRow | None, link_of: TrialLinkOf) -> Cells:
    mark = f'<span class="mm-note">{escape(point.mark)}</span>' if point.mark else ""
    kind = "num best" if point.label == sweep.best else "num"
    values = [_number(point.values.get(one.measure)) for one in sweep.objectives]
    if not point.complete and point.probes:
        values[0] = f'<span class="quiet">{_number(point.probes[-1])} at a rung</span>'
    against = {None: "the best", True: "worse", False: "not told apart"}[point.distinguishable]
    return [
        (escape(point.label) + mark, ""),
        (_status("complete" if point.complete else "pruned"), ""),
        *((value, kind if number == 0 else "num") for number, value in enumerate(values)),
        (f"{len(point.seeds)}" if point.complete else NONE, "num"),
        (against if point.complete else NONE, "quiet"),
        (link(link_of(run), run.run_id[:8]) if run else NONE, ""),
    ]


def _unknown(sweep: SweepResult, run: TrackedRow, link_of: TrialLinkOf) -> Cells:
    """A trial without a result."""
    values = [(NONE, "num") for _ in sweep.objectives]
    about = [(NONE, "num"), (NONE, "quiet"), (link(link_of(run), run.run_id[:8]), "")]
    return [(escape(run.name), ""), (_status(_state(run)), ""), *values, *about]


def _state(run: TrackedRow) -> str:
    return "complete" if _has_finished(run) else run.status


def _has_finished(run: TrackedRow) -> bool:
    return run.status == "finished"


def _status(state: str) -> str:
    return f'<span class="mm-status {escape(state)}">{escape(state)}</span>'


def _counted(states: Counter[str], count: int) -> str:
    told = f"{count:,} trials: {', '.join(f'{number:,} {state}' for state, number in states.items())}."
    return markdown_text(told + (f" The first {SHOWN} are shown." if count > SHOWN else ""))


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"
