"""Sweeps: what was tried, what it gave, what mattered, and how much of it is noise."""

from collections.abc import Sequence

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from charts import LABELLED, draw, side_by_side
from context import PageContext
from look import choice
from midmask.errors import UserError
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.rows import measure_names, rows
from midmask.leaderboard.snapshot_file import cache_folder
from midmask.leaderboard.surfaces import STEP, Point, resolve_cached, sweep_surface, sweeps
from midmask.leaderboard.sweep_axes import choices, is_numeric
from midmask.leaderboard.sweep_next import suggestions
from midmask.leaderboard.sweep_result import SweepParameter, SweepResult, read_sweep
from midmask.tracking import TrackedRow
from views import sweep_plots, sweep_slices, sweep_tables


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
    """What a finished sweep tells of itself; it never changes."""
    return read_sweep(uri, run_id, cache_folder() / "artifacts")


def finished(sweep: SweepResult, parent: TrackedRow, context: PageContext) -> None:
    """What a sweep's own file has: the answer and its chart, then how it came about, then the statistics."""
    for sentence in sweep.sentences[:1]:
        st.markdown(markdown_text(sentence))
    if choices(sweep):
        over_parameters(sweep)
    if found := suggestions(sweep):
        st.subheader("What to try next")
        st.markdown("\n".join(f"- {markdown_text(one)}" for one in found))
    how(sweep)
    st.subheader("Statistics")
    for sentence in sweep.sentences[1:]:
        st.markdown(f"- {markdown_text(sentence)}")
    sweep_tables.comparison(sweep)
    pruned = len(sweep.points) - len(sweep.complete)
    told = f"{len(sweep.complete)} points ran to the end" + (f", {pruned} pruned" if pruned else "")
    floor = "not known" if sweep.noise_floor is None else f"{sweep.noise_floor.value:.4f}"
    st.caption(f"{told}. Noise floor on dev {floor}: the green band holds what may be as good as the best. "
               f"[Open in MLflow]({context.link(parent)})")  # fmt: skip
    sweep_tables.tried(sweep, trial_runs(context, parent), context.link)


def how(sweep: SweepResult) -> None:
    """History, Pareto front, importance, a slice for each parameter, and all of them together."""
    charts = {"History": (sweep_slices.history(sweep), 360)}
    if len(sweep.objectives) > 1:
        charts["Pareto front"] = sweep_plots.pareto(sweep), 360
    if sweep.importance:
        found = sweep_plots.importance(sweep, sweep.importance)
        charts["Importance"] = found, max(280, 90 + 45 * len(sweep.importance.shares))
    charts |= {f"Over {one.label}": (sweep_slices.slice_over(sweep, one), 320) for one in _numeric_first(sweep)}
    columns: list[DeltaGenerator] = []
    for number, (title, (figure, height)) in enumerate(charts.items()):
        if number % 2 == 0:
            columns = side_by_side(f"{number}")
        with columns[number % 2]:
            st.subheader(markdown_text(title))
            draw(figure, f"chart_{number}", height)
    if not sweep.importance:
        st.caption("Too few trials, or all alike, to tell which parameter mattered.")
    if len(choices(sweep)) + len(sweep.objectives) > 2:
        st.subheader("Points that ran to the end")
        draw(sweep_plots.parallel(sweep), "parallel", 420, LABELLED)


def trial_runs(context: PageContext, parent: TrackedRow) -> list[TrackedRow]:
    """The sweep's trials in whatever state; a cached one as the run that it links."""
    nested = (run for run in resolve_cached(context.runs) if run.parent_id == parent.run_id)
    return [run for run in nested if run.tags.get(STEP) == "trial"]


def over_parameters(sweep: SweepResult) -> None:
    """The first objective over one parameter or two, as chosen."""
    by_label = {one.label: one for one in _numeric_first(sweep)}
    with st.sidebar:
        across = by_label[choice("Across", "across", list(by_label))]
        up = choice("Up", "up", [sweep.objectives[0].measure, *(name for name in by_label if name != across.label)])
    if up not in by_label:
        draw(sweep_plots.lines(sweep, across), "lines", 440)
        return
    figure = sweep_plots.surface(sweep, across, by_label[up])
    draw(figure, "surface", max(280, 60 * len(figure.data[0].y) + 120))
    st.caption(
        "Each cell is a mean over what else differs. Cells that differ by less than the noise floor are not told apart."
    )


def _numeric_first(sweep: SweepResult) -> list[SweepParameter]:
    return sorted(choices(sweep), key=lambda one: not is_numeric(sweep, one.path))


def of_trials(context: PageContext, parent: TrackedRow) -> None:
    """What can be told of a sweep that has not ended, or has no file: its trials, two ratios as a surface."""
    runs = trial_runs(context, parent)
    trials = rows(runs)
    if not trials:
        st.info(f"This sweep is {parent.status}; none of its trials ran to the end yet.")
        sweep_tables.trials(runs, ("", ""), "measure", context.link)
        return
    with st.sidebar:
        place = choice("Measured on", "surface", sorted({f"{row.corpus} {row.split}" for row in trials}))
        measure = choice("Measure", "measure", measure_names(trials))
    corpus, _, split = place.rpartition(" ")
    found = sweep_surface(context.runs, parent.run_id, corpus, split, measure)
    mlflow = f"[Open in MLflow]({context.link(parent)})"
    if found:
        top = max(found, key=lambda point: point.value)
        st.markdown(
            f"The sweep is {parent.status}, with {len(found)} finished trials. Best {measure} {top.value:.4f} at "
            f"encoder {top.encoder_ratio:g}, decoder {top.decoder_ratio:g}. {mlflow}"
        )
        draw(heatmap(found, measure), "heatmap", max(260, 70 * len({point.decoder_ratio for point in found}) + 110))
    else:
        st.markdown(f"The sweep is {parent.status}. {mlflow}")
    sweep_tables.trials(runs, (corpus, split), measure, context.link)


def heatmap(points: Sequence[Point], measure: str) -> go.Figure:
    """The mean over trials of equal ratios, encoder ratio across, decoder ratio up."""
    across = sorted({point.encoder_ratio for point in points})
    up = sorted({point.decoder_ratio for point in points})
    cells: dict[tuple[float, float], list[float]] = {}
    for point in points:
        cells.setdefault((point.encoder_ratio, point.decoder_ratio), []).append(point.value)
    grid = [[sum(c) / len(c) if (c := cells.get((x, y))) else None for x in across] for y in up]
    return sweep_plots.heatmap(grid, ("encoder mask ratio", across), ("decoder mask ratio", up), title=measure)
