"""The leaderboard: every evaluated system, and what has not finished."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from context import Context
from look import ALL, NONE, choice, link, table
from midmask.leaderboard.rows import Row, best, measure_names, unfinished
from midmask.tracking import redacted


def show(context: Context) -> None:
    if context.rows:
        systems(context)
    else:
        st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
        st.code("make demo\npython jobs/sweep_mask_ratio.py --tracking-uri " + redacted(context.uri), language="bash")
    troubles(context)


def systems(context: Context) -> None:
    found = context.rows
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
        st.html(board(shown, context))
        st.caption(f"{len(shown)} of {len(found)} rows. Bold: the best of its corpus and split.")
    else:
        st.info("No system matches these filters.")


def board(shown: Sequence[Row], context: Context) -> str:
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
        line += [(f"{row.started:%Y-%m-%d %H:%M}", "quiet"), (link(context.link(row), row.run_id[:8]), "")]
        lines.append(line)
    return table(heads, lines, "systems")


def troubles(context: Context) -> None:
    """What runs now, failed, or was killed: half a run ranks nowhere."""
    left = unfinished(context.runs)
    if not left:
        return
    st.subheader("Not finished")
    lines = [
        [
            (escape(run.name), ""),
            (escape(run.tags.get("midmask.step", "")), ""),
            (escape(run.status), ""),
            (f"{run.started:%Y-%m-%d %H:%M}", "quiet"),
            (link(context.link(run), run.run_id[:8]), ""),
        ]
        for run in left[:50]
    ]
    heads = [(text, "") for text in ("Run", "Step", "Status", "Started (UTC)", "MLflow")]
    st.html(table(heads, lines, "unfinished"))
    st.caption(
        f"{len(left)} runs, the newest {len(lines)} shown. The same command, run again, goes on where one stopped."
    )
