"""Sweeps: what was tried, what it gave, what mattered, and how much of it is noise.

Tables: the final comparison on both splits, and every trial with the state in which it ended.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.leaderboard.rows import STEP, measure_names, resolve_cached, rows, sweeps
from midmask.leaderboard.store_view import artifact_cache
from midmask.pages.context import PageContext
from midmask.pages.look import badge, choice, draw, link, show_table, side_by_side, tinted
from midmask.sweep import figures
from midmask.sweep.sweep_file import (
    ComparedSystem,
    DifferenceToFloor,
    SweepPoint,
    SweepResult,
    choices,
    read_sweep,
)
from midmask.tracking.reading import TrackedRow


def show(context: PageContext) -> None:
    parents = sweeps(context.runs)
    if not parents:
        st.info("No sweep has been tracked in this store yet. Run one:")
        st.code("python jobs/sweep_mask_ratio.py", language="bash", wrap_lines=True)
        return
    parents.sort(key=lambda run: run.status != "finished")  # those that were killed or still run come last
    named = {_name(run): run for run in parents}
    with st.sidebar:
        parent = named[choice("Sweep", "sweep", list(named))]
    try:
        sweep = read(context.uri, parent.run_id) if parent.status == "finished" else None
    except UserError as error:
        st.warning(str(error))
        return
    if sweep is None or not sweep.complete:
        of_trials(context, parent)
    else:
        finished(sweep, parent, context)


def _name(run: TrackedRow) -> str:
    corpus = run.tags.get("midmask.corpus", "")
    return " · ".join(filter(None, (run.name, corpus, run.run_id[:8], "" if run.status == "finished" else run.status)))


@st.cache_resource(max_entries=64, show_spinner="Reading the sweep")
def read(uri: str, run_id: str) -> SweepResult | None:
    """Reads the file of a finished sweep, which never changes."""
    return read_sweep(uri, run_id, artifact_cache())


def finished(sweep: SweepResult, parent: TrackedRow, context: PageContext) -> None:
    """What a sweep's own file has: the answer and its chart, then how it came about, then the statistics."""
    for sentence in sweep.sentences[:1]:
        st.markdown(markdown_text(sentence))
    if choices(sweep):
        over_parameters(sweep)
    how(sweep)
    st.subheader("Statistics")
    for sentence in sweep.sentences[1:]:
        st.markdown(f"- {markdown_text(sentence)}")
    show_comparison(sweep, link(context.link(parent), parent.run_id[:8]))
    pruned = len(sweep.points) - len(sweep.complete)
    told = f"{len(sweep.complete)} points ran to the end" + (f", {pruned} pruned" if pruned else "")
    floor = "not known" if sweep.noise_floor is None else f"{sweep.noise_floor.value:.4f}"
    st.caption(f"{told}. Noise floor on dev {floor}: the green band holds what may be as good as the best. "
               f"[Open in MLflow]({context.link(parent)})")  # fmt: skip
    show_tried(sweep, trial_runs(context, parent), context.link)


def how(sweep: SweepResult) -> None:
    """History, rungs, Pareto front and importance."""
    columns: list[DeltaGenerator] = []
    for number, (title, figure) in enumerate(figures.figures_of(sweep).items()):
        if number % 2 == 0:
            columns = side_by_side(f"{number}")
        with columns[number % 2]:
            st.subheader(markdown_text(title))
            draw(figure, f"chart_{number}", 340)
    if not sweep.importance:
        st.caption("Too few trials, or all alike, to tell which parameter mattered.")


def trial_runs(context: PageContext, parent: TrackedRow) -> list[TrackedRow]:
    """The sweep's trials in whatever state; a cached one as the run that it links."""
    nested = (run for run in resolve_cached(context.runs) if run.parent_id == parent.run_id)
    return [run for run in nested if run.tags.get(STEP) == "trial"]


def over_parameters(sweep: SweepResult) -> None:
    """The first objective over one parameter or two, as chosen."""
    by_label = {one.label: one for one in figures.numeric_first(sweep)}
    with st.sidebar:
        across = by_label[choice("Across", "across", list(by_label))]
        up = choice("Up", "up", [sweep.objectives[0].measure, *(name for name in by_label if name != across.label)])
    if up not in by_label:
        draw(figures.lines(sweep, across), "lines", 440)
        return
    figure = figures.surface(sweep, across, by_label[up])
    draw(figure, "surface", max(280, 60 * len(figure.data[0].y) + 120))
    st.caption(
        "Each cell is a mean over what else differs. Cells that differ by less than the noise floor are not told apart."
    )


def of_trials(context: PageContext, parent: TrackedRow) -> None:
    """Draws a sweep that has not ended, or has no file: every trial with its state, the highest measure first."""
    runs = trial_runs(context, parent)
    st.markdown(f"The sweep is {parent.status}. [Open in MLflow]({context.link(parent)})")
    trials = rows(runs)
    values: dict[str, float | None] = {}
    measure = "measure"
    if trials:
        with st.sidebar:
            place = choice("Measured on", "surface", sorted({f"{row.corpus} {row.split}" for row in trials}))
            measure = choice("Measure", "measure", measure_names(trials))
        values = {row.run_id: row.measures.get(measure) for row in trials if f"{row.corpus} {row.split}" == place}
    ordered = sorted(runs, key=lambda run: (not _has_finished(run), -(values.get(run.run_id) or 0.0)))
    lines = [_of_run(run, context.link) | {measure: values.get(run.run_id)} for run in ordered[:SHOWN]]
    st.subheader("Everything that was tried")
    show_table(lines, "trials", forms={measure: _number})
    st.caption(_counted(Counter(map(_state, runs)), len(ordered)))


SHOWN = 100
"""Trials in the table."""

SPLITS = {"dev": "chosen here", "test": "reported once"}

Line = dict[str, object]
TrialLinkOf = Callable[[TrackedRow], str]


def show_comparison(sweep: SweepResult, logged: str) -> None:
    """The compared systems with their means on both splits and how they differ from the floor; nothing for a sweep of a
    version that did not keep the differences.

    Args:
        logged: the link to the sweep's run.
    """
    found = [one.to_floor["test"] for one in sweep.systems if one.to_floor]
    if not found:
        return
    st.subheader("Final comparison")
    show_table([_system(sweep, one) | {"MLflow": logged} for one in sweep.systems], "comparison")
    dev = next(one.to_floor["dev"] for one in sweep.systems if one.to_floor)
    st.caption(
        f"Trials were chosen on {dev.queries:,} dev queries, which favours the best of them; test is reported once, on "
        f"{found[0].queries:,} queries. Means over seeds; paired t-tests over queries, Holm's correction, at 0.05."
    )


def _system(sweep: SweepResult, one: ComparedSystem) -> Line:
    line: Line = {"System": markdown_text(one.label)}
    for split, what in SPLITS.items():
        line[f"{split} {sweep.objectives[0].measure}, {what}"] = f"{one.means[split]:.4f}"
        own = one.to_floor.get(split)
        line[f"{split}, to {sweep.floor}: 95% interval, p"] = MISSING if own is None else _tested(own)
        line[f"Verdict on {split}"] = MISSING if own is None else tinted(own.outcome)
    return line


def _tested(own: DifferenceToFloor) -> str:
    """A difference, its interval and its p."""
    difference = MISSING if own.difference is None else f"{own.difference:+.4f}"
    low, high = (-math.inf if own.low is None else own.low), (math.inf if own.high is None else own.high)
    return f"{tinted(own.outcome, difference)} :small[:gray[{low:+.4f} … {high:+.4f}, p {own.p:.2g}]]"


def show_tried(sweep: SweepResult, runs: Sequence[TrackedRow], link_of: TrialLinkOf) -> None:
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
    lines += [_of_run(run, link_of) for run in others]
    st.subheader("Everything that was tried")
    show_table(lines[:SHOWN], "points", forms={"Seeds": "{:.0f}"} | {one.measure: _number for one in sweep.objectives})
    states = Counter("complete" if point.complete else "pruned" for point in points)
    states.update(_state(run) for run in others)
    st.caption(_counted(states, len(lines)))


def _point(sweep: SweepResult, point: SweepPoint, run: TrackedRow | None, link_of: TrialLinkOf) -> Line:
    """A trial with a result, or one that was pruned, with its last value at a rung."""
    name = f"**{markdown_text(point.label)}**" if point.label == sweep.best else markdown_text(point.label)
    against = {None: "the best", True: "worse", False: "not told apart"}[point.distinguishable]
    at_a_rung = f"pruned at {point.probes[-1]:.4f}" if point.probes else "pruned"
    return {
        "Point": name + (f" :gray-badge[{markdown_text(point.mark)}]" if point.mark else ""),
        "State": badge("complete" if point.complete else "pruned"),
        **{one.measure: point.values.get(one.measure) for one in sweep.objectives},
        "Seeds": len(point.seeds) if point.complete else None,
        "Against the best on dev": against if point.complete else at_a_rung,
        "MLflow": link(link_of(run), run.run_id[:8]) if run else MISSING,
    }


def _of_run(run: TrackedRow, link_of: TrialLinkOf) -> Line:
    """A trial of which its run alone is known."""
    return {
        "Point": markdown_text(run.name),
        "State": badge(_state(run)),
        "MLflow": link(link_of(run), run.run_id[:8]),
    }


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def _state(run: TrackedRow) -> str:
    return "complete" if _has_finished(run) else run.status


def _has_finished(run: TrackedRow) -> bool:
    return run.status == "finished"


def _counted(states: Counter[str], count: int) -> str:
    told = f"{count:,} trials: {', '.join(f'{number:,} {state}' for state, number in states.items())}."
    return markdown_text(told + (f" The first {SHOWN} are shown." if count > SHOWN else ""))
