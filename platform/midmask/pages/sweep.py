"""Sweeps: what was tried, what it gave, what mattered, and how much of it is noise."""

import math

import pandas as pd
import streamlit as st

from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.leaderboard.rows import STEP, sweeps
from midmask.leaderboard.store_view import StoreView
from midmask.pages.look import choice, draw, link, show_table, tinted
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


def show(store: StoreView) -> None:
    parents = sweeps(store.runs)
    if not parents:
        st.info("No sweep has been tracked in this store yet. Run one:")
        st.code("python jobs/sweep_mask_ratio.py", language="bash", wrap_lines=True)
        return
    parents.sort(key=lambda run: run.status != "finished")  # those that were killed or still run come last
    named = {_name(run): run for run in parents}
    with st.sidebar:
        parent = named[choice("Sweep", "sweep", list(named))]
    try:
        sweep = read(store.uri, parent.run_id) if parent.status == "finished" else None
    except UserError as error:
        st.warning(str(error))
        return
    if sweep is None or not sweep.complete:
        st.info(f"The sweep is {parent.status}, and has no result.")
    else:
        finished(sweep, parent, store)
    st.markdown(f"[Every trial in MLflow]({store.link(parent)})")


def _name(run: TrackedRow) -> str:
    corpus = run.tags.get("midmask.corpus", "")
    return " · ".join(filter(None, (run.name, corpus, run.run_id[:8], "" if run.status == "finished" else run.status)))


@st.cache_resource(max_entries=64, show_spinner="Reading the sweep")
def read(uri: str, run_id: str) -> SweepResult | None:
    """Reads the file of a finished sweep, which never changes."""
    return read_sweep(uri, run_id)


def finished(sweep: SweepResult, parent: TrackedRow, store: StoreView) -> None:
    """What a sweep's own file has: the answer and its chart, then how it came about, then the statistics."""
    for sentence in sweep.sentences[:1]:
        st.markdown(markdown_text(sentence))
    if choices(sweep):
        over_a_parameter(sweep)
    if sweep.cost:
        st.subheader("Pareto front")
        draw(figures.pareto(sweep, sweep.cost), "front", 340)
    st.subheader("Statistics")
    for sentence in sweep.sentences[1:]:
        st.markdown(f"- {markdown_text(sentence)}")
    show_comparison(sweep, link(store.link(parent), parent.run_id[:8]))
    pruned = len(sweep.points) - len(sweep.complete)
    counts = f"{len(sweep.complete)} points ran to the end" + (f", {pruned} pruned" if pruned else "")
    floor = "not known" if sweep.noise_floor is None else f"{sweep.noise_floor.value:.4f}"
    st.caption(f"{counts}. Noise floor on dev {floor}: the green band holds what may be as good as the best.")
    show_points(sweep, store)


def over_a_parameter(sweep: SweepResult) -> None:
    """The measure over a parameter, as chosen."""
    numbers_first = sorted(choices(sweep), key=lambda parameter: not figures.is_numeric(sweep, parameter))
    by_label = {parameter.label: parameter for parameter in numbers_first}
    with st.sidebar:
        across = by_label[choice("Across", "across", list(by_label))]
    draw(figures.lines(sweep, across), "lines", 440)


SPLITS = {"dev": "chosen here", "test": "reported once"}


def show_comparison(sweep: SweepResult, logged: str) -> None:
    """The compared systems with their means on both splits and how they differ from the floor.

    Args:
        logged: the link to the sweep's run, by which the keyboard reaches a table that is wider than a phone.
    """
    st.subheader("Final comparison")
    show_table([_system(sweep, system) | {"MLflow": logged} for system in sweep.systems], "comparison")
    queries = {split: row.queries for split, row in sweep.systems[0].to_floor.items()}
    st.caption(
        f"Trials were chosen on {queries['dev']:,} dev queries, which favours the best of them; test is reported once, "
        f"on {queries['test']:,} queries. Means over seeds; paired t-tests over queries, Holm's correction, at 0.05."
    )


def _system(sweep: SweepResult, system: ComparedSystem) -> dict[str, object]:
    line: dict[str, object] = {"System": markdown_text(system.label)}
    for split, what in SPLITS.items():
        line[f"{split} {sweep.measure}, {what}"] = f"{system.means[split]:.4f}"
        row = system.to_floor.get(split)
        line[f"{split}, to {sweep.floor}: 95% interval, p"] = MISSING if row is None else _tested(row)
        line[f"Verdict on {split}"] = MISSING if row is None else tinted(row.outcome)
    return line


def _tested(row: DifferenceToFloor) -> str:
    """A difference, its interval and its p."""
    difference = MISSING if row.difference is None else f"{row.difference:+.4f}"
    low, high = (-math.inf if row.low is None else row.low), (math.inf if row.high is None else row.high)
    return f"{tinted(row.outcome, difference)} :small[:gray[{low:+.4f} … {high:+.4f}, p {row.p:.2g}]]"


def show_points(sweep: SweepResult, store: StoreView) -> None:
    """Every point with a result, the best first, and then those that were pruned."""
    points = sorted(sweep.points, key=lambda point: (not point.complete, -point.values.get(sweep.measure, 0.0)))
    links = {
        run.tags.get("midmask.fingerprint"): store.link(run) for run in store.runs if run.tags.get(STEP) == "trial"
    }
    lines = [
        {
            "Point": point.label,
            "Mark": point.mark or "",
            **{objective.measure: point.values.get(objective.measure) for objective in sweep.objectives},
            "Against the best on dev": _against(point),
            "MLflow": links.get(point.run),
        }
        for point in points
    ]
    st.subheader("Everything that was tried")
    columns = {
        **{objective.measure: st.column_config.NumberColumn(format="%.4g") for objective in sweep.objectives},
        "MLflow": st.column_config.LinkColumn(display_text="open"),
    }
    st.dataframe(pd.DataFrame(lines), hide_index=True, column_config=columns, alt="points")


def _against(point: SweepPoint) -> str:
    """How a trial compares with the best, or its last value at a rung if it was pruned."""
    if not point.complete:
        return f"pruned at {point.probes[-1]:.4f}" if point.probes else "pruned"
    if point.to_best is None:
        return "the best"
    return "worse" if point.to_best.distinguishable else "not told apart"
