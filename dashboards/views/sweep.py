"""Sweeps: the measured surface of one."""

import plotly.graph_objects as go
import streamlit as st

from context import Context
from look import choice
from midmask.leaderboard.rows import measure_names
from midmask.leaderboard.surfaces import Point, sweep_surface, sweeps


def show(context: Context) -> None:
    parents = {run.run_id: run for run in sweeps(context.runs)}
    trials = [row for row in context.rows if row.trial]
    if not parents or not trials:
        st.info("No sweep has been tracked in this store yet. Run one:")
        st.code("python jobs/sweep_mask_ratio.py", language="bash")
        return
    first, second, third = st.columns(3)
    with first:
        chosen = choice("Sweep", "sweep", [f"{run.name} {run.run_id[:8]}" for run in parents.values()])
    with second:
        place = choice("Measured on", "surface", sorted({f"{row.corpus} {row.split}" for row in trials}))
    with third:
        measure = choice("Measure", "measure", measure_names(trials))
    parent = next(run for run in parents.values() if run.run_id.startswith(chosen.rpartition(" ")[2]))
    corpus, _, split = place.rpartition(" ")
    points = sweep_surface(context.runs, parent.run_id, corpus, split, measure)
    if not points:
        st.info(f"No finished trial of this sweep has {measure} on {place}.")
        return
    st.plotly_chart(heatmap(points, measure), config={"displaylogo": False, "displayModeBar": False})
    top = max(points, key=lambda point: point.value)
    st.caption(
        f"{len(points)} finished trials; the sweep is {parent.status}. Best {measure} {top.value:.4f} at encoder "
        f"{top.encoder_ratio:g}, decoder {top.decoder_ratio:g}. [Open in MLflow]({context.link(parent)})"
    )


def heatmap(points: list[Point], measure: str) -> go.Figure:
    """The mean over trials of equal ratios, encoder ratio across, decoder ratio up."""
    across = sorted({point.encoder_ratio for point in points})
    up = sorted({point.decoder_ratio for point in points})
    cells: dict[tuple[float, float], list[float]] = {}
    for point in points:
        cells.setdefault((point.encoder_ratio, point.decoder_ratio), []).append(point.value)
    grid = [[sum(c) / len(c) if (c := cells.get((x, y))) else None for x in across] for y in up]
    texts = [["" if value is None else f"{value:.4f}" for value in line] for line in grid]
    figure = go.Figure(
        go.Heatmap(
            x=[f"{x:g}" for x in across],
            y=[f"{y:g}" for y in up],
            z=grid,
            text=texts,
            texttemplate="%{text}",
            colorscale="Teal",
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": measure}, "thickness": 12},
            hovertemplate="encoder %{x}, decoder %{y}: %{z:.4f}<extra></extra>",
        )
    )
    figure.update_layout(height=max(260, 70 * len(up) + 110), margin={"l": 10, "r": 10, "t": 10, "b": 10})
    figure.update_xaxes(title="encoder mask ratio", type="category", showgrid=False)
    figure.update_yaxes(title="decoder mask ratio", type="category", showgrid=False)
    return figure
