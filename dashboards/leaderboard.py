"""The leaderboard: every evaluated system, the surface of each sweep, and what has not finished. It only reads.

streamlit run dashboards/leaderboard.py -- --tracking-uri URI
"""

import argparse
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from midmask.errors import UserError
from midmask.leaderboard import (
    Point,
    Row,
    best,
    measure_names,
    rows,
    run_link,
    sweep_surface,
    sweeps,
    unfinished,
)
from midmask.tracking import TrackedRow, read_runs, redacted, resolve_tracking_uri, ui_command

ALL = "all"
NONE = "—"

STYLE = """<style>
.mm-scroll {overflow-x: auto; border: 1px solid rgba(128,128,128,.25); border-radius: .5rem;}
.mm-board {border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums;}
.mm-board th, .mm-board td {padding: .5rem .75rem; border: 0; border-bottom: 1px solid rgba(128,128,128,.15);
  text-align: left; white-space: nowrap;}
.mm-board tr:last-child td {border-bottom: 0;}
.mm-board th {font-weight: 600; font-size: .8rem; opacity: .75; background: rgba(128,128,128,.07);}
.mm-board .num {text-align: right;}
.mm-board .best {font-weight: 700; color: #0f766e;}
.mm-board .quiet {opacity: .65;}
.mm-board a {color: #0f766e; text-decoration: none;}
.mm-board a:hover {text-decoration: underline;}
.mm-board .place {display: block; font-size: .75rem; opacity: .65;}
.mm-note {font-size: .72rem; border: 1px solid rgba(128,128,128,.4); border-radius: .6rem; padding: 0 .4rem;
  margin-left: .4rem;}
[data-testid="stMainBlockContainer"] {padding-top: 3.5rem;}
@media (max-width: 640px) {
  [data-testid="stColumn"] {min-width: calc(50% - 1rem) !important;}
  .mm-board th, .mm-board td {padding: .45rem .5rem;}
}
</style>"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--mlflow-ui", help="where MLflow's own pages are served, for the links")
    return parser.parse_args()


@st.cache_data(ttl=10, show_spinner="Reading the runs")
def runs_of(uri: str) -> list[TrackedRow]:
    return read_runs(uri)


def home() -> Path:
    return Path(os.environ.get("MIDMASK_HOME") or Path(__file__).resolve().parents[1])


def table(heads: Sequence[tuple[str, str]], lines: Sequence[Sequence[tuple[str, str]]], label: str) -> str:
    """An HTML table of (text, class) cells; texts are HTML already."""
    head = "".join(f'<th class="{kind}">{text}</th>' for text, kind in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for text, kind in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="mm-scroll"><table class="mm-board" aria-label="{label}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a>'


def board(shown: list[Row], uri: str, ui: str | None) -> str:
    """The systems as a table: the best value of each corpus, split and measure in bold."""
    names, highest = measure_names(shown), best(shown)
    heads = [("System", ""), *((escape(name), "num") for name in names)]
    heads += [(text, "") for text in ("Objective", "Seed", "Started (UTC)", "MLflow")]
    lines = []
    for row in shown:
        note = '<span class="mm-note">split made here</span>' if row.split_made_here else ""
        place = f'<span class="place">{escape(row.corpus)} · {escape(row.split)}{note}</span>'
        line = [(escape(row.recipe or row.name) + place, "")]
        for name in names:
            value = row.measures.get(name)
            top = value is not None and value == highest[row.corpus, row.split, name]
            line.append((NONE, "num quiet") if value is None else (f"{value:.4f}", "num best" if top else "num"))
        line += [(escape(row.objective) or NONE, ""), (escape(row.seed) or NONE, "quiet")]
        line += [(f"{row.started:%Y-%m-%d %H:%M}", "quiet"), (link(run_link(uri, row, ui), row.run_id[:8]), "")]
        lines.append(line)
    return table(heads, lines, "systems")


def choice(label: str, key: str, options: Sequence[str]) -> str:
    """A select box whose value lives in the page's address; a value that is no longer there falls back to the first."""
    return str(st.selectbox(label, options, key=key, bind="query-params"))


def systems(found: list[Row], uri: str, ui: str | None) -> None:
    corpora, splits = sorted({row.corpus for row in found}), sorted({row.split for row in found})
    first, second, third, fourth = st.columns(4)
    with first:
        corpus = choice("Corpus", "corpus", [ALL, *corpora])
    with second:
        split = choice("Split", "split", [ALL, *splits])
    with third:
        objective = choice("Objective", "objective", [ALL, *sorted({row.objective for row in found} - {""})])
    with fourth:
        order = choice("Order by", "order", [*measure_names(found), "newest"])
    trials = st.toggle("Show the trials of sweeps", key="trials", bind="query-params")
    wanted = {"corpus": corpus, "split": split, "objective": objective}
    shown = [row for row in found if all(value in (ALL, getattr(row, name)) for name, value in wanted.items())]
    shown = [row for row in shown if trials or not row.trial]
    if order != "newest":
        shown.sort(key=lambda row: (row.corpus, row.split, -row.measures.get(order, -1.0)))
    if shown:
        st.html(board(shown, uri, ui))
        st.caption(f"{len(shown)} of {len(found)} rows. Bold: the best of its corpus and split.")
    else:
        st.info("No system matches these filters.")


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


def surfaces(runs: list[TrackedRow], found: list[Row], uri: str, ui: str | None) -> None:
    """The measured surface of one sweep; nothing is drawn where no sweep was tracked."""
    parents = {run.run_id: run for run in sweeps(runs)}
    trials = [row for row in found if row.trial]
    if not parents or not trials:
        return
    st.subheader("Surface of a sweep")
    first, second, third = st.columns(3)
    with first:
        chosen = choice("Sweep", "sweep", [f"{run.name} {run.run_id[:8]}" for run in parents.values()])
    with second:
        place = choice("Measured on", "surface", sorted({f"{row.corpus} {row.split}" for row in trials}))
    with third:
        measure = choice("Measure", "measure", measure_names(trials))
    parent = next(run for run in parents.values() if run.run_id.startswith(chosen.rpartition(" ")[2]))
    corpus, _, split = place.rpartition(" ")
    points = sweep_surface(runs, parent.run_id, corpus, split, measure)
    if not points:
        st.info(f"No finished trial of this sweep has {measure} on {place}.")
        return
    st.plotly_chart(heatmap(points, measure), config={"displaylogo": False, "displayModeBar": False})
    top = max(points, key=lambda point: point.value)
    st.caption(
        f"{len(points)} finished trials; the sweep is {parent.status}. Best {measure} {top.value:.4f} at encoder "
        f"{top.encoder_ratio:g}, decoder {top.decoder_ratio:g}. [Open in MLflow]({run_link(uri, parent, ui)})"
    )


def troubles(runs: list[TrackedRow], uri: str, ui: str | None) -> None:
    """What runs now, failed, or was killed: half a run ranks nowhere."""
    left = unfinished(runs)
    if not left:
        return
    st.subheader("Not finished")
    lines = [
        [
            (escape(run.name), ""),
            (escape(run.tags.get("midmask.step", "")), ""),
            (escape(run.status), ""),
            (f"{run.started:%Y-%m-%d %H:%M}", "quiet"),
            (link(run_link(uri, run, ui), run.run_id[:8]), ""),
        ]
        for run in left[:50]
    ]
    heads = [(text, "") for text in ("Run", "Step", "Status", "Started (UTC)", "MLflow")]
    st.html(table(heads, lines, "unfinished"))
    st.caption(
        f"{len(left)} runs, the newest {len(lines)} shown. The same command, run again, goes on where one stopped."
    )


def page() -> None:
    st.set_page_config(page_title="midmask leaderboard", layout="wide")  # an icon would come from another host
    st.html(STYLE)
    st.header("midmask leaderboard")
    given = arguments()
    try:
        uri = resolve_tracking_uri(given.tracking_uri, home())
        runs = runs_of(uri)
    except UserError as error:
        st.error(str(error), icon=":material/cloud_off:")
        st.button("Try again")
        return
    st.caption(f"{redacted(uri)} · {len(runs)} runs")
    found = rows(runs)
    if found:
        systems(found, uri, given.mlflow_ui)
        surfaces(runs, found, uri, given.mlflow_ui)
    else:
        st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
        st.code("make demo\npython jobs/sweep_mask_ratio.py --tracking-uri " + redacted(uri), language="bash")
    troubles(runs, uri, given.mlflow_ui)
    with st.expander("Open these runs in MLflow"):
        st.code(ui_command(uri), language="bash")


page()
